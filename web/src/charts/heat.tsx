/** P6: in which groups rewards still differ. Where all are equal nothing is learned: those cells are hatched. */
import { useMemo, useRef, useState } from "preact/hooks";
import { number } from "../format";
import { cursor, useShared } from "../shared";
import { visible } from "../text";
import type { Heat } from "../types";
import { axes, Canvas, stroke, type Area } from "./canvas";
import { Frame, type Width } from "./frame";
import { colour } from "./palette";

export function HeatPlot({ heat, height, wide = "two" }: { heat: Heat; height: number; wide?: Width }) {
  const [near, setNear] = useState<[number, number] | null>(null);
  const area = useRef<Area | null>(null);
  const step = useShared(cursor);
  const first = heat.steps[0] ?? 0;
  const end = (heat.steps[heat.steps.length - 1] ?? 0) + heat.width;
  const rows = heat.rows.length;
  const names = useMemo(() => apart(heat.rows), [heat]);
  const cell = near ? heat.cells[near[0]]?.[near[1]] : undefined;
  const column = (k: number) => (heat.width > 1 ? `steps ${heat.steps[k]} to ${(heat.steps[k] ?? 0) + heat.width - 1}` : `step ${heat.steps[k]}`);
  const said = near ? `${column(near[1])}, ${visible(heat.rows[near[0]] ?? "")}: ${cell === null || cell === undefined ? "no data" : cell < 0 ? "all rewards equal" : `standard deviation ${number(cell)}`}` : "Point at a cell to read it.";
  return (
    <Frame
      wide={wide} title={heat.title} sentence={heat.sentence} empty={heat.empty} left="prompts by success at the start" legend={<Scale most={heat.most} />} note={<span class="readout">{said}</span>}
      table={() => [{ name: "step", values: heat.steps }, ...heat.rows.map((name, k) => ({ name, values: (heat.cells[k] ?? []).map((v) => (v === null ? "no data" : v < 0 ? "all equal" : v)) }))]}
    >
      <Canvas
        height={height}
        onMove={(x, y) => {
          const a = area.current;
          if (!a || x < a.left || x > a.right || y < a.top || y > a.bottom) return setNear(null);
          const at = a.back(x);
          let k = heat.steps.findIndex((s) => s > at) - 1;
          if (k < 0) k = heat.steps.length - 1;
          setNear([Math.min(rows - 1, Math.max(0, Math.floor(((y - a.top) / (a.bottom - a.top)) * rows))), k]);
          cursor.set(Math.round(at));
        }}
        onLeave={() => (setNear(null), cursor.set(null))}
        draw={(ctx, w, h) => {
          const short = names.map((name, k) => ({ at: k + 0.5, text: cut(ctx, visible(name), w * 0.3) }));
          const a = axes(ctx, w, h, { x: [first, end], y: [rows, 0], xTitle: "step", whole: true, names: short });
          area.current = a;
          cells(ctx, a, heat);
          if (step === null || step < first || step > end) return;
          ctx.strokeStyle = colour("faint");
          ctx.lineWidth = 1;
          stroke(ctx, a.x(step), a.top, a.x(step), a.bottom);
        }}
      />
    </Frame>
  );
}

/** Labels without the words that all of them end in, which the axis says once. */
function apart(names: string[]): string[] {
  const [first = ""] = names;
  const words = first.split(" ");
  for (let k = 1; k < words.length; k++) {
    const tail = ` ${words.slice(k).join(" ")}`;
    if (names.length > 1 && names.every((name) => name.endsWith(tail))) return names.map((name) => name.slice(0, -tail.length));
  }
  return names;
}

function cut(ctx: CanvasRenderingContext2D, text: string, room: number): string {
  if (ctx.measureText(text).width <= room) return text;
  let kept = text;
  while (kept.length > 1 && ctx.measureText(`${kept}…`).width > room) kept = kept.slice(0, -1);
  return `${kept}…`;
}

function cells(ctx: CanvasRenderingContext2D, a: Area, heat: Heat): void {
  ctx.save();
  const tall = (a.bottom - a.top) / heat.rows.length;
  heat.cells.forEach((row, r) =>
    row.forEach((value, k) => {
      if (value === null) return;
      const x0 = a.x(heat.steps[k] as number);
      const x1 = a.x((heat.steps[k] as number) + heat.width);
      const [x, y, w, h] = [x0, a.top + r * tall + 0.5, Math.max(1, x1 - x0 + 0.3), tall - 1];
      if (value < 0) {
        ctx.strokeStyle = colour("faint");
        ctx.globalAlpha = 0.75;
        ctx.lineWidth = 0.8;
        ctx.save();
        ctx.beginPath();
        ctx.rect(x, y, w, h);
        ctx.clip();
        // On one grid for the whole plot, so that neighbours join into one hatched field.
        for (let d = Math.floor((x - h) / 5) * 5; d < x + w + 5; d += 5) stroke(ctx, d - (y % 5), y + h, d - (y % 5) + h, y);
        ctx.restore();
      } else {
        ctx.fillStyle = colour("proxy");
        ctx.globalAlpha = 0.07 + 0.93 * Math.min(1, value / (heat.most || 1));
        ctx.fillRect(x, y, w, h);
      }
      ctx.globalAlpha = 1;
    }),
  );
  ctx.strokeStyle = colour("line");
  ctx.strokeRect(a.left + 0.5, a.top + 0.5, a.right - a.left, a.bottom - a.top);
  ctx.restore();
}

function Scale({ most }: { most: number }) {
  return (
    <ul class="legend">
      <li><span>0</span> <span class="ramp" aria-hidden="true" /> <span>{number(most)}</span> <span>standard deviation of reward in a group</span></li>
      <li><span class="cell hatched" aria-hidden="true" /> all equal: no gradient</li>
      <li><span class="cell" aria-hidden="true" /> no data</li>
    </ul>
  );
}
