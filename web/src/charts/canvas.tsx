/** The canvas that our own plots draw on: as sharp as the screen, as large as its place, drawn again when either or the
 * colour scheme changes; and the axes of those plots. */
import type { ComponentChildren } from "preact";
import { useContext, useEffect, useRef } from "preact/hooks";
import { Drawn } from "./frame";
import { colour, FONT, scheme } from "./palette";
import { tickText, ticks } from "./scale";

export type Draw = (ctx: CanvasRenderingContext2D, width: number, height: number, ratio: number) => void;

export interface Pointing {
  onMove?: (x: number, y: number) => void;
  onLeave?: () => void;
  onClick?: (x: number, y: number) => void;
  onDouble?: () => void;
  /** Two corners, in pixels. Absent: the canvas cannot be dragged on. */
  onDrag?: (x0: number, y0: number, x1: number, y1: number) => void;
  /** A drag chooses columns, not a box. */
  columns?: boolean;
}

interface CanvasProps extends Pointing {
  height: number; // at least; a taller card is filled
  draw: Draw;
  children?: ComponentChildren; // on top of it
}

export function Canvas({ height, draw, children, onMove, onLeave, onClick, onDouble, onDrag, columns }: CanvasProps) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const chosen = useRef<HTMLDivElement>(null);
  const latest = useRef(draw);
  latest.current = draw;
  const from = useRef<[number, number] | null>(null);
  const seen = useContext(Drawn);

  const paint = () => {
    const [place, surface] = [box.current, canvas.current];
    const ctx = surface?.getContext("2d");
    if (!place || !surface || !ctx) return;
    const [width, tall] = [place.clientWidth, place.clientHeight];
    if (!width || !tall) return;
    const ratio = devicePixelRatio || 1;
    const [w, h] = [Math.round(width * ratio), Math.round(tall * ratio)];
    if (surface.width !== w || surface.height !== h) (surface.width = w), (surface.height = h);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, tall);
    ctx.font = FONT;
    ctx.lineJoin = "round";
    latest.current(ctx, width, tall, ratio);
    seen();
  };
  useEffect(() => {
    const place = box.current;
    if (!place) return;
    const sized = new ResizeObserver(paint);
    sized.observe(place);
    // At once and not with the next frame: paper is printed before that.
    const unwatch = scheme.watch(paint);
    return () => {
      sized.disconnect();
      unwatch();
    };
  }, []);
  useEffect(paint);

  const at = (event: PointerEvent): [number, number] => {
    const rect = (box.current as HTMLElement).getBoundingClientRect();
    return [Math.min(Math.max(event.clientX - rect.left, 0), rect.width), Math.min(Math.max(event.clientY - rect.top, 0), rect.height)];
  };
  const outline = (x: number, y: number) => {
    const mark = chosen.current;
    if (!mark || !from.current) return;
    const [x0, y0] = from.current;
    mark.hidden = false;
    mark.style.left = `${Math.min(x0, x)}px`;
    mark.style.width = `${Math.abs(x - x0)}px`;
    mark.style.top = columns ? "0px" : `${Math.min(y0, y)}px`;
    mark.style.height = columns ? "100%" : `${Math.abs(y - y0)}px`;
  };
  return (
    <div
      ref={box}
      class={`canvas${onDrag ? " drags" : ""}`}
      style={{ minHeight: `${height}px` }}
      onPointerDown={(event) => {
        if (!onDrag || event.button !== 0 || event.pointerType === "touch") return;
        from.current = at(event);
        (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
      }}
      onPointerMove={(event) => {
        const [x, y] = at(event);
        if (from.current) outline(x, y);
        onMove?.(x, y);
      }}
      onPointerLeave={() => onLeave?.()}
      onPointerUp={(event) => {
        const [x, y] = at(event);
        const start = from.current;
        from.current = null;
        if (chosen.current) chosen.current.hidden = true;
        if (start && Math.max(Math.abs(x - start[0]), columns ? 0 : Math.abs(y - start[1])) > 5) onDrag?.(start[0], start[1], x, y);
        else onClick?.(x, y);
      }}
      onPointerCancel={() => {
        from.current = null;
        if (chosen.current) chosen.current.hidden = true;
      }}
      onDblClick={() => onDouble?.()}
    >
      <canvas ref={canvas} />
      {children}
      <div ref={chosen} class="chosen" hidden />
    </div>
  );
}

