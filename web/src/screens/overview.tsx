/** S1, the overview: verdict, onset, findings, actions, advice, history and plots. */
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import "../overview.css";
import { clock, count, likelihood, number, odds, percent } from "../format";
import type { HandleProps } from "../handle";
import type { ScreenProps } from "../head";
import { lazy } from "../lazy";
import { Card } from "../parts";
import type { NotesProps } from "../notes";
import { Picture } from "../picture";
import { link, type Screen } from "../route";
import { useAddress, useSource } from "../shared";
import { Shown, visible } from "../text";
import type { ActionRow, AlarmRow, Claim, Claims, HistoryEntry as Entry, Estimate, FindingRow, SliceTables, Summary } from "../types";
import { lastVisit } from "../visit";

const Board = lazy<{ run: string; summary: Summary }>(() => import("../charts/board").then((m) => m.Board));

const RunNotes = lazy<NotesProps>(() => import("../notes").then((m) => m.RunNotes));

const Handle = lazy<HandleProps>(() => import("../handle").then((m) => m.Handle));

export function Overview({ run, summary, params }: ScreenProps) {
  const { live } = useSource();
  const [address, change] = useAddress(params);
  const asked = Number(address.get("step") ?? NaN);
  const { first = 0, last = 0 } = summary.pictures[0] ?? {};
  const step = Number.isInteger(asked) && asked >= first && asked <= last ? asked : null;
  const setStep = (wanted: number | null) => change({ step: wanted ?? undefined });
  return (
    <div class="overview">
      <section class="hero" aria-label="Proxy and gold, and what to do">
        <Picture pictures={summary.pictures} step={step} onStep={setStep} />
        <ToDo run={run} summary={summary} />
      </section>
      {summary.steps > 0 && <Handle run={run} first={first} last={last} step={step} set={setStep} />}
      <Facts run={run} summary={summary} />
      <div class="story">
        <Diagnosis run={run} summary={summary} />
        <Since run={run} summary={summary} />
      </div>
      <Done run={run} table={summary.claims} />
      <Slices tables={summary.slices} />
      <Proofs run={run} summary={summary} />
      <RunNotes run={run} summary={summary} step={step} />
      {summary.steps > 0 && <Checks summary={summary} />}
      {summary.steps > 0 && <Board run={run} summary={summary} />}
      <p class="health">
        <Tick ok={summary.health.ok} /> <Shown text={summary.health.text} />{" "}
        {summary.behind > 0 && <>· {count(summary.behind)} {summary.behind === 1 ? "step" : "steps"} stored and not measured </>}
        {live && <>· <Go to="health" run={run}>the monitor</Go></>}
      </p>
    </div>
  );
}

/** A link on the page. A report has no other screens: there it is plain words, or, with `only`, nothing. */
function Go({ to, run, params, children, only }: { to: Screen; run: string; params?: Record<string, string | number | undefined>; children: ComponentChildren; only?: boolean }) {
  const { live } = useSource();
  return live ? <a href={link(to, run, params)}>{children}</a> : only ? null : <span>{children}</span>;
}

const words = (name: string) => visible(name).replaceAll("_", " ");
const signed = (value: number) => (Math.abs(value) < 0.005 ? "0.00" : `${value < 0 ? "" : "+"}${value.toFixed(2)}`);
const interval = ({ gold, low, high }: Estimate) => `${number(gold)} [${number(low)}, ${number(high)}]`;

const FIXES = 3; // on the first screen; all are in the diagnosis

