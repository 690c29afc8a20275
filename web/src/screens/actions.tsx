/** S5: proposed and applied changes with their outcomes. Nothing is ever removed from this list. */
import "../screens.css";
import { useControl, type Wish } from "../control";
import { clock, number } from "../format";
import type { ScreenProps } from "../head";
import { Card, Empty, Trouble } from "../parts";
import { useData, useSource } from "../shared";
import { Dotted, Shown } from "../text";
import type { ActionRow, Actions as Told, Summary } from "../types";

const MODES: Record<string, string> = {
  observe: "The trainer is only observed: nothing can be changed.",
  advise: "Changes are proposed, and made only if somebody approves them.",
  act: "The monitor makes changes itself, within the bounds below, and reverts them if they do not help.",
};

export function Actions({ run, summary }: ScreenProps) {
  const { data, error } = useData<Told>("/api/actions", { run });
  const { ask, shown } = useControl(run, summary.step);
  if (!data) return error ? <Trouble error={error} /> : <p class="waiting" aria-busy="true">…</p>;
  return (
    <>
      {error && <Trouble error={error} />}
      <p class="intro">
        {data.mode ? <><b>Mode {data.mode}.</b> {MODES[data.mode] ?? ""}</>
          : <>No trainer lets anything be changed. With TRL: <code>tiltmeter.attach(trainer, act="advise")</code></>}
      </p>
      {shown}
      {data.rows.length ? <Log rows={data.rows} summary={summary} ask={ask} /> : <Empty>Nothing was changed and nothing was proposed.</Empty>}
      <div class="two">
        {data.mode && (
          <Card title="What mode act would request now">
            {data.dry_run.length ? <ul class="plain">{data.dry_run.map((line, k) => <li key={k}><Shown text={line} /></li>)}</ul> : <Empty>Nothing.</Empty>}
          </Card>
        )}
        {data.knobs.length > 0 && <Knobs knobs={data.knobs} />}
      </div>
    </>
  );
}

function Log({ rows, summary, ask }: { rows: ActionRow[]; summary: Summary; ask: (wish: Wish) => void }) {
  const titles = ["When", "Step", "Change", "Within", "Why", "State", "Outcome"];
  return (
    <table class="cards log" role="table" aria-label="Actions, newest first">
      <thead role="rowgroup"><tr role="row">{[...titles, ""].map((title, k) => <th key={k} role="columnheader" scope="col">{title || <span class="unseen">Answer</span>}</th>)}</tr></thead>
      <tbody role="rowgroup">
        {rows.map((row) => (
          <tr key={row.id} role="row">
            <td role="cell" data-label="When" class="nowrap">{row.time === null ? "–" : clock(row.time, summary.now)}</td>
            <td role="cell" data-label="Step" class="nowrap">{row.step}{row.attempt !== summary.attempt && <div class="faint small">attempt {row.attempt}</div>}</td>
            <td role="cell" data-label="Change"><b><Shown text={row.change} limit={200} /></b></td>
            <td role="cell" data-label="Within" class="nowrap">{within(row)}</td>
            <td role="cell" data-label="Why"><Shown text={row.finding.replaceAll("_", " ")} limit={60} />{row.reason && <div class="faint small"><Shown text={row.reason} limit={300} /></div>}</td>
            <td role="cell" data-label="State"><Done row={row} /></td>
            <td role="cell" data-label="Outcome" class={row.outcome ? undefined : "bare"}>{row.outcome ? <Shown text={row.outcome} limit={300} /> : <span class="faint">–</span>}</td>
            <td role="cell" class="answer"><Answers row={row} ask={ask} /></td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const within = ({ floor, ceiling }: { floor: number | null; ceiling: number | null }) =>
  floor === null && ceiling === null ? "–" : floor === null ? `at most ${number(ceiling)}` : ceiling === null ? `at least ${number(floor)}` : `${number(floor)} to ${number(ceiling)}`;

function Done({ row }: { row: ActionRow }) {
  const told = row.state === "applied" ? `applied s${row.told}${row.after === null ? "" : `, read back ${number(row.after)}`}`
    : row.state === "reverted" ? `reverted s${row.told}${row.before === null ? "" : `, at ${number(row.before)} again`}`
    : row.state === "proposed" ? (row.can.length ? "waiting for an answer" : "proposed, not answered") : `${row.state} s${row.told}`;
  return <><span class={`done ${row.state === "proposed" && !row.can.length ? "" : row.state}`}>{told}</span>{row.pending && <div class="pending">pending: {row.pending} was requested</div>}</>;
}

function Answers({ row, ask }: { row: ActionRow; ask: (wish: Wish) => void }) {
  const source = useSource();
  if (!source.live || !row.can.length) return null;
  const words: Record<ActionRow["can"][number], [string, string]> = {
    approve: ["Approve", `The trainer makes this change at the end of its next step: ${row.change}`],
    reject: ["Reject", `The change is not made: ${row.change}`],
    undo: ["Undo", `The trainer puts it back at the end of its next step: ${row.knob} to ${number(row.before)}`],
  };
  return (
    <span class="buttons">
      {row.can.map((kind) => (
        <button key={kind} type="button" onClick={() => ask({ kind, target: row.id, title: `${words[kind][0]} this change?`, text: words[kind][1], reason: "none", go: words[kind][0] })}>
          {words[kind][0]}…
        </button>
      ))}
    </span>
  );
}

function Knobs({ knobs }: { knobs: Told["knobs"] }) {
  const why = knobs.some((knob) => knob.why);
  return (
    <Card title="What can be changed">
      <table class={why ? "cards" : undefined} role="table" aria-label="Knobs">
        <thead role="rowgroup"><tr role="row">{["Knob", "Now", "Within", ...(why ? ["Why not"] : [])].map((title) => <th key={title} role="columnheader" scope="col">{title}</th>)}</tr></thead>
        <tbody role="rowgroup">
          {knobs.map((knob) => (
            <tr key={knob.name} role="row">
              <td role="cell" data-label="Knob"><Dotted text={knob.name} /></td>
              <td role="cell" data-label="Now" class="nowrap">{number(knob.value)}</td>
              <td role="cell" data-label="Within" class="nowrap">{within(knob)}</td>
              {why && <td role="cell" data-label="Why not" class={knob.why ? undefined : "bare"}>{knob.why ? <Shown text={knob.why} limit={200} /> : <span class="faint">–</span>}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}
