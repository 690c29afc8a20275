/** Lines over any x, drawn in the order they come: distance from the reference goes back and forth, and uPlot wants x
 * to grow. */
import { useRef, useState } from "preact/hooks";
import { number } from "../format";
import { visible } from "../text";
import type { Number } from "../types";
import { axes, Canvas, stroke, type Area } from "./canvas";
import { colour, shape, type Style } from "./palette";
import { ends } from "./scale";
import { trail } from "./steps";

export interface Path {
  label: string;
  x: Number[];
  y: Number[];
  low?: Number[];
  high?: Number[];
  bars?: boolean; // intervals as bars on points, not as a band
  axis?: "left" | "right";
  loose?: boolean; // points that are not joined
  faint?: boolean; // the raw line behind a mean
  style: Style;
}
export interface Rule {
  y: number;
  text: string;
  token: string;
  dash: number[];
  end?: boolean; // its words stand at the right
}
export interface XYProps {
  paths: Path[];
  height: number;
  x: string; // title
  whole?: boolean;
  rules?: Rule[];
  from?: number; // where x begins, if not at the least
  reach?: Number[]; // values the left scale must hold
  strip?: number;
  names?: { at: number; text: string }[]; // instead of ticks on the left
  over?: (ctx: CanvasRenderingContext2D, area: Area) => void;
  said?: (path: number, row: number) => string; // of the point under the pointer
  onPoint?: (path: number, row: number) => void;
}

export function XY({ paths, height, x, whole, rules = [], from, reach = [], strip, names, over, said, onPoint }: XYProps) {
  const area = useRef<Area | null>(null);
  const [near, setNear] = useState<[number, number] | null>(null);
  const side = (name: "left" | "right") => paths.filter((p) => (p.axis ?? "left") === name);
  const reaches = (name: "left" | "right") => {
    const held = side(name);
    const core = ends([...held.flatMap((p) => p.y), ...(name === "left" ? [...rules.map((r) => r.y), ...reach] : [])], 0);
    if (!core) return null;
    const room = core[1] - core[0];
    const bound = (v: Number) => (v === null ? null : Math.min(Math.max(v, core[0] - room / 2), core[1] + room / 2));
    return ends([...core, ...held.flatMap((p) => [...(p.low ?? []), ...(p.high ?? [])]).map(bound)]);
  };
  const across = ends([...paths.flatMap((p) => p.x), from], 0.02) ?? [0, 1];
  const [left, right] = [reaches("left"), reaches("right")];
  const find = (px: number, py: number): [number, number] | null => {
    const a = area.current;
    if (!a) return null;
    let best: [number, number] | null = null;
    let least = 40 ** 2;
    paths.forEach((path, p) =>
      !path.faint && path.x.forEach((v, row) => {
        const value = path.y[row];
        if (v === null || value === null || value === undefined) return;
        const far = (a.x(v) - px) ** 2 + ((path.axis === "right" ? a.right_y : a.y)(value) - py) ** 2;
        if (far < least) (least = far), (best = [p, row]);
      }),
    );
    return best;
  };
  const path = near && paths[near[0]];
  const text = near && path && (said?.(near[0], near[1]) ?? `${path.label}: ${number(path.y[near[1]], "–", 4)} at ${number(path.x[near[1]], "–", 4)}`);
  return (
    <>
      <Canvas
        height={height}
        onMove={(px, py) => {
          const found = find(px, py);
          setNear(found);
          if (found) onPoint?.(found[0], found[1]);
        }}
        onLeave={() => setNear(null)}
        draw={(ctx, w, h) => {
          const a = axes(ctx, w, h, { x: across, y: left ?? right ?? [0, 1], right: left ? right : null, xTitle: x, whole, strip, names });
          area.current = a;
          ctx.save();
          ctx.beginPath();
          ctx.rect(a.left - 4, 0, a.right - a.left + 8, a.bottom);
          ctx.clip();
          for (const rule of rules) drawRule(ctx, a, { ...rule, text: "" });
          for (const one of paths) drawPath(ctx, a, one);
          for (const rule of rules) drawRule(ctx, a, rule); // its words lie on top
          over?.(ctx, a);
          if (near && path) {
            const y = path.axis === "right" ? a.right_y : a.y;
            ctx.strokeStyle = colour("text");
            ctx.lineWidth = 1.5;
            shape(ctx, "ring", a.x(path.x[near[1]] as number), y(path.y[near[1]] as number), 5);
            ctx.stroke();
          }
          ctx.restore();
        }}
      />
      <p class="readout" aria-hidden="true">{text ? visible(text) : " "}</p>
    </>
  );
}

