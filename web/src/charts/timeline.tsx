/** P7: the run as a whole, a lane for each attempt; dragging on it chooses the steps that the page shows. */
import { useEffect, useRef, useState } from "preact/hooks";
import { cursor, range, useShared } from "../shared";
import { visible } from "../text";
import type { Lane, Mark, Summary } from "../types";
import { Canvas, stroke } from "./canvas";
import { Frame, Legend, type Item } from "./frame";
import { abandoned, apart, look, sign } from "./marks";
import { colour } from "./palette";
import { tickText, ticks } from "./scale";
import { zoom } from "./zoom";

const TALL = 22;
const LEFT = 70;
const RIGHT = 16;
const KINDS: Record<Mark["kind"], Item> = {
  alarm: { label: "alarm", sign: { kind: "mark", token: "act", shape: "triangle" } },
  warning: { label: "warning", sign: { kind: "mark", token: "watch", shape: "ring" } },
  did: { label: "A: action", sign: { kind: "mark", token: "link", shape: "block" } },
  stop: { label: "stop", sign: { kind: "mark", token: "text", shape: "cross" } },
  checkpoint: { label: "checkpoint", sign: { kind: "mark", token: "faint", shape: "ring" } },
  segment: { label: "settings changed", sign: { kind: "line", style: { token: "grey", dash: [3, 4], width: 1 } } },
};

/** The first and last step of the whole run. */
export function extent(lanes: Lane[], step: number): { from: number; to: number } {
  const from = Math.min(...lanes.map((lane) => lane.first), Math.max(0, step));
  return { from, to: Math.max(...lanes.map((lane) => lane.last), step, from + 1) };
}

export function Timeline({ summary }: { summary: Summary }) {
  const { lanes, marks, live } = summary;
  const chosen = useShared(range);
  const step = useShared(cursor);
  const [near, setNear] = useState<Mark | null>(null);
  const place = useRef<(step: number) => number>(() => 0);
  const back = useRef<(px: number) => number>(() => 0);
  const { from, to } = extent(lanes, summary.step);
  const tall = TALL * lanes.length + 26;
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => event.key === "Escape" && range.value && zoom(null);
    document.addEventListener("keydown", pressed);
    return () => document.removeEventListener("keydown", pressed);
  }, []);
  const row = (mark: Mark) => lanes.findIndex((lane) => lane.attempt === mark.attempt);
  const sentence = told(summary);
  const kinds = (Object.keys(KINDS) as Mark["kind"][]).filter((kind) => marks.some((mark) => mark.kind === kind));
  return (
    <Frame
      title="Timeline" wide="all" sentence={sentence} tools={<Chooser from={from} to={to} />} legend={kinds.length ? <Legend items={kinds.map((kind) => KINDS[kind])} /> : undefined}
      table={marks.length ? () => [
        { name: "attempt", values: marks.map((m) => m.attempt) }, { name: "step", values: marks.map((m) => m.step) },
        { name: "what", values: marks.map((m) => m.kind) }, { name: "text", values: marks.map((m) => m.text) },
      ] : undefined}
      note={<span class="readout">{near ? `step ${near.step}, ${near.kind}: ${visible(near.text)}` : "Drag across to choose steps for all plots; double click or Escape shows all."}</span>}
    >
      <Canvas
        height={tall}
        columns
        onDrag={(x0, _y0, x1) => zoom({ from: Math.max(from, back.current(Math.min(x0, x1))), to: Math.min(to, back.current(Math.max(x0, x1))) })}
        onDouble={() => zoom(null)}
        onMove={(x, y) => {
          const at = Math.round(back.current(x));
          cursor.set(at >= from && at <= to ? at : null);
          const lane = Math.floor(y / TALL);
          const close = marks.filter((m) => row(m) === lane && Math.abs(place.current(m.step) - x) < 8);
          setNear(apart(close, place.current, 0).sort((a, b) => Math.abs(place.current(a.step) - x) - Math.abs(place.current(b.step) - x))[0] ?? null);
        }}
        onLeave={() => (cursor.set(null), setNear(null))}
        draw={(ctx, w) => {
          const right = w - RIGHT;
          place.current = (s) => LEFT + ((s - from) / (to - from)) * (right - LEFT);
          back.current = (px) => from + ((px - LEFT) / (right - LEFT)) * (to - from);
          const x = place.current;
          if (chosen) {
            ctx.fillStyle = colour("link");
            ctx.globalAlpha = 0.14;
            ctx.fillRect(x(chosen.from), 0, x(chosen.to) - x(chosen.from), TALL * lanes.length);
            ctx.globalAlpha = 1;
            ctx.strokeStyle = colour("link");
            for (const end of [chosen.from, chosen.to]) stroke(ctx, x(end), 0, x(end), TALL * lanes.length);
          }
          lanes.forEach((lane, k) => drawLane(ctx, lane, k, x, live && k === lanes.length - 1));
          axis(ctx, x, from, to, TALL * lanes.length, w);
          lanes.forEach((lane, k) => {
            const held = marks.filter((m) => m.attempt === lane.attempt);
            const small = held.filter((m) => m.kind === "checkpoint" || m.kind === "segment");
            for (const mark of apart(small, x, 7)) checkpoint(ctx, mark, x(mark.step), k * TALL, abandoned(mark, lanes));
            for (const mark of apart(held.filter((m) => !small.includes(m)), x, 11)) sign(ctx, mark, look(mark, lanes).token, x(mark.step), k * TALL + 8, 1);
          });
          if (step !== null) {
            ctx.strokeStyle = colour("faint");
            stroke(ctx, x(step), 0, x(step), TALL * lanes.length);
          }
        }}
      >
        {lanes.map((lane, k) => <LaneName key={lane.attempt} lane={lane} top={k * TALL} share={(s) => (s - from) / (to - from)} />)}
      </Canvas>
    </Frame>
  );
}