/** The fix, beside the picture: what waits for an answer, whether to stop and where to go back to, what helps. */
function ToDo({ run, summary }: { run: string; summary: Summary }) {
  const { advice, last_good, proposals, findings, state, steps } = summary;
  const fixes = (findings[0]?.fix ?? "").split("; ").filter(Boolean);
  const stop = advice?.word === "stop";
  const calm = state === "OK" && !stop && !fixes.length && !proposals.length;
  const cannot = state === "BLIND" || state === "STALE";
  const shown = cannot ? 1 : FIXES; // what makes a judgement possible comes first
  return (
    <div class="todo">
      <h2>What to do</h2>
      <ul>
        {cannot && steps > 0 && <Needs summary={summary} />}
        {stop && <li><b>Stop</b>{last_good ? <>, and go back to the checkpoint of <b>step {last_good.step}</b>, gold {number(last_good.gold)}</> : <>: no saved model has enough gold around it to go back to</>}</li>}
        {proposals.slice(0, 1).map((action) => <Proposal key={action.id} run={run} action={action} />)}
        {fixes.slice(0, shown).map((fix, k) => <li key={k}><Shown text={fix} limit={160} /></li>)}
        {fixes.length > shown && <li><a href="#diagnosis" onClick={(event) => { event.preventDefault(); document.getElementById("diagnosis")?.scrollIntoView(); }}>{fixes.length - shown} more</a></li>}
        {calm && <li>Nothing: no alarm is open, and all conditions hold under which one could have been raised.</li>}
        {steps === 0 ? <li>{WAITING}</li> : !stop && !fixes.length && !calm && !cannot && <Needs summary={summary} />}
      </ul>
    </div>
  );
}

const WAITING = "Wait for the first measured step.";

/** What a state without an alarm asks for. */
function Needs({ summary: { state, gold, run, checks, advice } }: { summary: Summary }) {
  if (state === "HOLLOW") return <li>Read what the reward pays most, and change the reward before training on.</li>;
  if (state === "STALE") return <li>See whether the trainer and <code>tiltmeter watch</code> still run: the verdict is as old as the last step.</li>;
  if (state === "BLIND") {
    if (gold.people) return <li><a href={link("label", "", { run })}>Label</a>: {gold.waiting > 0 ? `${count(gold.waiting)} rollouts wait for a person` : "every answer counts"}.</li>;
    if (!gold.source) return <li>Name a gold source: <code>tiltmeter.attach(trainer, gold="checks.py:score")</code>, or have people label (<code>gold="people"</code>).</li>;
    const missing = checks.find((check) => !check.ok);
    return <li>Fix what is missing: until then no alarm can be raised, so the absence of an alarm means nothing. {missing && <Shown text={missing.why} limit={160} />}</li>;
  }
  return <li>{advice ? <Shown text={`${advice.word}: ${advice.why}`} limit={200} /> : "Look at the evidence below."}</li>;
}

/** Questions 2 and 6 in one row: since when, where to go back to, whether to stop. */
function Facts({ run, summary }: { run: string; summary: Summary }) {
  const { onset, onset_low, onset_high, last_good, advice, gold, mode, agreement, level } = summary;
  const { live } = useSource();
  const width = onset_low !== null && onset_high !== null && onset_high > onset_low;
  return (
    <dl class="facts">
      {onset !== null && <Fact name="Since" value={`step ${onset}`} more={width ? `onset between ${onset_low} and ${onset_high}` : ""} />}
      <Fact
        name={onset !== null ? "Last good checkpoint" : "Best checkpoint"}
        value={last_good ? `step ${last_good.step}` : "none yet"}
        more={last_good ? `gold ${interval(last_good)} on ${count(last_good.n)} labels` : "no saved model has enough gold around it"}
      />
      <Fact
        name="Agreement"
        value={agreement ? percent(agreement.share) : "not known"}
        more={agreement ? `[${percent(agreement.low)}, ${percent(agreement.high)}]: the reward prefers the better of two answers; steps ${agreement.first} to ${agreement.last}` : "no two answers with different gold"}
      />
      <Fact
        name="Level"
        value={level ? signed(level.change) : "not known"}
        more={level ? `[${signed(level.low)}, ${signed(level.high)}]: ${level.source === "gold.level" ? "gold of audited pairs" : "gold"} at steps ${level.first} to ${level.last} against its best, at steps ${level.best_first} to ${level.best_last}` : "no gold"}
      />
      {advice && <Fact name="Advice" value={visible(advice.word)} more={<Shown text={advice.why} limit={160} />} tone={advice.word === "stop" ? "broad act" : "broad"} />}
      <Fact
        name="Gold"
        value={gold.labels ? `${count(gold.labels)} labels` : "none"}
        more={
          <>
            {gold.source ? <Shown text={gold.source} limit={60} /> : "no source"}
            {gold.waiting > 0 && `, ${count(gold.waiting)} wait`}
            {gold.rollouts > 0 && `, of ${count(gold.rollouts)} rollouts`}
            {gold.people && live && <> · <a href={link("label", "", { run })}>Label</a></>}
          </>
        }
      />
      <Fact name="Mode" value={mode ? visible(mode) : "read only"} more={MODES[mode] ?? "no trainer is attached: nothing can be changed from here"} />
    </dl>
  );
}

