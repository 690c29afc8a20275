/** A plot over steps, by uPlot: lines with their intervals, abandoned branches, values that are no numbers, marks, and
 * one cursor shared with every other plot over steps. */
import { useContext, useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import "./charts.css";
import { cursor } from "../shared";
import type { Lane, Mark, Number, Panel } from "../types";
import { Drawn } from "./frame";
import { apart, lined, look, sign } from "./marks";
import { colour, FONT, scheme, shape, styles, type Style } from "./palette";
import { ends, logTicks, tickText, ticks } from "./scale";
import { zoom } from "./zoom";

/** Gold of neighbouring steps together, where single steps have too few labels to show anything. */
export interface Pooled {
  steps: number[];
  values: number[];
  low: number[];
  high: number[];
  each: number; // labels behind a point, at least
}
export type Paint = (u: uPlot, ctx: CanvasRenderingContext2D, unit: number) => void;

export interface StepsProps {
  panel: Panel;
  marks: Mark[];
  lanes: Lane[];
  height: number; // at least; a taller card is filled
  only?: number; // draw this line alone
  bare?: boolean; // no x axis: another plot below has it
  span?: { from: number; to: number } | null; // of x; absent: what the data covers
  zoomable?: boolean;
  under?: Paint; // below the lines
  over?: Paint;
  reach?: Number[]; // values the left scale must hold besides the lines
  strip?: number; // share of the height kept free at the bottom
  signs?: boolean; // of the marks, above the plot
  pale?: boolean; // lines in grey
  gutter?: number; // pixels of the left axis, so that plots above each other line up
  loose?: boolean; // gold's points are not joined: so few labels each that a line would be noise
  pooled?: Pooled | null; // drawn as gold's line instead of its single steps
}

export function Steps(props: StepsProps) {
  const box = useRef<HTMLDivElement>(null);
  const made = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const seen = useContext(Drawn);
  const { panel, height, only } = props;
  const shape = JSON.stringify([
    only === undefined ? panel.lines.map((l) => [l.name, l.axis, l.role]) : only, panel.log, height, props.bare, props.zoomable, !!props.signs,
  ]);
  useEffect(() => {
    const place = box.current;
    if (!place) return;
    const u = build(place, latest, seen);
    made.current = u;
    const sized = new ResizeObserver(() => {
      const [width, tall] = [place.clientWidth, place.clientHeight];
      if (width && tall && (width !== u.width || tall !== u.height)) u.setSize({ width, height: tall });
    });
    sized.observe(place);
    const watches = [cursor.watch((step) => follow(u, step)), scheme.watch(() => u.redraw(false, true))];
    return () => {
      sized.disconnect();
      for (const unwatch of watches) unwatch();
      made.current = null;
      u.destroy();
    };
  }, [shape]);
  useEffect(() => made.current?.setData(data(props)), [panel, only, props.span?.from, props.span?.to, props.pale, props.pooled, props.loose]);
  useEffect(() => made.current?.redraw(false, true), [props.marks]);
  return <div ref={box} class="steps" style={{ minHeight: `${height}px` }} />;
}

function shown(props: StepsProps): number[] {
  return props.only === undefined ? props.panel.lines.map((_, k) => k) : [props.only];
}

function data(props: StepsProps): uPlot.AlignedData {
  const { panel } = props;
  const rows = shown(props).map((k) => {
    const line = panel.lines[k];
    const values = line?.values ?? [];
    return panel.log && line?.axis === "left" ? values.map((v) => (v !== null && v > 0 ? v : null)) : values;
  });
  return [panel.steps, ...rows] as uPlot.AlignedData;
}

type Latest = { current: StepsProps };

function build(place: HTMLElement, latest: Latest, seen: () => void): uPlot {
  const props = latest.current;
  const { panel } = props;
  const lines = shown(props);
  const looks = styles(panel.lines);
  const has = (axis: "left" | "right") => lines.some((k) => panel.lines[k]?.axis === axis);
  const grid = { stroke: () => colour("line"), width: 1 };
  const axis = (scale: string, side: 1 | 3): uPlot.Axis => ({
    scale, side, font: FONT, stroke: () => colour("faint"), gap: 4, ticks: { show: false },
    grid: side === 3 || !has("left") ? grid : { show: false },
    splits: (u, _k, min, max) => (scale === "left" && panel.log ? logTicks(min, max) : thinned(ticks(min, max, Math.max(2, Math.floor((u.height - 30) / 38))), (u.height - (props.bare ? 13 : 32)) / 16)),
    filter: (_u, splits) => splits,
    values: (_u, splits) => splits.map(tickText),
    size: (_u, values) => props.gutter ?? 10 + Math.ceil(6.3 * Math.max(2, ...(values ?? []).map((v) => String(v).length))),
  });
  const options: uPlot.Options = {
    width: place.clientWidth || 300,
    height: Math.max(place.clientHeight, props.height),
    padding: [props.signs ? 15 : 6, has("right") ? 0 : 12, props.bare ? 7 : 0, 0],
    legend: { show: false },
    scales: {
      x: { time: false, range: () => across(latest.current) },
      left: { distr: panel.log ? 3 : 1, range: () => limits(latest.current, "left") },
      right: { range: () => limits(latest.current, "right") },
    },
    axes: [
      {
        show: !props.bare, font: FONT, stroke: () => colour("faint"), size: 26, gap: 4, ticks: { size: 4, stroke: () => colour("line"), width: 1 },
        grid: { show: false },
        splits: (u, _k, min, max) => ticks(min, max, Math.max(2, Math.floor(u.width / 75)), true),
        filter: (_u, splits) => splits,
        values: (_u, splits) => splits.map((step, k) => (k === 0 ? `step ${tickText(step)}` : tickText(step))),
      },
      ...(has("left") ? [axis("left", 3)] : []),
      ...(has("right") ? [axis("right", has("left") ? 1 : 3)] : []),
    ],
    series: [{}, ...lines.map((k) => series(latest, k, looks[k] as Style))],
    cursor: {
      y: false,
      points: { size: 6 },
      drag: { x: !!props.zoomable, y: false, setScale: false, dist: 6 },
      bind: { dblclick: () => () => (props.zoomable && zoom(null), null) },
    },
    hooks: {
      drawAxes: [(u) => clipped(u, latest, under)],
      draw: [(u) => clipped(u, latest, over, 6), (u) => latest.current.signs && signs(u, latest.current), seen],
      setCursor: [(u) => cursor.set(u.cursor.idx === null || u.cursor.idx === undefined || (u.cursor.left ?? -1) < 0 ? null : (u.data[0][u.cursor.idx] ?? null))],
      setSelect: [
        (u) => {
          if (u.select.width < 5) return;
          zoom({ from: u.posToVal(u.select.left, "x"), to: u.posToVal(u.select.left + u.select.width, "x") });
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
  return new uPlot(options, data(props), place);
}

/** No more ticks than their numbers have room for, and never fewer than two. */
function thinned(found: number[], room: number): number[] {
  return found.length > Math.max(2, room) ? found.filter((_, k) => k % 2 === 0) : found;
}

function series(latest: Latest, k: number, style: Style): uPlot.Series {
  const line = latest.current.panel.lines[k];
  const steps = uPlot.paths.stepped?.({ align: 1 });
  return {
    scale: line?.axis ?? "left",
    stroke: () => (line?.role === "gold" && (latest.current.pooled || latest.current.loose) ? "transparent" : colour(latest.current.pale ? "grey" : style.token)),
    width: line?.axis === "right" && line.role === "plain" ? 1.1 : style.width,
    dash: style.dash,
    points: { show: (u) => line?.role !== "gold" && sparse(u, k, latest.current), size: 5 },
    spanGaps: line?.role === "gold", // gold is bought now and then; its points say when
    ...(line?.role === "beta" && steps ? { paths: steps } : {}),
  };
}

/** Too few points to see as a line. */
function sparse(u: uPlot, k: number, props: StepsProps): boolean {
  const known = props.panel.lines[k]?.values.filter((v) => v !== null).length ?? 0;
  return known > 0 && known <= 1 + u.bbox.width / uPlot.pxRatio / 40;
}

function across(props: StepsProps): [number, number] {
  const { steps } = props.panel;
  const from = props.span?.from ?? steps[0] ?? 0;
  const to = props.span?.to ?? steps[steps.length - 1] ?? 1;
  return to > from ? [from, to] : [from - 0.5, from + 0.5];
}

function limits(props: StepsProps, side: "left" | "right"): [number, number] {
  const { panel } = props;
  const lines = shown(props).map((k) => panel.lines[k]).filter((line) => line?.axis === side);
  const [from, to] = across(props);
  const inside = (values: Number[] | undefined) => (values ?? []).filter((_, k) => (panel.steps[k] ?? 0) >= from && (panel.steps[k] ?? 0) <= to);
  const values = lines.flatMap((line) => inside(line?.values));
  for (const branch of panel.branches) {
    for (const k of shown(props)) if (panel.lines[k]?.axis === side) values.push(...(branch.values[k] ?? []).filter((_, row) => (branch.steps[row] ?? 0) >= from && (branch.steps[row] ?? 0) <= to));
  }
  if (side === "left" && props.reach) values.push(...props.reach);
  if (panel.log && side === "left") {
    const known = values.filter((v): v is number => v !== null && v > 0);
    if (!known.length) return [0.1, 1];
    const [low, high] = [Math.min(...known), Math.max(...known)];
    return low === high ? [low / 2, high * 2] : [low / 1.15, high * 1.15];
  }
  // Single steps of few labels lie at either end; where they are pooled, the scale is that of the pool.
  if (props.pooled && lines.length && lines.every((line) => line?.role === "gold")) values.splice(0, values.length, ...props.pooled.low, ...props.pooled.high);
  const core = ends(values, 0);
  if (!core) return [0, 1];
  // Intervals of few labels are wide: they may take as much room again as the values, not more.
  const room = core[1] - core[0];
  const bounds = props.pooled && lines.some((line) => line?.role === "gold") ? [] : lines.flatMap((line) => [...inside(line?.low), ...inside(line?.high)]);
  const held = bounds.map((v) => (v === null ? null : Math.min(Math.max(v, core[0] - room / 2), core[1] + room / 2)));
  let [low, high] = ends([...values, ...held]) ?? core;
  if (lines.some((line) => line?.role === "beta") && low > 0) low = 0;
  if (props.strip) low -= (props.strip / (1 - props.strip)) * (high - low);
  return [low, high];
}

function clipped(u: uPlot, latest: Latest, paint: (u: uPlot, props: StepsProps, unit: number) => void, beyond = 0): void {
  const { ctx, bbox } = u;
  const room = beyond * uPlot.pxRatio; // a mark on the edge stays whole
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left - room, bbox.top - room, bbox.width + 2 * room, bbox.height + room);
  ctx.clip();
  ctx.setLineDash([]);
  paint(u, latest.current, uPlot.pxRatio);
  ctx.restore();
}

/** Intervals, branches and the lines of marks. */
function under(u: uPlot, props: StepsProps, unit: number): void {
  const { ctx, bbox } = u;
  const { panel } = props;
  props.under?.(u, ctx, unit);
  const looks = styles(panel.lines);
  for (const k of shown(props)) {
    const line = panel.lines[k];
    if (!line?.low || !line.high || line.role === "gold") continue;
    ctx.fillStyle = colour(props.pale ? "grey" : (looks[k] as Style).token);
    ctx.globalAlpha = 0.16;
    ribbon(u, panel.steps, line.low, line.high, line.axis);
    ctx.globalAlpha = 1;
  }
  ctx.strokeStyle = colour("grey");
  ctx.lineWidth = 1.2 * unit;
  for (const branch of panel.branches) {
    for (const k of shown(props)) {
      const axis = panel.lines[k]?.axis ?? "left";
      if (panel.lines[k]?.role === "gold") continue; // labels of single steps, which as a line would be noise
      trail(ctx, branch.steps.map((s) => u.valToPos(s, "x", true)), (branch.values[k] ?? []).map((v) => (v === null || (panel.log && axis === "left" && v <= 0) ? null : u.valToPos(v, axis, true))));
    }
  }
  for (const mark of lined(props.marks)) {
    const { token, dash } = look(mark, props.lanes);
    const x = Math.round(u.valToPos(mark.step, "x", true)) + 0.5;
    ctx.strokeStyle = colour(token);
    ctx.lineWidth = (mark.kind === "alarm" ? 1.4 : 1) * unit;
    ctx.setLineDash(dash.map((d) => d * unit));
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.setLineDash([]);
}

/** Gold's points with their intervals, and values that are no numbers. */
function over(u: uPlot, props: StepsProps, unit: number): void {
  const { ctx, bbox } = u;
  const { panel } = props;
  for (const k of shown(props)) if (panel.lines[k]?.role === "gold") points(u, props, k, unit);
  props.over?.(u, ctx, unit);
  ctx.strokeStyle = ctx.fillStyle = colour("act");
  ctx.lineWidth = 1.6 * unit;
  for (const [k, step, flag] of panel.flagged) {
    if (!shown(props).includes(k)) continue;
    const x = u.valToPos(step, "x", true);
    const y = flag === "+inf" ? bbox.top + 8 * unit : bbox.top + bbox.height - 8 * unit;
    shape(ctx, flag === "nan" ? "cross" : flag === "+inf" ? "up" : "down", x, y, 4 * unit);
    flag === "nan" ? ctx.stroke() : ctx.fill();
  }
}

function points(u: uPlot, props: StepsProps, k: number, unit: number): void {
  const line = props.panel.lines[k];
  if (!line) return;
  const { ctx } = u;
  const { steps } = props.panel;
  const known = line.values.filter((v) => v !== null).length;
  const crowded = known > u.bbox.width / unit / 5;
  ctx.strokeStyle = ctx.fillStyle = colour("gold");
  ctx.lineWidth = unit;
  steps.forEach((step, row) => {
    const value = line.values[row];
    if (value === null || value === undefined) return;
    const x = u.valToPos(step, "x", true);
    const [low, high] = [line.low?.[row], line.high?.[row]];
    if (!props.pooled && low !== null && low !== undefined && high !== null && high !== undefined) {
      ctx.globalAlpha = crowded ? 0.18 : 0.5;
      ctx.beginPath();
      ctx.moveTo(x, u.valToPos(low, line.axis, true));
      ctx.lineTo(x, u.valToPos(high, line.axis, true));
      ctx.stroke();
    }
    ctx.globalAlpha = props.pooled ? 0.35 : crowded ? 0.6 : 1;
    shape(ctx, "circle", x, u.valToPos(value, line.axis, true), (crowded ? 1.5 : 2.3) * unit);
    ctx.fill();
  });
  ctx.globalAlpha = 1;
  if (props.pooled) together(u, props.pooled, line.axis, unit);
}

function together(u: uPlot, pooled: Pooled, axis: string, unit: number): void {
  const { ctx } = u;
  const [x, y] = [pooled.steps.map((s) => u.valToPos(s, "x", true)), pooled.values.map((v) => u.valToPos(v, axis, true))];
  ctx.lineWidth = 1.3 * unit;
  x.forEach((at, k) => {
    ctx.beginPath();
    ctx.moveTo(at, u.valToPos(pooled.low[k] as number, axis, true));
    ctx.lineTo(at, u.valToPos(pooled.high[k] as number, axis, true));
    ctx.stroke();
    shape(ctx, "circle", at, y[k] as number, 2.8 * unit);
    ctx.fill();
  });
  ctx.lineWidth = 1.8 * unit;
  ctx.setLineDash([6 * unit, 3 * unit]);
  trail(ctx, x, y);
  ctx.setLineDash([]);
}

function signs(u: uPlot, props: StepsProps): void {
  const unit = uPlot.pxRatio;
  const { ctx, bbox } = u;
  const [from, to] = across(props);
  const inside = lined(props.marks).filter((mark) => mark.step >= from && mark.step <= to);
  const place = (step: number) => u.valToPos(step, "x", true);
  for (const mark of apart(inside, place, 12 * unit)) sign(ctx, mark, look(mark, props.lanes).token, place(mark.step), bbox.top - 8 * unit, unit);
}

/** The area between two lines, in the pieces in which both exist. */
export function ribbon(u: uPlot, steps: number[], low: Number[], high: Number[], axis: string): void {
  const { ctx } = u;
  let begin = 0;
  const fill = (end: number) => {
    if (end - begin < 2) return;
    ctx.beginPath();
    for (let k = begin; k < end; k++) ctx.lineTo(u.valToPos(steps[k] as number, "x", true), u.valToPos(high[k] as number, axis, true));
    for (let k = end - 1; k >= begin; k--) ctx.lineTo(u.valToPos(steps[k] as number, "x", true), u.valToPos(low[k] as number, axis, true));
    ctx.fill();
  };
  for (let k = 0; k <= steps.length; k++) {
    const whole = k < steps.length && low[k] !== null && low[k] !== undefined && high[k] !== null && high[k] !== undefined;
    if (whole) continue;
    fill(k);
    begin = k + 1;
  }
}

/** A line with a gap wherever something is missing. */
export function trail(ctx: CanvasRenderingContext2D, x: (number | null)[], y: (number | null)[]): void {
  ctx.beginPath();
  let down = false;
  x.forEach((at, k) => {
    const height = y[k];
    if (at === null || height === null || height === undefined) {
      down = false;
      return;
    }
    down ? ctx.lineTo(at, height) : ctx.moveTo(at, height);
    down = true;
  });
  ctx.stroke();
}

function follow(u: uPlot, step: number | null): void {
  if (u.cursor.idx !== null && u.cursor.idx !== undefined && u.data[0][u.cursor.idx] === step) return;
  u.setCursor(step === null ? { left: -10, top: -10 } : { left: u.valToPos(step, "x"), top: 0 }, false);
}
