/** P3: reward or gold against length. A box drawn on it opens the rollouts inside. */
import { useRef, useState } from "preact/hooks";
import { number } from "../format";
import { link } from "../route";
import { range, useSource } from "../shared";
import type { Geometry, Scatter } from "../types";
import { axes, Canvas, type Area } from "./canvas";
import { Choice, Frame, Legend, type Item } from "./frame";
import { colour, shape, type Shape } from "./palette";
import { ends } from "./scale";

const ERAS: { token: string; shape: Shape; sign: "ring" | "triangle" | "square" | "diamond" }[] = [
  { token: "proxy", shape: "ring", sign: "ring" },
  { token: "series-5", shape: "triangle", sign: "triangle" },
  { token: "series-4", shape: "square", sign: "square" },
  { token: "series-3", shape: "diamond", sign: "diamond" },
];
const era = (k: number) => ERAS[k % ERAS.length] as (typeof ERAS)[number];

export function ScatterPlot({ geometry, run, height }: { geometry: Geometry; run: string; height: number }) {
  const [what, setWhat] = useState<"reward" | "gold">("reward");
  const [near, setNear] = useState<[number, number] | null>(null);
  const { live } = useSource();
  const area = useRef<Area | null>(null);
  const told: Scatter = what === "gold" ? geometry.gold_scatter : geometry.scatter;
  const across = ends(told.eras.flatMap((e) => e.x)) ?? [0, 1];
  const up = ends([...told.eras.flatMap((e) => e.y), ...told.medians.flatMap((m) => m.y)]) ?? [0, 1];
  const find = (px: number, py: number): [number, number] | null => {
    const a = area.current;
    let best: [number, number] | null = null;
    let least = 12 ** 2;
    if (a) told.eras.forEach((e, k) => e.x.forEach((x, row) => {
      const far = (a.x(x) - px) ** 2 + (a.y(e.y[row] as number) - py) ** 2;
      if (far < least) (least = far), (best = [k, row]);
    }));
    return best;
  };
  const steps = { from: range.value?.from, to: range.value?.to };
  const open = (x0: number, y0: number, x1: number, y1: number) => {
    const a = area.current;
    if (!a || !live) return;
    const [low, high] = [Math.min(a.up(y0), a.up(y1)), Math.max(a.up(y0), a.up(y1))].map((v) => Number(v.toPrecision(4)));
    const [short, long] = [Math.floor(Math.min(a.back(x0), a.back(x1))), Math.ceil(Math.max(a.back(x0), a.back(x1)))];
    location.hash = link("rollouts", run, { ...steps, length_min: Math.max(0, short), length_max: long, [`${what}_min`]: low, [`${what}_max`]: high });
  };
  const e = near && told.eras[near[0]];
  const items: Item[] = told.eras.map((one, k) => ({ label: `${one.label} (${one.x.length})`, sign: { kind: "mark", token: era(k).token, shape: era(k).sign } }));
  if (told.medians.length) items.push({ label: "median in a bin", sign: { kind: "line", style: { token: "text", dash: [], width: 2.2 } } });
  const tools = (
    <>
      <Choice label="Vertical axis" value={what} options={[["reward", "reward"], ["gold", "gold"]]} onChange={(v) => (setNear(null), setWhat(v))} />
    </>
  );
  const empty = what === "reward" && told.empty ? told.empty : "";
  return (
    <Frame
      title={geometry.scatter.title} sentence={told.sentence} left={told.y} tools={tools} empty={empty} legend={told.empty ? undefined : <Legend items={items} />}
      note={live && !told.empty && <>Draw a box to read what is in it, or <a href={link("rollouts", run, { ...steps, sort: "length", order: "down" })}>open the longest</a>.</>}
      table={told.empty ? undefined : () => [
        { name: "era", values: told.eras.flatMap((one) => one.x.map(() => one.label)) },
        { name: told.x, values: told.eras.flatMap((one) => one.x) },
        { name: told.y, values: told.eras.flatMap((one) => one.y) },
      ]}
    >
      {told.empty ? <p class="nothing">{told.empty}</p> : (
        <Canvas
          height={height}
          onDrag={live ? open : undefined}
          onMove={(x, y) => setNear(find(x, y))}
          onLeave={() => setNear(null)}
          onClick={(x, y) => {
            const hit = live && find(x, y);
            const id = hit && told.eras[hit[0]]?.ids[hit[1]];
            if (id) location.hash = link("rollouts", run, { id });
          }}
          draw={(ctx, w, h) => {
            const a = axes(ctx, w, h, { x: across, y: up, xTitle: told.x, whole: true });
            area.current = a;
            dots(ctx, a, told);
            medians(ctx, a, told);
            if (!near || !e) return;
            ctx.strokeStyle = colour("text");
            ctx.lineWidth = 1.5;
            shape(ctx, "ring", a.x(e.x[near[1]] as number), a.y(e.y[near[1]] as number), 5);
            ctx.stroke();
          }}
        />
      )}
      {!told.empty && <p class="readout">{near && e ? `${e.label}: ${number(e.x[near[1]])} tokens, ${what} ${number(e.y[near[1]])}${live ? "; click to read it" : ""}` : " "}</p>}
    </Frame>
  );
}

function dots(ctx: CanvasRenderingContext2D, a: Area, told: Scatter): void {
  ctx.save();
  ctx.globalAlpha = 0.5;
  ctx.lineWidth = 1;
  const most = Math.max(0, ...told.eras.map((e) => e.x.length));
  const size = most > 600 ? 2 : 2.6;
  // The eras take turns, so that the last does not hide the first.
  for (let row = 0; row < most; row++) {
    told.eras.forEach((one, k) => {
      if (row >= one.x.length) return;
      ctx.strokeStyle = ctx.fillStyle = colour(era(k).token);
      shape(ctx, era(k).shape, a.x(one.x[row] as number), a.y(one.y[row] as number), size);
      era(k).shape === "triangle" ? ctx.fill() : ctx.stroke();
    });
  }
  ctx.restore();
}

function medians(ctx: CanvasRenderingContext2D, a: Area, told: Scatter): void {
  ctx.save();
  for (const median of told.medians) {
    for (const [token, width] of [["ground", 5], [era(median.era).token, 2.2]] as const) {
      ctx.strokeStyle = colour(token);
      ctx.lineWidth = width;
      ctx.setLineDash(median.era % 2 ? [7, 4] : []); // where two lie on each other both are seen
      ctx.beginPath();
      median.x.forEach((x, k) => ctx.lineTo(a.x(x ?? NaN), a.y(median.y[k] ?? NaN))); // NaN is not drawn
      ctx.stroke();
    }
    ctx.setLineDash([]);
    ctx.fillStyle = colour(era(median.era).token);
    ctx.strokeStyle = colour("ground");
    ctx.lineWidth = 1;
    median.x.forEach((x, k) => {
      shape(ctx, era(median.era).shape, a.x(x ?? NaN), a.y(median.y[k] ?? NaN), 4.2);
      ctx.fill();
      ctx.stroke();
    });
  }
  ctx.restore();
}
