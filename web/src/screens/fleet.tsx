/** S0: every run, the worst state first. */
import { useEffect, useState } from "preact/hooks";
import "../fleet.css";
import { count, number, percent, span } from "../format";
import { Empty, StateMark, Trouble } from "../parts";
import { Drawn } from "../picture";
import { link } from "../route";
import { news, useAddress, useData, type Change } from "../shared";
import { Tags } from "../tags";
import { RunName, Shown, visible } from "../text";
import type { FleetRow, FleetSort, State, Fleet as Told } from "../types";

const MOST = 6;

export function compareLink(runs: string[]): string {
  return `#/compare?${new URLSearchParams(runs.map((run) => ["run", run]))}`;
}

type View = "list" | "table" | "wall";
const VIEWS: [View, string][] = [["list", "List"], ["table", "Table"], ["wall", "Wall"]];
const SORTS: [FleetSort, string][] = [["state", "worst first"], ["name", "name"], ["step", "step"], ["age", "age of the data"], ["gold", "gold"], ["lost", "gold lost"], ["kl", "KL"], ["labels", "labels"]];
const LIMITS: Record<View, number> = { list: 60, table: 400, wall: 400 };

export function Fleet({ params }: { params: URLSearchParams }) {
  const [told, change] = useAddress(params);
  const view = VIEWS.find(([name]) => name === told.get("view"))?.[0] ?? "list";
  const limit = Math.min(1000, Math.max(1, Number(told.get("limit")) || LIMITS[view]));
  const plain = !["find", "sort", "order", "group", "view", "limit"].some((name) => told.get(name)); // as it is asked for early
  const asked = plain ? {} : {
    find: told.get("find") ?? undefined, sort: told.get("sort") ?? undefined, order: told.get("order") ?? undefined,
    group: told.get("group") ?? undefined, limit, pictures: view === "table" ? 0 : 1,
  };
  const { data, error } = useData<Told>("/api/fleet", asked);
  const [picked, setPicked] = useState<string[]>([]);
  const unread = data?.unread ?? 0;
  useEffect(() => {
    if (!unread) return;
    const timer = setTimeout(() => news.set(news.value + 1), 1000);
    return () => clearTimeout(timer);
  }, [data]);
  if (!data) return error ? <Trouble error={error} /> : <p class="waiting" aria-busy="true">Reading the runs…</p>;
  const hidden = Object.values(data.hidden).reduce((sum, n) => sum + n, 0);
  if (!data.total && !hidden && !told.get("find")) return <First />;
  const toggle = (run: string) => setPicked((old) => (old.includes(run) ? old.filter((one) => one !== run) : [...old, run]));
  const group = told.get("group") ?? "";
  const parts = group ? data.groups.map((one) => ({ group: one, rows: data.runs.filter((row) => (row.settings[group] ?? "not known") === one.value) })).filter(({ rows }) => rows.length)
    : [{ group: null, rows: data.runs }];
  return (
    <>
      {error && <Trouble error={error} />}
      <Counts fleet={data} />
      {hidden > 0 && <Hidden fleet={data} many={hidden} show={() => change({ find: `${told.get("find") ?? ""} archived:any`.trim() })} />}
      {(data.total > 1 || told.get("find")) && <Chooser told={told} change={change} view={view} fleet={data} />}
      {group && data.groups.length > 1 && <p class="small"><a href={link("compare", "", { by: group, find: told.get("find") ?? undefined })}>Compare these {count(data.groups.length)} groups</a></p>}
      {!data.runs.length && <Empty>{data.unread ? "No run that was read so far is found." : "No run is found. Take a condition away."}</Empty>}
      {parts.map(({ group: one, rows }) => (
        <section key={one?.value ?? ""} aria-label={one ? `Runs with ${visible(group)} ${visible(one.value)}` : "Runs"}>
          {one && <h2 class="group"><Shown text={`${group} ${one.value}`} limit={120} /> <span class="faint">{said(one.states, one.runs)}{one.gold.n > 0 && `; gold ${number(one.gold.mean)}${one.gold.sd === null ? "" : ` ± ${number(one.gold.sd, "–", 2)}`} in ${one.gold.n}`}</span></h2>}
          {view === "wall" ? <Wall rows={rows} /> : rows.length > 0 && <Rows rows={rows} view={view} picked={picked} toggle={toggle} group={group} names={data.setting_names} />}
        </section>
      ))}
      {data.left_out > 0 && (
        <p class="picked">
          <span>{count(data.left_out)} more of the {count(data.matches)} runs that are found are not shown{(told.get("sort") ?? "state") === "state" && !group ? "; none of them is in a worse state" : ""}.</span>
          {limit < 1000 && <button type="button" onClick={() => change({ limit: Math.min(1000, limit * 2), view })}>Show more</button>}
        </p>
      )}
      {data.runs.length > 1 && view !== "wall" && (
        <p class="picked">
          {picked.length >= 2 ? <a class="button" href={compareLink(picked)}>Compare {picked.length} runs</a>
            : <span class="faint">Check 2 to {MOST} runs to compare them.</span>}
          {picked.length > 0 && <button type="button" onClick={() => setPicked([])}>Uncheck all</button>}
        </p>
      )}
    </>
  );
}

