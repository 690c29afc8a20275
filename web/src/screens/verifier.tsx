/** S7: the verifier: canaries, sandbox, errors, and audits with forgeries. */
import "../screens.css";
import { clock, count, number, percent } from "../format";
import type { ScreenProps } from "../head";
import { Card, Empty, Trouble } from "../parts";
import { useData } from "../shared";
import { Shown } from "../text";
import type { AuditRow, Verifier as Told } from "../types";

export function Verifier({ run, summary }: ScreenProps) {
  const { data, error } = useData<Told>("/api/verifier", { run });
  if (!data) return error ? <Trouble error={error} /> : <p class="waiting" aria-busy="true">…</p>;
  return (
    <>
      {error && <Trouble error={error} />}
      <div class="verifier">
        <Card title="Canaries by worker" aside="answers known to be right or wrong, scored with each batch" wide>
          {data.workers.length ? <Workers told={data} /> : <Empty>No canary was asked in this run. Give the reward some: <code>rewards.canaried(reward, Known.pair(prompt, right, wrong))</code></Empty>}
        </Card>
        {data.canaries.length > 0 && <Card title="Canaries by text"><Canaries rows={data.canaries} /></Card>}
        <Card title="Sandbox and errors"><Errors told={data} now={summary.now} /></Card>
        {data.audits.length === 0 && (
          <Card title="Forgeries" wide>
            <Empty>No audit is kept with this run. Which forgeries does the reward pay? <code>tiltmeter probe REWARD --tasks FILE --run RUN</code></Empty>
          </Card>
        )}
        {data.audits.map((audit, k) => <Forgeries key={audit.time} audit={audit} now={summary.now} open={k === 0} />)}
        {data.damaged > 0 && <p class="faint small">{count(data.damaged)} stored audits cannot be read.</p>}
      </div>
    </>
  );
}

function Workers({ told }: { told: Told }) {
  return (
    <>
      <ul class="workers">
        {told.workers.map((row) => (
          <li key={`${row.kind} ${row.worker}`}>
            <span class="who">worker {row.worker}{row.kind === "judge" ? " (judge)" : ""}</span>
            <Strip cells={row.cells} label={`Worker ${row.worker}: ${row.failed} of ${row.asked} canaries mis-scored`} />
            <span class="tally">
              {row.failed > 0 ? <strong class="flag">{count(row.failed)} of {count(row.asked)} wrong, first at step {row.first}</strong> : <>0 of {count(row.asked)} wrong</>}
            </span>
          </li>
        ))}
      </ul>
      <p class="faint small">
        One mark for {told.workers[0]?.width === 1 ? "each step" : `${told.workers[0]?.width} steps`}: small where all canaries were scored as they should, a full block where one was not, and none where none was asked.
        {told.unanswered > 0 && ` ${count(told.unanswered)} canaries got no score.`}
        {told.workers_left_out > 0 && ` ${count(told.workers_left_out)} more workers are not shown.`}
      </p>
    </>
  );
}

/** Spans of steps: never colour alone, a failure is also another shape. */
function Strip({ cells, label }: { cells: Told["workers"][number]["cells"]; label: string }) {
  return (
    <svg class="strip" viewBox={`0 0 ${cells.length * 6} 14`} preserveAspectRatio="none" role="img" aria-label={label}>
      {cells.map((cell, k) => (cell === null ? null : cell > 0 ? <rect key={k} class="no" x={6 * k} y="0" width="6" height="14" /> : <rect key={k} class="yes" x={6 * k + 1.5} y="6" width="3" height="3" />))}
    </svg>
  );
}

