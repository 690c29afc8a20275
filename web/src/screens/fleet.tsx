/** S0: every run, the worst state first. */
import { useEffect, useState } from "preact/hooks";
import "../fleet.css";
import { count, number, percent, span } from "../format";
import { Empty, Spark, StateMark, Trouble } from "../parts";
import { link } from "../route";
import { news, useData } from "../shared";
import { RunName, Shown, visible } from "../text";
import type { FleetRow, State, Fleet as Told } from "../types";

const MOST = 6;

export function compareLink(runs: string[]): string {
  return `#/compare?${new URLSearchParams(runs.map((run) => ["run", run]))}`;
}

export function Fleet() {
  const { data, error } = useData<Told>("/api/fleet");
  const [picked, setPicked] = useState<string[]>([]);
  const unread = data?.unread ?? 0;
  useEffect(() => {
    if (!unread) return;
    const timer = setTimeout(() => news.set(news.value + 1), 1000);
    return () => clearTimeout(timer);
  }, [data]);
  if (!data) return error ? <Trouble error={error} /> : <p class="waiting" aria-busy="true">Reading the runs…</p>;
  if (!data.total) return <First />;
  const toggle = (run: string) => setPicked((old) => (old.includes(run) ? old.filter((one) => one !== run) : [...old, run]));
  return (
    <>
      {error && <Trouble error={error} />}
      <Counts fleet={data} />
      <table class="fleet" role="table">
        <thead role="rowgroup">
          <tr role="row">
            <th role="columnheader" scope="col"><span class="unseen">Compare</span></th>
            {["State", "Run"].map((title) => <th key={title} role="columnheader" scope="col">{title}</th>)}
            <th role="columnheader" scope="col" class="number">Step</th>
            <th role="columnheader" scope="col" class="number">Last good</th>
            {["What", "Proxy and gold"].map((title) => <th key={title} role="columnheader" scope="col">{title}</th>)}
            <th role="columnheader" scope="col" class="number">KL</th>
            <th role="columnheader" scope="col">Last change</th>
          </tr>
        </thead>
        <tbody role="rowgroup">
          {data.runs.map((row) => <Row key={row.run} row={row} picked={picked.includes(row.run)} full={picked.length >= MOST} toggle={toggle} />)}
        </tbody>
      </table>
      {data.left_out > 0 && <Empty>{data.left_out} more runs, none of them in a worse state, are not shown. Open a folder with fewer: <code>tiltmeter view FOLDER</code></Empty>}
      {data.runs.length > 1 && (
        <p class="picked">
          {picked.length >= 2 ? <a class="button" href={compareLink(picked)}>Compare {picked.length} runs</a>
            : <span class="faint">Check 2 to {MOST} runs to compare them.</span>}
          {picked.length > 0 && <button type="button" onClick={() => setPicked([])}>Uncheck all</button>}
        </p>
      )}
    </>
  );
}

const WORDS: [State, string][] = [["ACT", "needs you"], ["HOLLOW", "hollow"], ["STALE", "stale"], ["BLIND", "blind"], ["WATCH", "to watch"]];

/** How many runs are in which state; what was not read yet, or cannot be, is said first. */
function Counts({ fleet }: { fleet: Told }) {
  const said = WORDS.map(([state, word]): [number, string] => [fleet.states[state] ?? 0, word]);
  return (
    <div class="counts">
      <h1>{fleet.total === 1 ? "1 run" : `${count(fleet.total)} runs`}</h1>
      {fleet.unread > 0 && <strong class="unread" role="status">{count(fleet.unread)} not read yet <progress max={fleet.total} value={fleet.total - fleet.unread} aria-label="Runs that were read" /></strong>}
      {fleet.unreadable > 0 && <strong>{fleet.unreadable} cannot be read</strong>}
      <span>{fleet.live} live</span>
      {said.filter(([n]) => n > 0).map(([n, word]) => <strong key={word}>{n} {word === "needs you" && n > 1 ? "need you" : word}</strong>)}
      {fleet.age_s !== null && <span class="end">newest data {span(fleet.age_s)} ago</span>}
    </div>
  );
}

function Row({ row, picked, full, toggle }: { row: FleetRow; picked: boolean; full: boolean; toggle: (run: string) => void }) {
  return (
    <tr role="row">
      <td role="cell" class="pick">
        <label><input type="checkbox" checked={picked} disabled={full && !picked} onChange={() => toggle(row.run)} aria-label={`Compare ${visible(row.name)}`} /></label>
      </td>
      <td role="cell" class="st"><StateMark state={row.state} /></td>
      <td role="cell" class="run">
        <a href={link("overview", row.run)}><RunName name={row.name} /></a>
        <div class="small">{row.unread ? "not read yet, " : ""}{row.live ? "live" : "ended"}{row.attempt > 0 ? `, attempt ${row.attempt}` : ""}</div>
      </td>
      <td role="cell" class="number" data-label="Step">{row.step < 0 ? "–" : row.step}</td>
      <td role="cell" class="number" data-label="Last good">{row.last_good ?? "–"}</td>
      <td role="cell" class="what" data-label="What"><Shown text={row.what} limit={160} /></td>
      <td role="cell" class="line">
        {row.picture ? <a class="thumb" href={link("overview", row.run)}><Drawn picture={row.picture} size="thumbnail" /></a> : <span class="faint">–</span>}
        {row.agreement && <div class="small" title={`the reward prefers the better of two answers in ${percent(row.agreement.share)}`}>agrees {percent(row.agreement.share)}</div>}
      </td>
      <td role="cell" class="number" data-label="KL">{number(row.kl)}</td>
      <td role="cell" class={row.did ? "did" : "did bare"} data-label="Last change">{row.did ? <Shown text={row.did} limit={80} /> : "–"}</td>
    </tr>
  );
}

function First() {
  return (
    <div class="first">
      <h1>No run here yet</h1>
      <p>A run appears as soon as it has recorded a step. Two recorded ones to look at, in seconds:</p>
      <pre tabIndex={0}>{"tiltmeter demo --keep runs\ntiltmeter view runs"}</pre>
      <p>With TRL, one line before <code>trainer.train()</code>:</p>
      <pre tabIndex={0}>{'import tiltmeter\n\ntiltmeter.attach(trainer, gold="checks.py:score")'}</pre>
      <p>In a loop of your own:</p>
      <pre tabIndex={0}>{'run = tiltmeter.open_run("runs/tonight")\nrun.observe(step=step, group=prompt_ids, reward=rewards, completion=texts)  # every step\nrun.close()'}</pre>
      <p>and beside it <code>tiltmeter run watch runs/tonight</code>, which measures the steps.</p>
    </div>
  );
}