const MODES: Record<string, string> = {
  observe: "nothing is changed or proposed",
  advise: "changes are proposed; a person approves them",
  act: "changes within their bounds are made; the rest waits for a person",
};

function Fact({ name, value, more, tone }: { name: string; value: ComponentChildren; more?: ComponentChildren; tone?: string }) {
  return <div class={tone}><dt>{name}</dt><dd><b>{value}</b>{more && <span>{more}</span>}</dd></div>;
}

/** Questions 3 and 6: what happened, why to believe it, what to do. */
function Diagnosis({ run, summary }: { run: string; summary: Summary }) {
  const { findings, alarms, warnings, state } = summary;
  const { live } = useSource();
  const [first, ...others] = findings;
  const title = first || alarms.length ? "Diagnosis" : state === "BLIND" || state === "STALE" ? "Cannot judge" : summary.steps === 0 ? "Nothing to judge yet" : "Diagnosis";
  const aside = first ? <>{likelihood(first.confidence)} <b>{words(first.failure)}</b>, found at step {first.step}</> : undefined;
  return (
    <Card title={title} aside={aside} id="diagnosis">
      <dl class="diagnosis">
        {summary.symptom && <Row name="Symptom"><Shown text={summary.symptom} /></Row>}
        {(alarms.length > 0 || warnings.length > 0 || first) && (
          <Row name="Evidence">
            <ul>
              {alarms.map((alarm) => <Raised key={alarm.id} run={run} alarm={alarm} told={summary.sentence.includes(alarm.summary)} />)}
              {first?.summary && <li><Shown text={first.summary} /> {first.exemplars.length > 0 && <Go to="rollouts" run={run} params={{ id: first.exemplars[0] }} only>{first.exemplars.length === 1 ? "an example" : `${first.exemplars.length} examples`}</Go>}</li>}
              {warnings.slice(0, 3).map((warning) => <Raised key={warning.id} run={run} alarm={warning} />)}
              {warnings.length > 3 && <li><Go to="alarms" run={run}>{count(warnings.length - 3)} more warnings</Go></li>}
            </ul>
          </Row>
        )}
        {!first && alarms.length === 0 && <Quiet summary={summary} />}
        {first && <Remedy finding={first} />}
        {summary.proposals.length > 0 && <Row name="Proposed"><ul>{summary.proposals.map((p) => <Proposal key={p.id} run={run} action={p} />)}</ul></Row>}
      </dl>
      {others.map((finding) => (
        <details key={finding.failure} class="other" open={!live}>
          <summary>Also: {likelihood(finding.confidence)} {words(finding.failure)}</summary>
          <dl class="diagnosis">
            <Row name="Evidence"><Shown text={finding.summary} /></Row>
            <Remedy finding={finding} />
          </dl>
        </details>
      ))}
      <Asides asides={summary.asides} open={summary.steps > 0 && (!live || (!first && summary.asides.length <= 5))} />
    </Card>
  );
}

function Row({ name, children }: { name: string; children: ComponentChildren }) {
  return <div><dt>{name}</dt><dd>{children}</dd></div>;
}

/** `told`: the headline already says it in the same words. */
function Raised({ run, alarm, told }: { run: string; alarm: AlarmRow; told?: boolean }) {
  return (
    <li>
      <Sign kind={alarm.tier} /> <b>{alarm.tier} at step {alarm.step}</b>{told ? <> on <Shown text={alarm.name} limit={60} /></> : <>: <Shown text={alarm.summary} /></>}{" "}
      <span class="faint">{alarm.count > 1 && `raised ${alarm.count} times`}{alarm.status !== "open" && `, ${alarm.status}`}</span>{" "}
      <Go to="alarms" run={run} params={{ id: alarm.id }} only>why</Go>
    </li>
  );
}

