/** The plots that other screens use: a panel over steps, the evidence of an alarm, and runs compared. */
import { cursor, useShared } from "../shared";
import { count, number, odds as oddsText } from "../format";
import type { AlarmDetail, Compare, Lane, Mark, Panel } from "../types";
import { Frame, Legend, type Column, type Item } from "./frame";
import { colour, plain, RUNS, shape, styles, type Style } from "./palette";
import { logTicks, tickText } from "./scale";
import { Steps } from "./steps";
import { XY, type Path } from "./xy";

/** The row of a panel that lies nearest to a step. */
export function nearest(steps: number[], step: number | null): number {
  if (step === null || !steps.length) return -1;
  let [low, high] = [0, steps.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    (steps[middle] as number) < step ? (low = middle + 1) : (high = middle);
  }
  return low > 0 && step - (steps[low - 1] as number) < (steps[low] as number) - step ? low - 1 : low;
}

/** What each line is, and its value under the cursor; else its last. `instead`: what is drawn in place of one of them. */
export function PanelLegend({ panel, extra = [], instead }: { panel: Panel; extra?: Item[]; instead?: { line: number; steps: number[]; values: number[] } }) {
  const step = useShared(cursor);
  const row = nearest(panel.steps, step);
  const looks = styles(panel.lines);
  const items = panel.lines.map((line, k): Item => {
    const { steps, values } = instead?.line === k ? instead : { steps: panel.steps, values: line.values };
    const value = row < 0 ? last(values) : values[nearest(steps, step)];
    return { label: line.label, sign: { kind: "line", style: looks[k] as Style }, value: number(value) };
  });
  return <Legend items={[...items, ...extra]} lead={row < 0 ? "last" : `step ${panel.steps[row]}`} />;
}

export function last(values: (number | null)[]): number | null {
  for (let k = values.length - 1; k >= 0; k--) if (values[k] !== null) return values[k] as number;
  return null;
}

/** Signs that a panel shows only sometimes: abandoned steps, and values that are no finite numbers. */
export function flags(panel: Panel): Item[] {
  return [
    ...(panel.branches.length ? [{ label: "abandoned", sign: { kind: "line" as const, style: { token: "grey", dash: [], width: 1.2 } } }] : []),
    ...(panel.flagged.length ? [{ label: "not a finite number", sign: { kind: "mark" as const, token: "act", shape: "cross" as const } }] : []),
  ];
}

export function columnsOf(panel: Panel): Column[] {
  return [{ name: "step", values: panel.steps }, ...panel.lines.map((line) => ({ name: line.label, values: line.values }))];
}

export function pointsOf({ shown, of }: { shown: number; of: number }): string {
  return of > shown ? `${count(shown)} of ${count(of)} points` : of ? `${count(of)} points` : "";
}

export interface PanelPlotProps {
  panel: Panel;
  marks: Mark[];
  lanes: Lane[];
  height?: number;
  zoomable?: boolean;
  span?: { from: number; to: number } | null;
}

export function PanelPlot({ panel, marks, lanes, height = 200, zoomable, span }: PanelPlotProps) {
  return (
    <Frame
      title={panel.title} sentence={panel.sentence} left={panel.left} right={panel.right} empty={panel.empty}
      legend={<PanelLegend panel={panel} extra={flags(panel)} />}
      note={pointsOf(panel)} table={() => columnsOf(panel)}
    >
      <Steps panel={panel} marks={marks} lanes={lanes} height={height} zoomable={zoomable} span={span} signs />
    </Frame>
  );
}

/** Where odds of 1, 10, 100 to 1 stand on a scale of their logarithms: evidence has one unit on every screen. */
function oddsTicks(logs: number[]): { at: number; text: string }[] {
  const known = logs.filter(Number.isFinite).map((one) => Math.max(-300, Math.min(300, one)));
  return logTicks(Math.exp(Math.min(...known)), Math.exp(Math.max(...known))).map((one) => ({ at: Math.log(one), text: tickText(one) }));
}

