/** All columns in small, beside them: where colours are strong, and which part is in the window. A click goes there. */
import type { RefObject } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { ColourScale } from "../types";
import type { Column } from "./column";
import { levelClass } from "./levels";

const LANE = 6; // pixels of a column

interface MinimapProps {
  root: RefObject<HTMLDivElement | null>;
  columns: RefObject<(Column | null)[]>;
  drawn: number;
  scale: ColourScale | null;
}

export function Minimap({ root, columns, drawn, scale }: MinimapProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const frame = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const [box, view, map] = [root.current, frame.current, canvas.current];
    if (!box || !view || !map) return;
    const place = () => {
      const share = Math.min(1, box.clientHeight / box.scrollHeight);
      view.style.height = `${share * box.clientHeight}px`;
      view.style.transform = `translateY(${(box.scrollTop / box.scrollHeight) * box.clientHeight}px)`;
    };
    let due = 0;
    const paint = () => {
      due = 0;
      draw(map, box, columns.current ?? [], scale);
      place();
    };
    const soon = () => {
      due ||= window.setTimeout(paint, 120);
    };
    const sized = new ResizeObserver(soon);
    sized.observe(box);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", soon);
    box.addEventListener("scroll", place, { passive: true });
    soon();
    return () => {
      clearTimeout(due);
      sized.disconnect();
      scheme.removeEventListener("change", soon);
      box.removeEventListener("scroll", place);
    };
  }, [drawn, scale]);
  const go = (event: PointerEvent) => {
    const box = root.current;
    if (!box || !(event.buttons & 1) || !canvas.current) return;
    const edge = canvas.current.getBoundingClientRect();
    box.scrollTop = ((event.clientY - edge.top) / edge.height) * box.scrollHeight - box.clientHeight / 2;
  };
  return (
    <div class="minimap" aria-hidden="true" onPointerDown={go} onPointerMove={go}>
      <canvas ref={canvas} />
      <div ref={frame} class="minimap-frame" />
    </div>
  );
}

function draw(map: HTMLCanvasElement, box: HTMLElement, columns: (Column | null)[], scale: ColourScale | null): void {
  const rows = Math.max(1, box.clientHeight);
  map.width = Math.max(LANE, LANE * columns.length);
  map.height = rows;
  map.style.height = `${rows}px`;
  const pen = map.getContext("2d");
  if (!pen) return;
  const style = getComputedStyle(map);
  const colour = (name: string) => style.getPropertyValue(`--${name}`);
  columns.forEach((column, lane) => {
    if (!column) return;
    const top = box.getBoundingClientRect().top - box.scrollTop;
    const edge = column.host.getBoundingClientRect();
    const [from, tall] = [edge.top - top, edge.height];
    const y = (at: number) => (at / box.scrollHeight) * rows;
    pen.fillStyle = colour("line");
    pen.fillRect(LANE * lane, y(from), LANE - 1, Math.max(1, y(tall)));
    if (!scale) return;
    const count = Math.max(1, Math.round(y(tall)));
    column.strip(count, column.host.offsetTop, tall).forEach((level, row) => {
      const name = levelClass(level, scale);
      if (!name) return;
      pen.fillStyle = colour(name);
      pen.fillRect(LANE * lane, y(from) + row, LANE - 1, 1);
    });
  });
}
