/** P4: measures of diversity, each on a scale of its own and all on the same steps. */
import { cursor, useShared } from "../shared";
import { number } from "../format";
import type { Lane, Line, Mark, Panel } from "../types";
import { Frame, Legend } from "./frame";
import { columnsOf, flags, last, nearest, pointsOf } from "./index";
import { styles, type Style } from "./palette";
import { Steps } from "./steps";

export function StripsPlot({ panel, marks, lanes, span, height }: { panel: Panel; marks: Mark[]; lanes: Lane[]; span: { from: number; to: number } | null; height: number }) {
  const axis = 26;
  const name = 20;
  const each = Math.min(110, Math.max(48, Math.floor((height - axis - name * panel.lines.length) / Math.max(1, panel.lines.length))));
  return (
    <Frame
      title={panel.title} sentence={panel.sentence} empty={panel.empty} note={pointsOf(panel)} table={() => columnsOf(panel)}
      legend={<Legend items={flags(panel)} />}
    >
      {panel.lines.map((_, k) => {
        const bottom = k === panel.lines.length - 1;
        return (
          <div key={k} class="strip">
            <StripName panel={panel} k={k} />
            <Steps panel={panel} only={k} marks={marks} lanes={lanes} span={span} height={each + (bottom ? axis : 0)} bare={!bottom} gutter={44} zoomable />
          </div>
        );
      })}
    </Frame>
  );
}

function StripName({ panel, k }: { panel: Panel; k: number }) {
  const step = useShared(cursor);
  const row = nearest(panel.steps, step);
  const line = panel.lines[k] as Line;
  const style = styles(panel.lines)[k] as Style;
  const value = row < 0 ? last(line.values) : line.values[row];
  return <Legend items={[{ label: line.label, sign: { kind: "line", style }, value: number(value) }]} />;
}
