/** P1: reward and gold, over steps or over KL distance from the reference. */
import { useMemo, useState } from "preact/hooks";
import { cursor, useShared } from "../shared";
import { number } from "../format";
import type { Lane, Mark, Number, ProxyGoldPanel as Truth } from "../types";
import { abandoned, look, lined, sign } from "./marks";
import { Choice, Frame, type Item, type Width } from "./frame";
import { columnsOf, flags, nearest, PanelLegend, pointsOf } from "./index";
import { colour, FONT, shape, styles, type Style } from "./palette";
import { Steps, type Paint, type Pooled } from "./steps";
import { stroke, type Area } from "./canvas";
import { XY, type Path } from "./xy";

type Over = "step" | "root_kl";
const POINTS = 24; // of the mean over stretches
const STRIP = 0.13; // of the height, for the count of labels

export function TruthPlot({ truth, marks, lanes, span, height, wide = "two" }: { wide?: Width; truth: Truth; marks: Mark[]; lanes: Lane[]; span: { from: number; to: number } | null; height: number }) {
  const [over, setOver] = useState<Over>("step");
  const gold = truth.lines.findIndex((line) => line.role === "gold");
  const [single, setSingle] = useState(false);
  const pool = useMemo(() => pooled(truth), [truth]);
  const used = single ? null : pool;
  const loose = single && pool !== null;
  const far = truth.root_kl.some((v) => v !== null);
  const most = Math.max(0, ...truth.labels);
  const extra: Item[] = [
    ...(gold >= 0 ? [{ label: used ? `${used.each} labels or more, 95 % interval` : "one step, 95 % interval", sign: { kind: "mark" as const, token: "gold", shape: "disc" as const } }] : []),
    ...(truth.peak ? [{ label: `gold peak, step ${truth.peak.step}`, sign: { kind: "mark" as const, token: "gold", shape: "diamond" as const } }] : []),
    ...(truth.checkpoints.length ? [{ label: "checkpoint", sign: { kind: "mark" as const, token: "text", shape: "ring" as const } }] : []),
    ...(truth.checkpoints.some((c) => c.best) ? [{ label: "best", sign: { kind: "mark" as const, token: "text", shape: "best" as const } }] : []),
    ...(over === "root_kl" && truth.steps.length >= 2 * POINTS ? [{ label: "thick: mean of a stretch", sign: { kind: "line" as const, style: { token: "proxy", dash: [], width: 2.4 } } }] : []),
    ...(over === "root_kl" && truth.forecast?.root_kl.length ? [{ label: "forecast", sign: { kind: "line" as const, style: FORECAST } }] : []),
    ...(most > 0 ? [{ label: `labels a step, at most ${most}`, sign: { kind: "mark" as const, token: "grey", shape: "bar" as const } }] : []),
    ...flags(truth),
  ];
  const tools = (
    <>
      {pool && <Choice label="Points of gold" value={single ? "single" : "pooled"} options={[["pooled", "pooled"], ["single", "each step"]]} onChange={(v) => setSingle(v === "single")} />}
      {far && <Choice label="Horizontal axis" value={over} options={[["step", "step"], ["root_kl", "√KL"]]} onChange={setOver} />}
    </>
  );
  const table = () => [
    ...columnsOf(truth), { name: "√KL", values: truth.root_kl },
    ...(most > 0 ? [{ name: "labels", values: truth.labels }] : []),
  ];
  return (
    <Frame
      wide={wide} title={truth.title} sentence={truth.sentence} left={truth.left} right={truth.right} empty={truth.empty} tools={tools} table={table}
      legend={<PanelLegend panel={truth} extra={extra} instead={used ? { line: gold, ...used } : undefined} />} note={<>{pointsOf(truth)}{truth.forecast && <span class="forecast"> {truth.forecast.sentence}</span>}</>}
    >
      {over === "step" ? (
        <Steps
          panel={truth} marks={marks} lanes={lanes} span={span} height={height} zoomable signs strip={most > 0 ? STRIP : 0} pale={gold < 0} pooled={used} loose={loose}
          under={counts(truth, most)} over={saved(truth, gold)}
        />
      ) : (
        <OverDistance truth={truth} marks={marks} lanes={lanes} height={height} gold={gold} most={most} pool={used} loose={loose} />
      )}
    </Frame>
  );
}

