/** Colours, dashes and shapes of plots. Colours are the page's own tokens, read when something is drawn, so that a
 * change of scheme needs only a redraw; a dash or a shape always says the same as the colour. */
import { Shared } from "../shared";
import type { Line } from "../types";

const known = new Map<string, string>();
/** Counts up when the reader's colour scheme changes. */
export const scheme = new Shared(0);
const changed = () => {
  known.clear();
  scheme.set(scheme.value + 1);
};
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
// Paper is light, whatever the screen is.
for (const [event, paper] of [["beforeprint", true], ["afterprint", false]] as const) {
  addEventListener(event, () => {
    document.documentElement.classList.toggle("paper", paper);
    changed();
  });
}

export function colour(token: string): string {
  let found = known.get(token);
  if (!found) {
    found = getComputedStyle(document.documentElement).getPropertyValue(`--${token}`).trim();
    known.set(token, found);
  }
  return found;
}

export const FONT = '11px system-ui, "Segoe UI", "DejaVu Sans", sans-serif';

export interface Style {
  token: string;
  dash: number[];
  width: number;
}

const PLAIN: Style[] = [
  { token: "series-4", dash: [], width: 1.6 },
  { token: "series-3", dash: [7, 3], width: 1.6 },
  { token: "series-5", dash: [2, 2], width: 1.8 },
  { token: "series-6", dash: [9, 3, 2, 3], width: 1.6 },
  { token: "proxy", dash: [4, 3], width: 1.6 },
  { token: "gold", dash: [12, 4], width: 1.6 },
  { token: "faint", dash: [1, 3], width: 1.8 },
];

export function plain(place: number): Style {
  return PLAIN[place % PLAIN.length] as Style;
}

/** The looks of a panel's lines: proxy, gold and beta are the same in every plot. */
export function styles(lines: Line[]): Style[] {
  let place = 0;
  return lines.map((line) => {
    if (line.role === "proxy") return { token: "proxy", dash: [], width: 1.7 };
    if (line.role === "gold") return { token: "gold", dash: [6, 3], width: 1.7 };
    if (line.role === "beta") return { token: "text", dash: [1, 2], width: 1.5 };
    return plain(place++);
  });
}

/** Runs compared: the first two must differ as much as can be. */
export const RUNS: Style[] = [
  { token: "proxy", dash: [], width: 1.8 },
  { token: "gold", dash: [6, 3], width: 1.8 },
  { token: "series-3", dash: [2, 2], width: 1.8 },
  { token: "series-4", dash: [9, 3, 2, 3], width: 1.8 },
  { token: "series-5", dash: [12, 4], width: 1.8 },
  { token: "series-6", dash: [4, 3], width: 1.8 },
];

/** A fill that can be told from its neighbours without colour: lines in one of four directions over a pale ground. */
export function hatch(ctx: CanvasRenderingContext2D, token: string, kind: number, ratio: number): CanvasPattern | string {
  const size = 8;
  const tile = document.createElement("canvas");
  tile.width = tile.height = Math.round(size * ratio);
  const pen = tile.getContext("2d");
  if (!pen) return colour(token);
  pen.scale(ratio, ratio);
  pen.fillStyle = colour(token);
  pen.globalAlpha = 0.28;
  pen.fillRect(0, 0, size, size);
  pen.globalAlpha = 0.75;
  pen.strokeStyle = colour(token);
  pen.lineWidth = 1;
  pen.beginPath();
  const way = kind % 4;
  for (let k = -size; k <= size; k += size) {
    if (way === 1 || way === 3) (pen.moveTo(k, size), pen.lineTo(k + size, 0));
    if (way === 2 || way === 3) (pen.moveTo(k, 0), pen.lineTo(k + size, size));
  }
  pen.stroke();
  return ctx.createPattern(tile, "repeat") ?? colour(token);
}

export type Shape = "circle" | "ring" | "triangle" | "square" | "diamond" | "cross" | "up" | "down";

/** A mark around (x, y). `size` is its radius. */
export function shape(ctx: CanvasRenderingContext2D, kind: Shape, x: number, y: number, size: number): void {
  ctx.beginPath();
  if (kind === "circle" || kind === "ring") ctx.arc(x, y, size, 0, 2 * Math.PI);
  else if (kind === "square") ctx.rect(x - size * 0.85, y - size * 0.85, size * 1.7, size * 1.7);
  else if (kind === "diamond") polygon(ctx, [[x, y - size * 1.25], [x + size * 1.25, y], [x, y + size * 1.25], [x - size * 1.25, y]]);
  else if (kind === "triangle" || kind === "up") polygon(ctx, [[x, y - size * 1.15], [x + size * 1.1, y + size * 0.85], [x - size * 1.1, y + size * 0.85]]);
  else if (kind === "down") polygon(ctx, [[x, y + size * 1.15], [x + size * 1.1, y - size * 0.85], [x - size * 1.1, y - size * 0.85]]);
  else {
    ctx.moveTo(x - size, y - size);
    ctx.lineTo(x + size, y + size);
    ctx.moveTo(x + size, y - size);
    ctx.lineTo(x - size, y + size);
  }
}

function polygon(ctx: CanvasRenderingContext2D, points: [number, number][]): void {
  points.forEach(([x, y], k) => (k ? ctx.lineTo(x, y) : ctx.moveTo(x, y)));
  ctx.closePath();
}