function told({ lanes, marks, step }: Summary): string {
  const count = (kind: Mark["kind"], one: string) => {
    const n = marks.filter((mark) => mark.kind === kind).length;
    return n ? [`${n} ${one}${n > 1 ? "s" : ""}`] : [];
  };
  const left = lanes.filter((lane) => lane.left !== null);
  const parts = [...count("alarm", "alarm"), ...count("warning", "warning"), ...count("did", "action"), ...count("stop", "stop"), ...count("checkpoint", "checkpoint")];
  const gone = left.map((lane) => `attempt ${lane.attempt} was left at step ${lane.left}`);
  return `${lanes.length} attempt${lanes.length === 1 ? "" : "s"} up to step ${Math.max(step, 0)}: ${[...parts, ...gone].join(", ") || "nothing was raised"}.`;
}

/** What a lane is called, and where it was left: said where the lane ends, else before it was left, if there is room. */
function LaneName({ lane, top, share }: { lane: Lane; top: number; share: (step: number) => number }) {
  const at = (step: number, by: number) => `calc(${LEFT + by}px + (100% - ${LEFT + RIGHT}px) * ${share(step).toFixed(4)})`;
  const beyond = share(lane.last) < 0.8;
  const before = lane.left !== null && share(lane.left) > 0.25;
  return (
    <div class="lane" data-lane={lane.attempt} style={{ top: `${top}px` }} aria-hidden="true">
      attempt {lane.attempt}
      {lane.left !== null && (
        <span data-left={lane.left} class={beyond ? "beyond" : before ? "before" : "unseen"} style={{ left: beyond ? at(lane.last, 12) : before ? at(lane.left, -6) : "0" }}>left at {lane.left}</span>
      )}
    </div>
  );
}

function drawLane(ctx: CanvasRenderingContext2D, lane: Lane, k: number, x: (s: number) => number, arrow: boolean): void {
  const y = k * TALL + 14.5;
  const end = lane.left === null ? lane.last : Math.max(lane.first, Math.min(lane.left, lane.last));
  ctx.lineWidth = 3;
  ctx.strokeStyle = colour("text");
  stroke(ctx, x(lane.first), y, Math.max(x(end), x(lane.first) + 1), y);
  if (end < lane.last) {
    ctx.strokeStyle = colour("grey");
    ctx.setLineDash([3, 3]);
    stroke(ctx, x(end), y, x(lane.last), y);
    ctx.setLineDash([]);
  }
  ctx.lineWidth = 1;
  if (!arrow) return;
  ctx.fillStyle = colour("text");
  ctx.beginPath();
  ctx.moveTo(x(lane.last), y - 5);
  ctx.lineTo(x(lane.last) + 9, y);
  ctx.lineTo(x(lane.last), y + 5);
  ctx.fill();
}

function checkpoint(ctx: CanvasRenderingContext2D, mark: Mark, x: number, top: number, gone: boolean): void {
  ctx.strokeStyle = colour(gone || mark.kind === "segment" ? "grey" : "text");
  ctx.fillStyle = colour("ground");
  ctx.lineWidth = 1.2;
  if (mark.kind === "segment") return stroke(ctx, x, top + 9, x, top + 20);
  ctx.beginPath();
  ctx.arc(x, top + 14.5, 2.8, 0, 2 * Math.PI);
  ctx.fill();
  ctx.stroke();
}

function axis(ctx: CanvasRenderingContext2D, x: (s: number) => number, from: number, to: number, y: number, width: number): void {
  ctx.fillStyle = colour("faint");
  ctx.strokeStyle = colour("line");
  ctx.lineWidth = 1;
  ctx.textAlign = "center";
  ctx.textBaseline = "top";
  stroke(ctx, LEFT, y + 0.5, width - RIGHT, y + 0.5);
  ticks(from, to, Math.max(2, Math.floor((width - LEFT) / 90)), true).forEach((value, k) => {
    stroke(ctx, x(value), y, x(value), y + 4);
    const text = k === 0 ? `step ${tickText(value)}` : tickText(value);
    ctx.fillText(text, Math.min(x(value), width - ctx.measureText(text).width / 2), y + 7);
  });
}

/** The same choice without a pointer. */
function Chooser({ from, to }: { from: number; to: number }) {
  const chosen = useShared(range);
  const [low, setLow] = useState("");
  const [high, setHigh] = useState("");
  useEffect(() => {
    setLow(chosen ? String(chosen.from) : "");
    setHigh(chosen ? String(chosen.to) : "");
  }, [chosen?.from, chosen?.to]);
  const apply = (event: Event) => {
    event.preventDefault();
    const [a, b] = [low === "" ? from : Number(low), high === "" ? to : Number(high)];
    if (Number.isFinite(a) && Number.isFinite(b) && b > a) zoom({ from: a, to: b });
  };
  return (
    <form class="chooser" onSubmit={apply}>
      <label>steps <input type="number" min={from} max={to} placeholder={String(from)} value={low} onInput={(e) => setLow(e.currentTarget.value)} aria-label="from step" /></label>
      <label>to <input type="number" min={from} max={to} placeholder={String(to)} value={high} onInput={(e) => setHigh(e.currentTarget.value)} aria-label="to step" /></label>
      <button type="submit" class="small">Show</button>
      <button type="button" class="small" disabled={!chosen} onClick={() => zoom(null)}>Show all</button>
    </form>
  );
}