export interface Area {
  left: number;
  right: number;
  top: number;
  bottom: number;
  x: (value: number) => number;
  y: (value: number) => number;
  right_y: (value: number) => number;
  back: (px: number) => number; // of x
  up: (px: number) => number; // of y
}

export interface Axes {
  x: [number, number];
  y: [number, number];
  right?: [number, number] | null;
  xTitle: string;
  whole?: boolean; // x counts things
  strip?: number; // pixels kept free above the x axis
  names?: { at: number; text: string }[]; // instead of ticks on y
}

/** Draw grid, ticks and the x axis's title, and say where numbers go. */
export function axes(ctx: CanvasRenderingContext2D, width: number, height: number, told: Axes): Area {
  const rows = Math.max(2, Math.floor((height - 40) / 38));
  const left_ticks = told.names ? [] : ticks(told.y[0], told.y[1], rows);
  const right_ticks = told.right ? ticks(told.right[0], told.right[1], rows) : [];
  const wide = (texts: string[]) => Math.ceil(Math.max(8, ...texts.map((t) => ctx.measureText(t).width)));
  const left = 8 + wide(told.names ? told.names.map((n) => n.text) : left_ticks.map(tickText));
  const right = width - (told.right ? 8 + wide(right_ticks.map(tickText)) : 12);
  const top = 8;
  const bottom = height - 34;
  const floor = bottom - (told.strip ?? 0);
  const along = (ends: [number, number], a: number, b: number) => (v: number) => a + ((v - ends[0]) / (ends[1] - ends[0] || 1)) * (b - a);
  const area: Area = {
    left, right, top, bottom,
    x: along(told.x, left, right),
    y: along(told.y, floor, top),
    right_y: along(told.right ?? told.y, floor, top),
    back: (px) => told.x[0] + ((px - left) / (right - left)) * (told.x[1] - told.x[0]),
    up: (px) => told.y[0] + ((floor - px) / (floor - top)) * (told.y[1] - told.y[0]),
  };
  ctx.save();
  ctx.lineWidth = 1;
  ctx.strokeStyle = colour("line");
  ctx.fillStyle = colour("faint");
  ctx.textBaseline = "middle";
  for (const value of left_ticks) {
    const y = Math.round(area.y(value)) + 0.5;
    ctx.globalAlpha = 0.6;
    stroke(ctx, left, y, right, y);
    ctx.globalAlpha = 1;
    ctx.textAlign = "right";
    ctx.fillText(tickText(value), left - 6, y);
  }
  ctx.textAlign = "right";
  for (const { at, text } of told.names ?? []) ctx.fillText(text, left - 6, area.y(at));
  ctx.textAlign = "left";
  for (const value of right_ticks) ctx.fillText(tickText(value), right + 6, area.right_y(value));
  ctx.textBaseline = "top";
  ctx.textAlign = "center";
  const columns = ticks(told.x[0], told.x[1], Math.max(2, Math.floor((right - left) / 80)), told.whole);
  for (const value of columns) {
    const x = Math.round(area.x(value)) + 0.5;
    stroke(ctx, x, bottom, x, bottom + 4);
    const half = ctx.measureText(tickText(value)).width / 2;
    ctx.fillText(tickText(value), Math.min(x, width - half - 1), bottom + 6);
  }
  stroke(ctx, left, bottom + 0.5, right, bottom + 0.5);
  ctx.textAlign = "right";
  ctx.textBaseline = "bottom";
  ctx.fillText(told.xTitle, right, height);
  ctx.restore();
  return area;
}

export function stroke(ctx: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}