/** P8: odds against labels spent, the threshold, and where it was raised. */
export function EvidencePlot({ evidence, height = 220 }: { evidence: AlarmDetail["evidence"]; height?: number }) {
  const { labels, odds, steps, threshold, raised } = evidence;
  const at = raised >= 0 && raised < labels.length ? raised : -1;
  const most = odds.length ? Math.max(...odds) : NaN;
  const sentence = odds.length
    ? `Evidence after ${count(labels[labels.length - 1] ?? 0)} gold labels: at most ${oddsText(most)}; the alarm needs ${oddsText(threshold)}${at >= 0 ? `, reached at step ${steps[at]} after ${count(labels[at] ?? 0)} labels` : ""}.`
    : "";
  const style = plain(0);
  return (
    <Frame
      title="Evidence" sentence={sentence} left="odds against chance, logarithmic" empty={odds.length ? "" : "The evidence of this alarm was not kept step by step."}
      legend={<Legend items={[
        { label: "evidence", sign: { kind: "line", style } },
        { label: "threshold", sign: { kind: "line", style: { token: "act", dash: [5, 3], width: 1.5 } } },
        ...(at >= 0 ? [{ label: "raised", sign: { kind: "mark" as const, token: "act", shape: "triangle" as const } }] : []),
      ]} />}
      table={() => [{ name: "step", values: steps }, { name: "labels", values: labels }, { name: "odds", values: odds.map(oddsText) }]}
    >
      <XY
        height={height} x="gold labels spent" whole from={0}
        paths={[{ label: "odds", x: labels, y: odds, style }]} names={oddsTicks([...odds, threshold, 0])}
        rules={[{ y: threshold, text: `threshold ${oddsText(threshold)}`, token: "act", dash: [5, 3] }]}
        reach={[0]}
        said={(_p, row) => `step ${steps[row]}, ${count(labels[row] ?? 0)} labels: odds ${oddsText(odds[row] ?? 0)}`}
        over={(ctx, a) => {
          if (at < 0) return;
          ctx.fillStyle = colour("act");
          shape(ctx, "triangle", a.x(labels[at] as number), a.y(odds[at] as number), 6);
          ctx.fill();
        }}
      />
    </Frame>
  );
}

const ACROSS = { step: "step", root_kl: "square root of KL from the reference", tokens: "tokens" };
type Measure = Compare["measures"][number];

export function ComparePlot({ measure, names, x, height = 220 }: { measure: Measure; names: string[]; x: Compare["x"]; height?: number }) {
  const paths = measure.runs.map((run, k): Path => ({ label: names[k] ?? "", x: run.x, y: run.y, low: run.low, high: run.high, style: RUNS[k % RUNS.length] as Style }));
  const drawn = paths.some((p) => p.y.some((v) => v !== null));
  const told = paths.map((p) => `${p.label} ends at ${number(last(p.y))}`).join("; ");
  return (
    <Frame
      title={measure.label} sentence={`${measure.label}: ${told}.`} left={measure.label} empty={drawn ? "" : "None of these runs has this reading."}
      legend={<Legend items={paths.map((p) => ({ label: p.label, sign: { kind: "line", style: p.style }, value: number(last(p.y)) }))} lead="last" />}
      table={() => paths.flatMap((p) => [{ name: `${p.label}: ${ACROSS[x]}`, values: p.x }, { name: p.label, values: p.y }])}
    >
      <XY height={height} x={ACROSS[x]} whole={x !== "root_kl"} paths={paths} />
    </Frame>
  );
}

export function DifferencePlot({ difference, label, x, height = 220 }: { difference: Measure["difference"]; label: string; x: Compare["x"]; height?: number }) {
  const style: Style = { token: "series-3", dash: [], width: 1.7 };
  const told = difference && (difference.first === null ? "the interval never excludes 0" : `the 95 % interval first excludes 0 at ${ACROSS[x]} ${number(difference.first)}`);
  return (
    <Frame
      title={label} sentence={told ? `${label}: ${told}.` : label} left="difference, 95 % interval" empty={difference?.x.length ? "" : "There is no difference to draw: the runs share no stretch."}
      legend={<Legend items={[{ label: "difference", sign: { kind: "line", style } }, { label: "95 % interval", sign: { kind: "mark", token: "series-3", shape: "band" } }]} />}
      table={() => [{ name: ACROSS[x], values: difference?.x ?? [] }, { name: "difference", values: difference?.y ?? [] }, { name: "low", values: difference?.low ?? [] }, { name: "high", values: difference?.high ?? [] }]}
    >
      <XY
        height={height} x={ACROSS[x]} whole={x !== "root_kl"} reach={[0]}
        paths={difference ? [{ label, x: difference.x, y: difference.y, low: difference.low, high: difference.high, style }] : []}
        rules={[{ y: 0, text: "no difference", token: "faint", dash: [4, 3], end: true }]}
        over={(ctx, a) => {
          if (!difference || difference.first === null) return;
          ctx.strokeStyle = colour("act");
          ctx.setLineDash([2, 2]);
          ctx.beginPath();
          ctx.moveTo(a.x(difference.first), a.top);
          ctx.lineTo(a.x(difference.first), a.bottom);
          ctx.stroke();
          ctx.setLineDash([]);
        }}
      />
    </Frame>
  );
}
