/** S4: alarms and warnings, with the evidence as it was when each was raised. */
import "../screens.css";
import { useControl, type Wish } from "../control";
import { count, number, odds } from "../format";
import type { ScreenProps } from "../head";
import { lazy } from "../lazy";
import { Figure, Gold, ToRollout } from "../panes";
import { Empty, Trouble } from "../parts";
import { useAddress, useData, useSource } from "../shared";
import { Shown } from "../text";
import type { AlarmDetail, AlarmRow, Alarms as Told, Exemplar } from "../types";

const EvidencePlot = lazy(() => import("../charts").then((m) => m.EvidencePlot));
const PanelPlot = lazy(() => import("../charts").then((m) => m.PanelPlot));

export function Alarms({ run, summary, params }: ScreenProps) {
  const { data, error } = useData<Told>("/api/alarms", { run });
  const [told, change] = useAddress(params);
  const { live } = useSource();
  if (!data) return error ? <Trouble error={error} /> : <p class="waiting" aria-busy="true">…</p>;
  if (!data.rows.length) {
    const none = summary.steps ? `No alarm and no warning has been raised in ${count(summary.steps)} steps.` : "No step has been measured yet.";
    return <Empty>{none} <Shown text={data.promise} /></Empty>;
  }
  const id = told.get("id") ?? data.rows[0]?.id ?? "";
  if (!live) return <div class="each">{data.rows.map((row) => <Detail key={row.id} run={run} id={row.id} summary={summary} params={params} />)}</div>;
  return (
    <>
      {error && <Trouble error={error} />}
      <div class="halves">
        <section aria-label="Alarms and warnings">
          <ul class="index alarms">
            {data.rows.map((row) => <li key={row.id}><RowButton row={row} open={row.id === id} choose={() => change({ id: row.id })} /></li>)}
          </ul>
        </section>
        <Detail key={id} run={run} id={id} summary={summary} params={params} />
      </div>
    </>
  );
}

/** Filled: an alarm, with a proved false-alarm bound. Hollow: a warning. */
function TierMark({ tier }: { tier: AlarmRow["tier"] }) {
  return (
    <span class={`tier ${tier}`}>
      <svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">{tier === "alarm" ? <path d="M6 1 11.5 11 .5 11Z" fill="currentColor" /> : <circle cx="6" cy="6" r="4.5" fill="none" stroke="currentColor" stroke-width="1.6" />}</svg>
      {tier === "alarm" ? "ALARM" : "warning"}
    </span>
  );
}

const onset = (row: AlarmRow) => (row.onset_low === row.onset_high ? `since ${row.onset}` : `since ${row.onset_low}–${row.onset_high}`);

function RowButton({ row, open, choose }: { row: AlarmRow; open: boolean; choose: () => void }) {
  return (
    <button type="button" class="index-row" aria-current={open ? "true" : undefined} onClick={choose}>
      <span class="figures"><TierMark tier={row.tier} /> <Shown text={row.name} limit={80} /></span>
      <span class="figures">
        <span class={`status ${row.status}`}>{row.status}</span>
        <span>raised s{row.step}</span>
        <span>{onset(row)}</span>
        {row.count > 1 && <span>{row.count} times</span>}
      </span>
    </button>
  );
}

function Detail({ run, id, summary }: ScreenProps & { id: string }) {
  const { data, error } = useData<AlarmDetail>("/api/alarm", { run, id });
  const source = useSource();
  const { ask, shown } = useControl(run, summary.step);
  if (!data) return <section aria-label="The alarm">{error ? <Trouble error={error} /> : <p class="waiting tall" aria-busy="true">…</p>}</section>;
  const { alarm } = data;
  return (
    <section class="detail" aria-label="The alarm">
      <h2><TierMark tier={alarm.tier} /> <Shown text={alarm.name} limit={120} /> <span class={`status ${alarm.status}`}>{alarm.status}</span></h2>
      <p><Shown text={alarm.summary} /></p>
      <p class="faint">
        Raised at step {alarm.step} of attempt {alarm.attempt} by <Shown text={alarm.detector} />, {onset(alarm)}
        {alarm.evidence !== null && alarm.threshold !== null ? /\bodds\b/.test(alarm.summary) ? `; odds ${odds(alarm.evidence)}, where ${odds(alarm.threshold)} is needed` : `; statistic ${number(alarm.evidence)}, threshold ${number(alarm.threshold)}` : ""}
        {alarm.resolved !== null ? `; resolved at step ${alarm.resolved}` : ""}.
        {alarm.said && <> Operator's note: <Shown text={alarm.said} /></>}
      </p>
      {data.promise && <p class="promise"><Shown text={data.promise} /></p>}
      {source.live && alarm.status !== "false" && (
        <p class="buttons">{wishes(alarm).map((wish) => <button key={wish.kind} type="button" onClick={() => ask(wish)}>{wish.title}…</button>)}</p>
      )}
      {shown}
      <div class="seen">
        {data.evidence.odds.length > 0 && <EvidencePlot evidence={data.evidence} />}
        <PanelPlot panel={data.readings} marks={summary.marks} lanes={summary.lanes} height={220} />
      </div>
      {source.live && <Proof run={run} rows={data.exemplars} />}
    </section>
  );
}

function wishes(alarm: AlarmRow): Wish[] {
  const target = alarm.id;
  const open = alarm.status !== "resolved";
  const all: (Wish | false)[] = [
    open && alarm.status !== "acknowledged" && { kind: "acknowledge", target, title: "Acknowledge", go: "Acknowledge", reason: "may", text: "Records that somebody has seen it. An open alarm stays open, and the run's state does not change." },
    open && alarm.status !== "muted" && { kind: "mute", target, title: "Mute 50 steps", go: "Mute", reason: "may", text: "It is shown as muted for the next 50 steps, also if it is raised again. The run's state does not change." },
    { kind: "false_alarm", target, title: "False alarm", go: "Mark as false", reason: "must", text: "An alarm that is marked as false is closed. The reason stays on record and cannot be removed." },
  ];
  return all.filter((wish) => wish !== false);
}

export function Proof({ run, rows }: { run: string; rows: Exemplar[] }) {
  if (!rows.length) return <Empty>No completions are stored for it.</Empty>;
  return (
    <section aria-label="Completions that show it">
      <h3>Completions that show it</h3>
      <ol class="proof">
        {rows.map((row) => (
          <li key={row.id}>
            <p class="figures"><ToRollout run={run} id={row.id}>rollout {row.id}</ToRollout> <span>reward <Figure value={row.reward} /></span> <span>gold <Gold value={row.gold} /></span></p>
            <Shown text={row.text} limit={300} block />
          </li>
        ))}
      </ol>
    </section>
  );
}