function said(states: Told["states"], runs: number): string {
  const parts = WORDS.map(([state, word]) => [states[state] ?? 0, word] as const).filter(([n]) => n > 0).map(([n, word]) => `${n} ${word === "needs you" && n > 1 ? "need you" : word}`);
  return [`${runs} ${runs === 1 ? "run" : "runs"}`, ...parts].join(", ");
}

/** Which runs, in which order and groups, and how they are shown: all in the address. */
function Chooser({ told, change, view, fleet }: { told: URLSearchParams; change: (change: Change) => void; view: View; fleet: Told }) {
  const [typed, setTyped] = useState(told.get("find") ?? "");
  useEffect(() => setTyped(told.get("find") ?? ""), [told]);
  return (
    <form class="chooser" role="search" onSubmit={(event) => { event.preventDefault(); change({ find: typed }); }}>
      <label>Find <input type="search" value={typed} maxLength={300} spellcheck={false} placeholder="words, /name/, state:act, tag:keep, live:yes, beta=0.1" onInput={(e) => setTyped(e.currentTarget.value)} onChange={(e) => change({ find: e.currentTarget.value })} /></label>
      {told.get("find") && <span class="faint">{count(fleet.matches)} of {count(fleet.total)}</span>}
      <label>Sort <select value={told.get("sort") ?? "state"} onChange={(e) => change({ sort: e.currentTarget.value === "state" ? undefined : e.currentTarget.value })}>
        {SORTS.map(([value, title]) => <option key={value} value={value}>{title}</option>)}
      </select></label>
      {told.get("sort") && <button type="button" onClick={() => change({ order: told.get("order") === "up" ? undefined : "up" })}>{told.get("order") === "up" ? "lowest first" : "highest first"}</button>}
      {(fleet.setting_names.length > 0 || told.get("group")) && (
        <label>Group by <select value={told.get("group") ?? ""} onChange={(e) => change({ group: e.currentTarget.value || undefined })}>
          <option value="">nothing</option>
          {[...new Set([...fleet.setting_names, ...(told.get("group") ? [told.get("group") as string] : [])])].map((name) => <option key={name} value={name}>{visible(name)}</option>)}
        </select></label>
      )}
      <span class="end">{VIEWS.map(([name, title]) => <button key={name} type="button" aria-pressed={view === name} onClick={() => change({ view: name === "list" ? undefined : name, limit: undefined })}>{title}</button>)}</span>
    </form>
  );
}

/** A hundred runs in one look: each a picture in the colour of its state. */
function Wall({ rows }: { rows: FleetRow[] }) {
  return (
    <ul class="wall plain">
      {rows.map((row) => (
        <li key={row.run} class={`tile ${row.state.toLowerCase()}`}>
          <a href={link("overview", row.run)} title={visible(row.what)}>
            <span class="tile-head"><StateMark state={row.state} /> <span class="faint">{row.live ? (row.step < 0 ? "–" : row.step) : ""}</span></span>
            {row.picture ? <Drawn picture={row.picture} size="thumbnail" /> : <span class="faint">–</span>}
            <span class="tile-name"><RunName name={row.name} /></span>
            {row.archived && <span class="small">archived</span>}
          </a>
        </li>
      ))}
    </ul>
  );
}

interface RowsProps {
  rows: FleetRow[];
  view: View;
  picked: string[];
  toggle: (run: string) => void;
  group: string;
  names: string[];
}