type Pool = Pooled & { root_kl: (number | null)[] };

function pooled({ pooled: told }: Truth): Pool | null {
  const drawn = (values: Number[]) => values.map((v) => v ?? NaN);
  return told?.steps.length ? { ...told, values: drawn(told.gold), low: drawn(told.low), high: drawn(told.high), each: Math.min(...told.labels) } : null;
}

const FORECAST: Style = { token: "gold", dash: [2, 3], width: 1.5 };

/** How many labels stand behind each step, as bars at the foot. */
function counts(truth: Truth, most: number): Paint {
  return (u, ctx, unit) => {
    if (!most) return;
    const foot = u.bbox.top + u.bbox.height;
    const tall = u.bbox.height * (STRIP - 0.03);
    ctx.fillStyle = colour("grey");
    const wide = Math.max(unit, Math.min(6 * unit, u.bbox.width / truth.steps.length - unit));
    truth.steps.forEach((step, k) => {
      const high = ((truth.labels[k] ?? 0) / most) * tall;
      if (high > 0) ctx.fillRect(u.valToPos(step, "x", true) - wide / 2, foot - high, wide, high);
    });
  };
}

/** Gold's peak and the checkpoints; without gold, the word for it across the plot. */
function saved(truth: Truth, gold: number): Paint {
  return (u, ctx, unit) => {
    if (gold < 0) {
      ctx.fillStyle = colour("blind");
      ctx.font = `600 ${FONT.replace("11px", `${15 * unit}px`)}`;
      ctx.textAlign = "center";
      ctx.textBaseline = "middle";
      ctx.fillText("no gold: BLIND", u.bbox.left + u.bbox.width / 2, u.bbox.top + u.bbox.height / 2);
      return;
    }
    const axis = truth.lines[gold]?.axis ?? "left";
    for (const { step, gold: level, best } of truth.checkpoints) {
      if (level !== null) circle(ctx, u.valToPos(step, "x", true), u.valToPos(level, axis, true), best, unit);
    }
    if (truth.peak) diamond(ctx, u.valToPos(truth.peak.step, "x", true), u.valToPos(truth.peak.gold ?? NaN, axis, true), unit);
  };
}

function circle(ctx: CanvasRenderingContext2D, x: number, y: number, best: boolean, unit: number): void {
  ctx.strokeStyle = ctx.fillStyle = colour("text");
  ctx.lineWidth = 1.4 * unit;
  shape(ctx, "ring", x, y, (best ? 5 : 3.6) * unit);
  ctx.stroke();
  if (!best) return;
  shape(ctx, "circle", x, y, 2.6 * unit);
  ctx.fill();
}

function diamond(ctx: CanvasRenderingContext2D, x: number, y: number, unit: number): void {
  ctx.strokeStyle = colour("gold");
  ctx.fillStyle = colour("ground");
  ctx.lineWidth = 2 * unit;
  shape(ctx, "diamond", x, y, 4.6 * unit);
  ctx.fill();
  ctx.stroke();
}