function Remedy({ finding }: { finding: FindingRow }) {
  const fixes = finding.fix.split("; ").filter(Boolean);
  return (
    <>
      {finding.cause && <Row name="Cause"><Shown text={finding.cause} /></Row>}
      {finding.tried && <Row name="Tried"><Shown text={finding.tried} /></Row>}
      {fixes.length > 0 && <Row name="Fix"><ol class="fixes">{fixes.map((fix, k) => <li key={k}><Shown text={fix} /></li>)}</ol></Row>}
    </>
  );
}

function Proposal({ run, action }: { run: string; action: ActionRow }) {
  const bounds = action.floor !== null || action.ceiling !== null ? `within [${number(action.floor)}, ${number(action.ceiling)}]` : "";
  return (
    <li>
      <b><Shown text={action.change} /></b> <span class="faint">{bounds}{action.pending && `, ${action.pending} was requested`}</span>{" "}
      <Go to="actions" run={run} params={{ id: action.id }} only>{action.pending ? "look" : "answer it"}</Go>
    </li>
  );
}

/** No alarm and no finding: what that means depends on the state, and only BLIND and STALE ask for something. */
function Quiet({ summary }: { summary: Summary }) {
  const { state, checks, steps } = summary;
  const missing = checks.filter((check) => !check.ok);
  if (steps === 0) {
    if (!summary.live) return <Row name="Now"><p>The run ended before a step was measured. If rollouts are stored: <code>tiltmeter watch RUN</code></p></Row>;
    return <Row name="Now"><p>The run has no measured step yet. This page fills by itself as the trainer stores rollouts and <code>tiltmeter watch RUN</code> measures them.</p></Row>;
  }
  if (state === "OK") return <Row name="Finding"><p>None. Nothing is open, and all conditions under which an alarm could have been raised hold.</p></Row>;
  if (state === "HOLLOW") return <Row name="Finding"><p>None that explains it. The reward pays for something that gold does not value: read what it pays most, and change the reward before training on.</p></Row>;
  if (state === "WATCH") return <Row name="Finding"><p>None that explains it. A warning has a measured rate of false alarms and no guarantee.</p></Row>;
  return (
    <>
      <Row name="Missing"><ul>{missing.map((check) => <li key={check.name}><b>{words(check.name)}</b>: <Shown text={check.why} /></li>)}</ul></Row>
      <Row name="To do">
        <ul>
          <Needs summary={summary} />
        </ul>
      </Row>
    </>
  );
}

function Asides({ asides, open }: { asides: string[]; open: boolean }) {
  if (!asides.length) return null;
  const list = <ul class="asides">{asides.map((text, k) => <li key={k}><Shown text={text} /></li>)}</ul>;
  return asides.length > 1 ? <details class="more" open={open}><summary>{asides.length} remarks on this verdict</summary>{list}</details> : list;
}

const KINDS: Record<Entry["kind"], string> = {
  alarm: "ALARM", warning: "warning", resolved: "resolved", finding: "finding", proposed: "proposed", did: "changed", outcome: "outcome",
  fault: "fault", segment: "settings", attempt: "attempt", end: "end", note: "note",
};
const LINES = 9;

/** Question 4: what happened since the last visit. */
function Since({ run, summary }: { run: string; summary: Summary }) {
  const { live } = useSource();
  const [all, setAll] = useState(false);
  const [left, setLeft] = useState<number | null>(null);
  useEffect(() => (live ? lastVisit(run, summary.now, setLeft) : undefined), [run, live]);
  const { entries, entries_left_out, now } = summary;
  const fresh = left === null ? entries : entries.filter((entry) => entry.time >= left);
  const nothing = left !== null && fresh.length === 0;
  const told = nothing || all ? entries : fresh;
  const shown = all ? told : told.slice(-LINES);
  const earlier = entries.length - shown.length;
  const title = left === null ? "What happened" : `Since you left (${clock(left, now)})`;
  return (
    <Card title={title} id="since" aside={entries_left_out > 0 ? `${count(entries_left_out)} earlier not shown` : undefined}>
      {nothing && <p class="faint">Nothing new. Before that:</p>}
      {!entries.length && <p class="faint">Nothing has happened yet.</p>}
      {(earlier > 0 || all) && entries.length > LINES && <button type="button" class="small" onClick={() => setAll(!all)}>{all ? "Show fewer" : `Show ${earlier} earlier`}</button>}
      <ol class="entries">{shown.map((entry, k) => <Line key={`${entry.time} ${k}`} run={run} entry={entry} now={now} />)}</ol>
    </Card>
  );
}