function Rows({ rows, view, picked, toggle, group, names }: RowsProps) {
  const dense = view === "table";
  const columns = dense ? names.filter((name) => name !== group).slice(0, 4) : [];
  return (
    <table class={dense ? "fleet dense" : "fleet"} role="table">
      <thead role="rowgroup">
        <tr role="row">
          <th role="columnheader" scope="col"><span class="unseen">Compare</span></th>
          {["State", "Run"].map((title) => <th key={title} role="columnheader" scope="col">{title}</th>)}
          <th role="columnheader" scope="col" class="number">Step</th>
          <th role="columnheader" scope="col" class="number">Last good</th>
          <th role="columnheader" scope="col">What</th>
          {dense ? <th role="columnheader" scope="col" class="number">Gold</th> : <th role="columnheader" scope="col">Proxy and gold</th>}
          <th role="columnheader" scope="col" class="number">KL</th>
          {dense ? columns.map((name) => <th key={name} role="columnheader" scope="col"><Shown text={name} limit={24} /></th>) : <th role="columnheader" scope="col">Last change</th>}
        </tr>
      </thead>
      <tbody role="rowgroup">
        {rows.map((row) => <Row key={row.run} row={row} columns={dense ? columns : null} picked={picked.includes(row.run)} full={picked.length >= MOST} toggle={toggle} />)}
      </tbody>
    </table>
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

/** Archived runs are not shown, but never unmentioned: those that need a person are counted. */
function Hidden({ fleet, many, show }: { fleet: Told; many: number; show: () => void }) {
  const words = WORDS.map(([state, word]) => [fleet.hidden[state] ?? 0, word] as const).filter(([n]) => n > 0).map(([n, word]) => `${n} ${word === "needs you" && n > 1 ? "need you" : word}`);
  const urgent = (fleet.hidden.ACT ?? 0) + (fleet.hidden.HOLLOW ?? 0) > 0;
  const text = `${count(many)} archived ${many === 1 ? "run is" : "runs are"} hidden${words.length ? `: ${words.join(", ")}` : ""}.`;
  return <p class="hidden-runs" role="status">{urgent ? <strong>{text}</strong> : <span class="faint">{text}</span>} <button type="button" class="slim" onClick={show}>Show</button></p>;
}

function Row({ row, columns, picked, full, toggle }: { row: FleetRow; columns: string[] | null; picked: boolean; full: boolean; toggle: (run: string) => void }) {
  const life = `${row.unread ? "not read yet, " : ""}${row.archived ? "archived, " : ""}${row.live ? "live" : "ended"}${row.attempt > 0 ? `, attempt ${row.attempt}` : ""}`;
  return (
    <tr role="row">
      <td role="cell" class="pick">
        <label><input type="checkbox" checked={picked} disabled={full && !picked} onChange={() => toggle(row.run)} aria-label={`Compare ${visible(row.name)}`} /></label>
      </td>
      <td role="cell" class="st"><StateMark state={row.state} /></td>
      <td role="cell" class="run">
        <a href={link("overview", row.run)}><RunName name={row.name} /></a>
        {columns ? <span class="small"> {life}</span> : <div class="small">{life}</div>} <Tags tags={row.tags} />
      </td>
      <td role="cell" class="number" data-label="Step">{row.step < 0 ? "–" : row.step}</td>
      <td role="cell" class="number" data-label="Last good">{row.last_good ?? "–"}</td>
      <td role="cell" class="what" data-label="What"><Shown text={row.what} limit={columns ? 70 : 160} /></td>
      {columns ? <td role="cell" class="number" data-label="Gold">{row.level ? number(row.level.now) : <span class="faint" title="no gold">?</span>}</td> : (
        <td role="cell" class="line">
          {row.picture ? <a class="thumb" href={link("overview", row.run)}><Drawn picture={row.picture} size="thumbnail" /></a> : <span class="faint">–</span>}
          {row.agreement && <div class="small" title={`the reward prefers the better of two answers in ${percent(row.agreement.share)}`}>agrees {percent(row.agreement.share)}</div>}
        </td>
      )}
      <td role="cell" class="number" data-label="KL">{number(row.kl)}</td>
      {columns ? columns.map((name) => <td key={name} role="cell" data-label={visible(name)}>{row.settings[name] === undefined ? <span class="faint">–</span> : <Shown text={row.settings[name] ?? ""} limit={24} />}</td>)
        : <td role="cell" class={row.did ? "did" : "did bare"} data-label="Last change">{row.did ? <Shown text={row.did} limit={80} /> : "–"}</td>}
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
      <p>and beside it <code>tiltmeter watch runs/tonight</code>, which measures the steps.</p>
    </div>
  );
}