function OverDistance({ truth, marks, lanes, height, gold, most, pool, loose }: { truth: Truth; marks: Mark[]; lanes: Lane[]; height: number; gold: number; most: number; pool: Pool | null; loose: boolean }) {
  const step = useShared(cursor);
  const looks = styles(truth.lines);
  const paths: Path[] = [];
  const at: (number[] | null)[] = []; // steps behind the points of each path
  truth.lines.forEach((line, k) => {
    const base = { label: line.label, axis: line.axis, style: looks[k] as Style };
    if (line.role === "gold") {
      paths.push(pool ? { ...base, x: pool.root_kl, y: pool.values, low: pool.low, high: pool.high, bars: true } : { ...base, x: truth.root_kl, y: line.values, low: line.low, high: line.high, bars: true, loose });
      at.push(pool ? pool.steps : truth.steps);
      return;
    }
    // Distance trembles as much as the reward does: the path itself is a tangle, its mean over stretches is not.
    const means = stretches(truth, line.values);
    paths.push({ ...base, x: truth.root_kl, y: line.values, faint: !!means });
    at.push(truth.steps);
    if (!means) return;
    paths.push({ ...base, label: `${line.label}, mean of ${means.each} steps`, x: means.x, y: means.y });
    at.push(means.steps);
  });
  const stepOf = (path: number, row: number) => at[path]?.[row];
  const axis = truth.lines[gold]?.axis ?? "left";
  const ahead = truth.forecast;
  if (ahead?.root_kl.length) paths.push({ label: "forecast", x: ahead.root_kl, y: ahead.gold, low: ahead.low, high: ahead.high, axis, style: FORECAST });
  const draw = (ctx: CanvasRenderingContext2D, a: Area) => {
    const y = axis === "right" ? a.right_y : a.y;
    bars(ctx, a, truth, most, 0.1 * height);
    if (ahead?.peak != null) {
      ctx.strokeStyle = colour("gold");
      ctx.setLineDash([2, 3]);
      stroke(ctx, a.x(ahead.peak), a.top, a.x(ahead.peak), a.bottom);
      ctx.setLineDash([]);
    }
    for (const c of truth.checkpoints) if (c.root_kl !== null && c.gold !== null) circle(ctx, a.x(c.root_kl), y(c.gold), c.best, 1);
    if (truth.peak && truth.peak.root_kl !== null) diamond(ctx, a.x(truth.peak.root_kl), y(truth.peak.gold ?? NaN), 1);
    // Over distance an alarm is a point on the path.
    for (const mark of lined(marks)) {
      const row = nearest(truth.steps, mark.step);
      const [x, value] = [truth.root_kl[row], truth.lines[0]?.values[row]];
      if (abandoned(mark, lanes) || x == null || value == null) continue;
      sign(ctx, mark, look(mark, lanes).token, a.x(x), (truth.lines[0]?.axis === "right" ? a.right_y : a.y)(value), 1);
    }
    const row = nearest(truth.steps, step);
    const x = truth.root_kl[row];
    if (x == null) return;
    ctx.strokeStyle = colour("faint");
    ctx.lineWidth = 1;
    stroke(ctx, a.x(x), a.top, a.x(x), a.bottom);
  };
  return (
    <XY
      paths={paths} height={height} x="√KL from the reference (root nats); the path runs in step order" from={0} strip={most > 0 ? 0.13 * height : 0} over={draw}
      onPoint={(path, row) => at[path] && cursor.set(stepOf(path, row) ?? null)}
      said={(path, row) => `${at[path] ? `step ${stepOf(path, row)}` : "forecast"}: √KL ${number(paths[path]?.x[row])}, ${paths[path]?.label} ${number(paths[path]?.y[row])}`}
    />
  );
}

function bars(ctx: CanvasRenderingContext2D, a: Area, truth: Truth, most: number, tall: number): void {
  if (!most) return;
  ctx.fillStyle = colour("grey");
  truth.root_kl.forEach((x, k) => {
    const high = ((truth.labels[k] ?? 0) / most) * tall;
    if (x !== null && high > 0) ctx.fillRect(a.x(x) - 1, a.bottom - high, 2, high);
  });
}

/** The mean of a line and of the distance over stretches of steps, if there are many. */
function stretches(truth: Truth, values: (number | null)[]): { x: number[]; y: number[]; steps: number[]; each: number } | null {
  const rows = truth.steps.map((_, k) => k).filter((k) => truth.root_kl[k] !== null && values[k] !== null);
  if (rows.length < 2 * POINTS) return null;
  const each = Math.ceil(rows.length / POINTS);
  const told = { x: [] as number[], y: [] as number[], steps: [] as number[], each };
  for (let k = 0; k < rows.length; k += each) {
    const part = rows.slice(k, k + each);
    const mean = (of: (row: number) => number) => part.reduce((sum, row) => sum + of(row), 0) / part.length;
    told.x.push(mean((row) => truth.root_kl[row] as number));
    told.y.push(mean((row) => values[row] as number));
    told.steps.push(truth.steps[part[part.length >> 1] as number] as number);
  }
  return told;
}