function Canaries({ rows }: { rows: Told["canaries"] }) {
  return (
    <table>
      <thead><tr><th scope="col">Answer</th><th scope="col">Known to be</th><th scope="col" class="number">Mis-scored</th></tr></thead>
      <tbody>
        {rows.map((row) => (
          <tr key={`${row.kind} ${row.number}`}>
            <th scope="row">{!row.named ? `canary ${row.number}` : row.text === "" ? <span class="faint">(empty)</span> : <Shown text={row.text} limit={80} />}</th>
            <td>{row.expect === "high" ? "right" : row.expect === "low" ? "wrong" : "–"}{row.kind === "judge" ? ", judge" : ""}</td>
            <td class="number">{row.failed > 0 ? <strong class="flag">{count(row.failed)}/{count(row.asked)}</strong> : `0/${count(row.asked)}`}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Errors({ told, now }: { told: Told; now: number }) {
  const { errors, sandboxes, attached } = told;
  return (
    <>
      <dl class="sheet">
        {sandboxes.length === 0 && <div><dt>Sandbox</dt><dd>none recorded</dd></div>}
        {sandboxes.map((box, k) => (
          <div key={k}><dt>Sandbox of <Shown text={box.reward} limit={60} /></dt><dd><Shown text={box.tier} limit={40} />, <Shown text={box.isolation} limit={40} />{attached !== null && <>; self-test passed {clock(attached, now)}</>}</dd></div>
        ))}
        <div><dt>Could not be graded (kept as missing)</dt><dd>{errors.infra > 0 ? <strong class="flag">{count(errors.infra)}</strong> : "0"} of {count(errors.rows)}</dd></div>
        <div><dt>Not scored for other reasons</dt><dd>{count(errors.unscored)}{errors.rows > 0 && errors.unscored > 0 ? ` (${percent(errors.unscored / errors.rows)})` : ""}</dd></div>
        <div><dt>Errors counted as wrong answers</dt><dd>0</dd></div>
      </dl>
      <p class="faint small">An error that the reward function itself turns into a 0 cannot be seen from here; an audit finds it.</p>
    </>
  );
}

const WORDS = { "none paid": "no forgery was paid", "some paid": "can be paid without doing the work", "could not judge": "could not be judged" };
const HELD = { yes: "held", no: "failed", unknown: "not seen" };

function Forgeries({ audit, now, open }: { audit: AuditRow; now: number; open: boolean }) {
  const bad = audit.tried.filter((row) => row.status !== "not paid");
  const good = audit.tried.filter((row) => row.status === "not paid");
  const failed = audit.checks.filter((check) => check.ok === false);
  const verdict = <>{audit.verdict === "some paid" ? <strong class="flag">{WORDS[audit.verdict]}</strong> : WORDS[audit.verdict]}, {clock(audit.time, now)}</>;
  return (
    <Card title="Forgeries" aside={verdict} wide>
      <p><Shown text={audit.reward} limit={120} /> <span class="faint">{count(audit.judged)} of {count(audit.tasks)} tasks tell right from wrong{audit.network === "denied" ? ", without a network" : ""}.</span></p>
      {audit.summary && <p class="faint"><Shown text={audit.summary} limit={300} /></p>}
      {bad.length > 0 && <Tried rows={bad} />}
      {failed.length > 0 && <Held checks={failed} />}
      {good.length + audit.checks.length > failed.length && (
        <details class="more" open={open && bad.length === 0 && failed.length === 0}>
          <summary>{count(good.length)} forgeries not paid, {count(audit.checks.filter((check) => check.ok === true).length)} checks held</summary>
          <ul class="plain columns">{good.map((row) => <li key={row.forgery}><Shown text={row.forgery} limit={100} /></li>)}</ul>
          <Held checks={audit.checks.filter((check) => check.ok !== false)} />
        </details>
      )}
    </Card>
  );
}

function Tried({ rows }: { rows: AuditRow["tried"] }) {
  return (
    <ul class="plain tried">
      {rows.map((row) => (
        <li key={row.forgery}>
          <span><b><Shown text={row.forgery} limit={100} /></b> {row.status === "paid" ? <strong class="flag">paid, {count(row.paid)} of {count(row.tasks)}</strong> : <span class="unsure">could not judge</span>} <span class="faint">{row.score !== null && <>score {number(row.score)}; </>}<Shown text={row.cause} limit={240} /></span></span>
          {row.status === "paid" && <span>Fix: <Shown text={row.fix} limit={240} /></span>}
          <details><summary>The text</summary>{row.text === "" ? <p class="faint">An empty text.</p> : <div class="text" tabIndex={0} role="group" aria-label="Text of the forgery"><Shown text={row.text} limit={2000} block /></div>}</details>
        </li>
      ))}
    </ul>
  );
}

function Held({ checks }: { checks: AuditRow["checks"] }) {
  return (
    <ul class="conditions">
      {checks.map((check) => {
        const state = check.ok === null ? "unknown" : check.ok ? "yes" : "no";
        return (
          <li key={check.name}>
            <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" class={state}>
              <path d={state === "yes" ? "M2 8.5 6.2 13 14 3.5" : state === "no" ? "M3 3 13 13M13 3 3 13" : "M3 8h10"} fill="none" stroke="currentColor" stroke-width="2.4" />
            </svg>
            <span><b>{HELD[state]}: <Shown text={check.name} limit={100} /></b> <span class="faint"><Shown text={check.says} limit={300} /></span>{check.ok === false && <> Fix: <Shown text={check.fix} limit={240} /></>}</span>
          </li>
        );
      })}
    </ul>
  );
}