function Line({ run, entry, now }: { run: string; entry: Entry; now: number }) {
  const to: Screen | null = !entry.id ? null : entry.kind === "alarm" || entry.kind === "warning" || entry.kind === "resolved" ? "alarms" : "actions";
  const text = <Shown text={entry.text} limit={220} />;
  return (
    <li class={entry.kind}>
      <time dateTime={new Date(1000 * entry.time).toISOString()}>{clock(entry.time, now)}</time>
      <span class="step">{entry.step >= 0 ? `s${entry.step}` : ""}</span>
      <span class="kind"><Sign kind={entry.kind} /> {KINDS[entry.kind] ?? entry.kind}</span>
      <span class="what">{to ? <Go to={to} run={run} params={{ id: entry.id }}>{text}</Go> : text}</span>
    </li>
  );
}

/** Alarms filled, warnings hollow, actions a square: the same marks as on the plots. */
function Sign({ kind }: { kind: string }) {
  const drawn =
    kind === "alarm" ? <path d="M6 .8 11.6 11H.4Z" fill="currentColor" />
    : kind === "warning" ? <circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.6" />
    : kind === "did" || kind === "proposed" ? <rect x="2" y="2" width="8" height="8" fill={kind === "did" ? "currentColor" : "none"} stroke="currentColor" stroke-width="1.6" />
    : kind === "fault" ? <path d="M2 2 10 10M10 2 2 10" stroke="currentColor" stroke-width="1.8" />
    : kind === "resolved" ? <path d="M1.5 6.5 4.5 9.5 10.5 2.5" fill="none" stroke="currentColor" stroke-width="1.8" />
    : <circle cx="6" cy="6" r="1.6" fill="currentColor" />;
  return <svg class={`sign ${kind}`} viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">{drawn}</svg>;
}

const SOURCES: Record<Claim["source"], string> = { act: "act", behaviour: "behaviour", witness: "witness" };

/** What was done, in which step and turn, each beside how far it can be believed. Models wrote quotes and names. */
function Done({ run, table }: { run: string; table: Claims }) {
  const { claims, witness, remarks } = table;
  const { live } = useSource();
  if (!claims.length && !witness) return null;
  return (
    <Card title="What was done" id="done" aside="evidence, not a verdict">
      <ul class="claims">{claims.map((claim, k) => <Told key={k} run={run} claim={claim} />)}</ul>
      {witness && (
        <details class="more" open={!live || !claims.some((claim) => claim.source === "witness")}>
          <summary>What the witness rests on</summary>
          <p class="faint"><Shown text={witness} limit={120} /></p>
          <ul class="asides">{remarks.map((text, k) => <li key={k}><Shown text={text} /></li>)}</ul>
        </details>
      )}
    </Card>
  );
}

function Told({ run, claim }: { run: string; claim: Claim }) {
  const { source, says, own_words, many, paid, id, place, quote, accuracy } = claim;
  return (
    <li>
      <span class="source">{SOURCES[source]}</span>
      <div>
        <p><b><Shown text={says} limit={160} /></b>{own_words && <> (<Shown text={own_words} limit={120} />)</>}: <Shown text={many} />{paid && <>, <Shown text={paid} /></>}</p>
        {quote && <p class="quote">{id ? <Go to="rollouts" run={run} params={{ id }}>{place}</Go> : place}: <q><Shown text={quote} limit={160} /></q></p>}
        <p class={accuracy ? "accuracy" : "accuracy none"}>{accuracy ? <Shown text={accuracy} /> : "not calibrated"}</p>
      </div>
    </li>
  );
}

