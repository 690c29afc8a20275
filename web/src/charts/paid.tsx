/** P2: reward by component. Components that gained stack upwards, those that lost downwards, the total is a line. */
import { cursor, useShared } from "../shared";
import { number } from "../format";
import type { Lane, Line, Mark, Panel } from "../types";
import { Frame, Legend, type Item } from "./frame";
import { columnsOf, flags, last, nearest, pointsOf } from "./index";
import { hatch, plain, type Style } from "./palette";
import { ribbon, Steps, type Paint } from "./steps";

export function PaidPlot({ paid, marks, lanes, span, height }: { paid: Panel; marks: Mark[]; lanes: Lane[]; span: { from: number; to: number } | null; height: number }) {
  const parts = paid.lines.slice(1);
  const stacked = parts.map((part, k) => stack(parts.slice(0, k + 1), part));
  const under: Paint = (u, ctx, unit) => {
    parts.forEach((_, k) => {
      ctx.fillStyle = hatch(ctx, plain(k).token, k, unit);
      const { up, down } = stacked[k] as Stack;
      ribbon(u, paid.steps, up[0], up[1], "left");
      ribbon(u, paid.steps, down[1], down[0], "left");
    });
  };
  const reach = [0, ...stacked.flatMap(({ up, down }) => [...up[1], ...down[1]])];
  const line: Panel = { ...paid, lines: paid.lines.slice(0, 1).map((total) => ({ ...total, role: "proxy" as const })), branches: paid.branches.map((branch) => ({ ...branch, values: branch.values.slice(0, 1) })), flagged: paid.flagged.filter(([k]) => k === 0) };
  return (
    <Frame
      title={paid.title} sentence={paid.sentence} left={paid.left} empty={paid.empty} note={pointsOf(paid)} table={() => columnsOf(paid)}
      legend={<PaidLegend paid={paid} />}
    >
      <Steps panel={line} marks={marks} lanes={lanes} span={span} height={height} zoomable signs under={under} reach={reach} />
    </Frame>
  );
}

interface Stack {
  up: [(number | null)[], (number | null)[]]; // below and above the area
  down: [(number | null)[], (number | null)[]];
}

/** Where the last of some parts lies on the others: gains on gains, losses under losses. */
function stack(parts: Line[], part: Line): Stack {
  const told: Stack = { up: [[], []], down: [[], []] };
  part.values.forEach((value, row) => {
    let [up, down] = [0, 0];
    for (const other of parts.slice(0, -1)) {
      const v = other.values[row] ?? 0;
      v > 0 ? (up += v) : (down += v);
    }
    told.up[0].push(value === null ? null : up);
    told.up[1].push(value === null ? null : up + Math.max(value, 0));
    told.down[0].push(value === null ? null : down);
    told.down[1].push(value === null ? null : down + Math.min(value, 0));
  });
  return told;
}

const TOTAL: Style = { token: "proxy", dash: [], width: 1.7 };

function PaidLegend({ paid }: { paid: Panel }) {
  const step = useShared(cursor);
  const row = nearest(paid.steps, step);
  const at = (line: Line | undefined) => (line ? (row < 0 ? last(line.values) : (line.values[row] ?? null)) : null);
  const gains = paid.lines.slice(1).reduce((sum, line) => sum + Math.max(0, at(line) ?? 0), 0);
  const signed = (value: number | null) => (value === null ? "–" : `${value > 0 ? "+" : ""}${number(value)}`);
  const items = paid.lines.map((line, k): Item => {
    const value = at(line);
    // A share of the gain is what the eye would read off the stack.
    const share = k > 0 && value !== null && value > 0 && gains > 0 ? ` (${Math.round((100 * value) / gains)} %)` : "";
    return { label: line.label, sign: k === 0 ? { kind: "line", style: TOTAL } : { kind: "area", style: plain(k - 1), hatch: k - 1 }, value: signed(value) + share };
  });
  return <Legend items={[...items, ...flags(paid)]} lead={row < 0 ? "last" : `step ${paid.steps[row]}`} />;
}