function drawRule(ctx: CanvasRenderingContext2D, a: Area, { y, text, token, dash, end }: Rule): void {
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour(token);
  ctx.setLineDash(dash);
  ctx.lineWidth = 1.3;
  if (!text) {
    stroke(ctx, a.left, a.y(y), a.right, a.y(y));
    return ctx.restore();
  }
  ctx.textAlign = end ? "right" : "left";
  ctx.textBaseline = a.y(y) > a.top + 16 ? "bottom" : "top";
  ctx.fillText(text, end ? a.right - 4 : a.left + 4, a.y(y) + (ctx.textBaseline === "bottom" ? -2 : 3));
  ctx.restore();
}

function drawPath(ctx: CanvasRenderingContext2D, a: Area, path: Path): void {
  const y = path.axis === "right" ? a.right_y : a.y;
  const place = (values: Number[], at: (v: number) => number) => values.map((v) => (v === null ? null : at(v)));
  const [px, py] = [place(path.x, a.x), place(path.y, y)];
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour(path.style.token);
  if (path.low && path.high) {
    const [low, high] = [place(path.low, y), place(path.high, y)];
    const crowded = path.x.length > (a.right - a.left) / 5;
    ctx.globalAlpha = path.bars ? (crowded ? 0.15 : 0.5) : 0.16;
    if (path.bars) px.forEach((x, k) => x !== null && low[k] != null && high[k] != null && stroke(ctx, x, low[k] as number, x, high[k] as number));
    else band(ctx, px, low, high);
    ctx.globalAlpha = 1;
    if (path.bars) {
      ctx.globalAlpha = crowded ? 0.6 : 1;
      px.forEach((x, k) => {
        if (x === null || py[k] == null) return;
        shape(ctx, "circle", x, py[k] as number, crowded ? 1.5 : 2.3);
        ctx.fill();
      });
      ctx.globalAlpha = 1;
    }
  }
  ctx.lineWidth = path.faint ? 0.8 : path.style.width;
  ctx.globalAlpha = path.faint ? 0.35 : 1;
  ctx.setLineDash(path.style.dash);
  // Where gold was not asked for there is no gap in the path: its points say where it was.
  if (path.loose) {
    // Its points are drawn.
  } else if (path.bars) {
    const rows = px.map((_, k) => k).filter((k) => px[k] !== null && py[k] != null);
    trail(ctx, rows.map((k) => px[k] as number), rows.map((k) => py[k] as number));
  } else trail(ctx, px, py);
  ctx.setLineDash([]);
  if (px.filter((x, k) => x !== null && py[k] != null).length === 1) {
    px.forEach((x, k) => x !== null && py[k] != null && (shape(ctx, "circle", x, py[k] as number, 3), ctx.fill()));
  }
  ctx.restore();
}

/** One quad for each pair of neighbours, all wound the same way: a path that turns back keeps an even tint. */
export function band(ctx: CanvasRenderingContext2D, x: (number | null)[], low: (number | null)[], high: (number | null)[]): void {
  const rows = x.map((_, k) => k).filter((k) => x[k] !== null && low[k] != null && high[k] != null);
  ctx.beginPath();
  for (let k = 1; k < rows.length; k++) {
    let [a, b] = [rows[k - 1] as number, rows[k] as number];
    if ((x[a] as number) > (x[b] as number)) [a, b] = [b, a];
    ctx.moveTo(x[a] as number, high[a] as number);
    ctx.lineTo(x[b] as number, high[b] as number);
    ctx.lineTo(x[b] as number, low[b] as number);
    ctx.lineTo(x[a] as number, low[a] as number);
    ctx.closePath();
  }
  ctx.fill();
}