/** Slices side by side, the most suspicious first, and tasks that became solvable overnight. */
function Slices({ tables }: { tables: SliceTables }) {
  const { slices, slices_left_out, solved, solved_left_out } = tables;
  if (!slices.length && !solved.length) return null;
  const others = (many: number) => (many > 0 ? <p class="faint">and {count(many)} others</p> : null);
  return (
    <Card title={slices.length ? "Slices" : "Tasks that became solvable overnight"} id="slices">
      {slices.length > 0 && (
        <table role="table" aria-label="Slices, the most suspicious first">
          <thead><tr><th scope="col">slice</th><th scope="col">rollouts</th><th scope="col">reward</th><th scope="col">gold</th><th scope="col">odds</th><th scope="col">alarm</th></tr></thead>
          <tbody>
            {slices.map((row) => (
              <tr key={row.name}>
                <th scope="row"><Shown text={row.name} limit={60} /></th>
                <td>{count(row.rollouts)}</td><td>{number(row.reward)}</td><td>{number(row.gold, "?")}</td>
                <td>{row.evidence === null ? "–" : odds(row.evidence)}</td>
                <td>{row.since === null ? "" : <><Sign kind="alarm" /> since step {row.since}</>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {others(slices_left_out)}
      {solved.length > 0 && (
        <>
          {slices.length > 0 && <h3>Tasks that became solvable overnight</h3>}
          <ul>{solved.map((row) => <li key={row.task}><Shown text={row.task} limit={60} />: paid {percent(row.before)} of the time, and {percent(row.share)} of {count(row.rollouts)} rollouts since step {row.step}</li>)}</ul>
          {others(solved_left_out)}
        </>
      )}
    </Card>
  );
}

/** Question 5. */
function Proofs({ run, summary }: { run: string; summary: Summary }) {
  const { proves } = summary;
  if (!proves.length) return null;
  const many = ["", "One completion", "Two completions", "Three completions"][proves.length] ?? (proves.length === 10 ? "Ten completions" : `${proves.length} completions`);
  const title = summary.findings.length || summary.alarms.length ? `${many} that ${proves.length === 1 ? "shows" : "show"} it` : `${many} that ${proves.length === 1 ? "has" : "have"} the highest reward`;
  return (
    <Card title={title} id="proves" aside={<Go to="rollouts" run={run} only>all rollouts</Go>}>
      <ol class="proofs">
        {proves.map((one) => (
          <li key={one.id}>
            <Go to="rollouts" run={run} params={{ id: one.id }}>
              <span class="paid">reward {number(one.reward)}</span>
              <span class="paid">gold {number(one.gold, "?")}</span>
              <span class="text"><Shown text={one.text.replaceAll("\n", " ")} limit={260} /></span>
            </Go>
          </li>
        ))}
      </ol>
    </Card>
  );
}

function Tick({ ok }: { ok: boolean }) {
  return (
    <svg class={ok ? "tick" : "tick no"} viewBox="0 0 12 12" width="12" height="12" role="img" aria-label={ok ? "holds" : "fails"}>
      {ok ? <path d="M1.5 6.5 4.5 9.5 10.5 2.5" /> : <path d="M2 2 10 10M10 2 2 10" />}
    </svg>
  );
}

/** The checks behind the verdict. */
function Checks({ summary }: { summary: Summary }) {
  if (!summary.checks.length) return null;
  const failing = summary.checks.filter((check) => !check.ok).length;
  return (
    <section class="checks" aria-label="Conditions of the verdict">
      <h2>{failing ? `${failing} of ${summary.checks.length} conditions of a verdict fail` : `All ${summary.checks.length} conditions of a verdict hold`}</h2>
      <ul>
        {summary.checks.map((check) => (
          <li key={check.name} class={check.ok ? "" : "no"}><b><Tick ok={check.ok} /> {words(check.name)}</b><span><Shown text={check.why} limit={90} /></span></li>
        ))}
      </ul>
    </section>
  );
}
