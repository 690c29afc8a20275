/** S2: the rollouts themselves. Filters on top, a list, and the one that is open against the same prompt at the start. */
import { useEffect, useRef, useState } from "preact/hooks";
import "../screens.css";
import "../tags.css";
import { count, number } from "../format";
import type { ScreenProps } from "../head";
import { lazy } from "../lazy";
import { Figure, Gold, type How } from "../panes";
import { SavedViews } from "../notes";
import { Empty, Trouble } from "../parts";
import { news, useAddress, useKeys, useShared, useSource, type Change } from "../shared";
import { Refused, type Params } from "../source";
import { Marked, Shown, visible } from "../text";
import type { RolloutPage as Page, RolloutRow } from "../types";
import type { RoomProps } from "../reading/room";
import { Opened } from "./rollout";

const Room = lazy<RoomProps>(() => import("../reading/room").then((m) => m.Room));

const NUMBERS = ["from", "to", "reward_min", "reward_max", "gold_min", "gold_max", "length_min", "length_max"] as const;
const ASKED = [...NUMBERS, "attempt", "labelled", "truncated", "flagged", "disagree", "phrase", "find", "sort", "order"];
const LIMIT = 50;

export function Rollouts({ run, summary, params }: ScreenProps) {
  const [told, change] = useAddress(params);
  const asked: Params = Object.fromEntries(ASKED.map((name) => [name, told.get(name) ?? undefined]));
  const pages = usePages(run, asked);
  const [how, setHow] = useState<How>("diff");
  const list = useRef<HTMLUListElement>(null);
  const id = told.get("id") ?? pages.rows[0]?.id ?? "";
  const at = useRef(0);
  const found = pages.rows.findIndex((row) => row.id === id);
  if (found >= 0) at.current = found;
  const open = (wanted: string | undefined) => wanted && change({ id: wanted, left: undefined, right: undefined });
  const layout = told.get("layout") === "pair" ? "pair" : told.get("layout") === "group" ? "group" : "list";
  const full = told.get("full") === "1";
  useEffect(() => {
    document.body.classList.toggle("reading-full", full);
    return () => document.body.classList.remove("reading-full");
  }, [full]);
  const move = (by: number) => {
    const next = Math.max(0, Math.min(pages.rows.length - 1, at.current + by));
    if (by > 0 && next === pages.rows.length - 1) pages.more();
    open(pages.rows[next]?.id);
    const button = list.current?.querySelectorAll<HTMLElement>("button.index-row")[next];
    button?.scrollIntoView({ block: "nearest" });
    if (list.current?.contains(document.activeElement)) button?.focus({ preventScroll: true });
  };
  /** To a rollout of another group, in the order of the list. */
  const moveGroup = (by: number) => {
    const here = pages.rows[at.current];
    let next = at.current + by;
    while (here && same(pages.rows[next], here)) next += by;
    if (by > 0 && next >= pages.rows.length - 1) pages.more();
    open(pages.rows[next]?.id);
  };
  useKeys((key, event) => {
    if (key === "/") event.preventDefault(); // it is not typed into the field
    if (key === "j") layout === "list" ? move(1) : moveGroup(1);
    else if (key === "k") layout === "list" ? move(-1) : moveGroup(-1);
    else if (key === "f") change({ full: full ? undefined : "1" });
    else if (key === "Escape" && full) change({ full: undefined });
    else if (key === "1" || key === "2" || key === "3") change({ layout: key === "1" ? undefined : LAYOUTS[Number(key) - 1]?.[0] });
    else if (key === "m" && layout !== "list") change({ show: told.get("show") === "rendered" ? undefined : "rendered" });
    else if (key === "n" || key === "N") {
      if (!nextHit(key === "n" ? 1 : -1)) move(key === "n" ? 1 : -1);
    } else if (key === "/") document.querySelector<HTMLInputElement>("#find")?.focus();
    else if (key === "d") setHow((old) => (old === "diff" ? "plain" : "diff"));
    else if (key === "m") setHow((old) => (old === "markdown" ? "plain" : "markdown"));
  });
  return (
    <div class="rollouts">
      <div class="above-list">
        <LayoutChoice layout={layout} full={full} change={change} />
        <FindBar told={told} change={change} error={pages.error} />
        <SavedViews run={run} step={summary.step} here={savedAddress(told)} />
      </div>
      <FilterBar key={layout} open={layout === "list"} told={told} change={change} attempts={summary.lanes.map((lane) => lane.attempt)} />
      {pages.error && <Trouble error={pages.error} />}
      {layout !== "list" && <>{!pages.busy && !pages.error && !id && <Empty>{nothing(pages)}</Empty>}</>}
      {layout !== "list" && id && <Room run={run} id={id} find={told.get("find") ?? quoted(told.get("phrase"))} step={summary.step} layout={layout} told={told} change={change} move={moveGroup} totals={<Totals pages={pages} />} />}
      {layout === "list" && <div class="browse">
        <section class="listing" aria-label="Rollouts that match">
          <Totals pages={pages} />
          <ul ref={list} class="index" aria-busy={pages.busy || pages.ready < 1} hidden={!pages.rows.length}>
            {pages.rows.map((row) => <li key={row.id}><EntryButton row={row} open={row.id === id} choose={open} /></li>)}
            {pages.after && <li><button type="button" class="full" onClick={pages.more} aria-disabled={pages.busy}>{pages.busy ? "…" : "More"}</button></li>}
          </ul>
          {!pages.busy && !pages.error && pages.rows.length === 0 && <Empty>{nothing(pages)}</Empty>}
        </section>
        {id ? <Opened run={run} step={summary.step} now={summary.now} id={id} find={told.get("find") ?? quoted(told.get("phrase"))} how={how} setHow={setHow} open={open} move={move} />
          : <div class="opened" />}
      </div>}
    </div>
  );
}

/** What a saved view holds: the query and how it is looked at, and not which rollout is open. */
function savedAddress(told: URLSearchParams): string {
  const kept = new URLSearchParams([...told].filter(([name]) => !["id", "left", "right", "full"].includes(name)));
  return kept.toString() ? `rollouts?${kept}` : "rollouts";
}

function same(a: RolloutRow | undefined, b: RolloutRow): boolean {
  return a !== undefined && a.attempt === b.attempt && a.step === b.step && a.group === b.group;
}

const LAYOUTS: ["list" | "pair" | "group", string][] = [["list", "list"], ["pair", "pair"], ["group", "group"]];

function LayoutChoice({ layout, full, change }: { layout: string; full: boolean; change: (change: Change) => void }) {
  return (
    <div class="layouts">
      <div class="choice" role="group" aria-label="Layout">
        <span class="faint">layout</span>
        {LAYOUTS.map(([name, title], k) => <button key={name} type="button" aria-pressed={layout === name} onClick={() => change({ layout: name === "list" ? undefined : name })}>{title} <kbd>{k + 1}</kbd></button>)}
      </div>
      <button type="button" class="slim" aria-pressed={full} onClick={() => change({ full: full ? undefined : "1" })}>{full ? "Leave full screen" : "Full screen"} <kbd>f</kbd></button>
    </div>
  );
}

interface Pages {
  rows: RolloutRow[];
  total: number;
  rollouts: number; // in the index
  after: string;
  ready: number;
  searched?: number;
  to_search?: number;
  unsearchable?: number;
  ms: number;
  busy: boolean;
  newer: boolean; // rollouts came since the list was made
  error: Refused | null;
  more: () => void;
  again: () => void;
}

/** Pages of one question, added below each other. What a reader looks at does not move when the run goes on. */
function usePages(run: string, asked: Params): Pages {
  const source = useSource();
  const fresh = useShared(news);
  const key = JSON.stringify([run, asked]);
  const [turn, setTurn] = useState(0);
  const made = useRef(fresh);
  const loading = useRef(false);
  const none = { rows: [], total: 0, rollouts: 0, after: "", ready: 1, ms: 0, busy: true, error: null };
  const [state, setState] = useState<Omit<Pages, "more" | "again" | "newer">>(none);
  const fetchPage = (after: string, signal?: AbortSignal) => {
    loading.current = true;
    setState((old) => ({ ...old, busy: true, error: null }));
    source
      .get<Page>("/api/rollouts", { run, ...asked, limit: LIMIT, after }, signal)
      .then((page) => {
        if (signal?.aborted) return;
        loading.current = false;
        setState((old) => ({ ...page, rows: after ? [...old.rows, ...page.rows] : page.rows, busy: false, error: null }));
      })
      .catch((error: unknown) => {
        if (signal?.aborted) return;
        loading.current = false;
        const refused = error instanceof Refused ? error : new Refused(0, "the server does not answer");
        setState((old) => ({ ...old, busy: false, error: refused }));
      });
  };
  useEffect(() => {
    made.current = news.value;
    const abort = new AbortController();
    fetchPage("", abort.signal);
    return () => abort.abort();
  }, [source, key, turn]);
  const going = state.ready < 1 || left(state) > 0;
  useEffect(() => {
    // More may have been found meanwhile; the list of somebody who has paged on stays as it is.
    if (!going || state.busy || state.error || (state.ready >= 1 && state.rows.length > LIMIT)) return;
    const timer = setTimeout(() => setTurn((old) => old + 1), 400);
    return () => clearTimeout(timer);
  }, [going, state.busy, state.error, turn]);
  return {
    ...state,
    newer: fresh > made.current && !state.busy,
    more: () => state.after && !loading.current && fetchPage(state.after),
    again: () => setTurn((old) => old + 1),
  };
}

/** Rows whose texts are still to be searched. */
function left({ searched = 0, to_search = 0, unsearchable = 0 }: Pick<Pages, "searched" | "to_search" | "unsearchable">): number {
  return to_search - searched - unsearchable;
}

/** A phrase as a query, so that it is marked in the open text. */
function quoted(phrase: string | null): string {
  return phrase ? `text:"${phrase.replace(/["\\]/g, "\\$&")}"` : "";
}

/** Go to the next place that was found in the open text; false: there is none further on. */
function nextHit(by: number): boolean {
  const hits = [...document.querySelectorAll<HTMLElement>(".opened mark.hit")];
  const here = hits.findIndex((one) => one.classList.contains("here"));
  const next = hits[here < 0 ? (by > 0 ? 0 : hits.length - 1) : here + by];
  hits[here]?.classList.remove("here");
  next?.classList.add("here");
  next?.scrollIntoView({ block: "center" });
  return next !== undefined;
}

function nothing(pages: Pages): string {
  if (pages.ready < 1) return "The run is still being read.";
  if (left(pages) > 0) return "Nothing so far; the search goes on.";
  if (pages.unsearchable) return `Nothing in the texts that are stored; ${count(pages.unsearchable)} rollouts have none, or none that can be read.`;
  return pages.rollouts ? "No rollout matches. Take a filter away." : "No rollout has been recorded yet.";
}

function Totals({ pages }: { pages: Pages }) {
  const { searched, to_search: of, unsearchable = 0 } = pages;
  const first = !pages.rows.length && pages.busy && searched === undefined;
  return (
    <p class="totals">
      <span role="status">{first || (pages.ready < 1 && !pages.rows.length) ? "…" : `${count(pages.rows.length)} of ${count(pages.total)}${left(pages) > 0 ? " so far" : ""}`}</span>
      {searched !== undefined && of !== undefined && (
        <span>
          {"searched "}{count(searched)} of {count(of)}{unsearchable ? `, ${count(unsearchable)} without readable text` : ""}
          {left(pages) > 0 && <> <progress value={searched} max={of} aria-label="Share of the rollouts whose texts were searched" /> newest first, it goes on</>}
        </span>
      )}
      {pages.ready < 1 && <span>reading the run: <progress value={pages.ready} max={1} aria-label="Share of the run that is indexed" /> {Math.floor(100 * pages.ready)} %</span>}
      {pages.newer && pages.ready >= 1 && <button type="button" class="slim" onClick={pages.again}>Newer rollouts</button>}
    </p>
  );
}

function EntryButton({ row, open, choose }: { row: RolloutRow; open: boolean; choose: (id: string) => void }) {
  return (
    <button type="button" class="index-row" aria-current={open ? "true" : undefined} onClick={() => choose(row.id)}>
      <span class="figures">
        <span>s{row.step}</span> <span>g{row.group}</span>
        <b><Figure value={row.reward} flag={row.flag} /></b>
        <span>gold <Gold value={row.gold} /></span>
        {row.length !== null && <span>{number(row.length)} tok</span>}
        {row.truncated && <span class="flag">cut</span>}
        {row.tags.map((tag) => <span key={tag} class="tag">{visible(tag)}</span>)}
        {row.notes > 0 && <span class="faint">{row.notes === 1 ? "1 note" : `${row.notes} notes`}</span>}
      </span>
      <span class="begin">{row.hit ? <Marked text={row.text} hits={[row.hit]} where={row.hit.where} /> : <Shown text={row.text} limit={90} />}</span>
    </button>
  );
}

/** The query line: the same words as on the command line. */
function FindBar({ told, change, error }: { told: URLSearchParams; change: (change: Change) => void; error: Refused | null }) {
  return (
    <form class="find" role="search" onSubmit={(event) => event.preventDefault()}>
      <label for="find">Find <kbd>/</kbd></label>
      <Field type="search" id="find" maxLength={500} spellcheck={false} value={told.get("find") ?? ""} set={(find) => change({ find, id: undefined })}
        placeholder={'"words" text~/exit\\(\\d\\)/i prompt:"sum" gold<0.3 tag:cheats step:100.. sort:gap'} aria-invalid={error?.status === 400} aria-describedby="find-help" />
      <span id="find-help" class="faint small"><kbd>n</kbd> <kbd>N</kbd> next and previous hit; <kbd>i</kbd> after quotes or slashes ignores case</span>
    </form>
  );
}

const SORTS: [string, string][] = [["step", "step"], ["reward", "reward"], ["gold", "gold"], ["length", "length"], ["gap", "reward above gold"]];

function FilterBar({ open, told, change, attempts }: { open: boolean; told: URLSearchParams; change: (change: Change) => void; attempts: number[] }) {
  const active = ASKED.filter((name) => name !== "sort" && name !== "order" && told.get(name)).length;
  const [start] = useState(() => open && matchMedia("(min-width: 701px)").matches);
  const set = (patch: Change) => change({ ...patch, id: undefined });
  const clear = () => set(Object.fromEntries([...ASKED, "id"].map((name) => [name, undefined])));
  return (
    <details class="filters" open={start}>
      <summary>Filters{active ? ` (${active})` : ""}</summary>
      <form onSubmit={(event) => event.preventDefault()}>
        <Range title="Steps" low="from" high="to" told={told} set={set} step="1" />
        <Range title="Reward" low="reward_min" high="reward_max" told={told} set={set} />
        <Range title="Gold" low="gold_min" high="gold_max" told={told} set={set} />
        <Range title="Length" low="length_min" high="length_max" told={told} set={set} step="1" />
        {told.get("phrase") && <button type="button" class="slim" onClick={() => set({ phrase: undefined })}>Not only with “<Shown text={told.get("phrase") ?? ""} limit={40} />”</button>}
        <Choice name="labelled" title="Gold label" told={told} set={set} />
        <Choice name="truncated" title="Cut off" told={told} set={set} />
        <Box name="disagree" title="Components disagree" told={told} set={set} />
        <Box name="flagged" title="Reward not a number" told={told} set={set} />
        {attempts.length > 1 && (
          <label class="pair">Attempt
            <select value={told.get("attempt") ?? ""} onChange={(e) => set({ attempt: e.currentTarget.value })}>
              <option value="">current lineage</option>
              {attempts.map((attempt) => <option key={attempt} value={String(attempt)}>all of {attempt}</option>)}
            </select>
          </label>
        )}
        <label class="pair">Sort
          <select value={told.get("sort") ?? "step"} onChange={(e) => set({ sort: e.currentTarget.value })}>
            {SORTS.map(([value, title]) => <option key={value} value={value}>{title}</option>)}
          </select>
        </label>
        <label class="pair"><span class="unseen">Order</span>
          <select value={told.get("order") ?? "down"} onChange={(e) => set({ order: e.currentTarget.value })}>
            <option value="down">highest first</option>
            <option value="up">lowest first</option>
          </select>
        </label>
        {active > 0 && <button type="button" class="slim" onClick={clear}>Clear</button>}
      </form>
    </details>
  );
}

interface FieldProps {
  told: URLSearchParams;
  set: (change: Change) => void;
  title: string;
}

interface FieldAttributes {
  type: "search" | "number";
  value: string;
  set: (value: string) => void;
  size?: number;
  id?: string;
  spellcheck?: boolean;
  "aria-invalid"?: boolean;
  "aria-describedby"?: string;
  maxLength?: number;
  step?: string;
  placeholder?: string;
  "aria-label"?: string;
}

/** A field that takes effect when it is left or Enter is pressed, so that half a number asks for nothing. */
function Field({ value, set, type, ...others }: FieldAttributes) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  return <input {...others} type={type as "number"} value={typed} onInput={(e) => setTyped(e.currentTarget.value)} onChange={(e) => e.currentTarget.validity.valid && set(e.currentTarget.value)} />;
}

function Range({ title, low, high, told, set, step = "any" }: FieldProps & { low: string; high: string; step?: string }) {
  return (
    <fieldset class="pair">
      <legend>{title}</legend>
      {[low, high].map((name, k) => (
        <Field key={name} type="number" step={step} aria-label={`${title} ${k ? "at most" : "at least"}`} placeholder={k ? "to" : "from"}
          value={told.get(name) ?? ""} set={(value) => set({ [name]: value })} />
      ))}
    </fieldset>
  );
}

function Choice({ name, title, told, set }: FieldProps & { name: string }) {
  return (
    <label class="pair">{title}
      <select value={told.get(name) ?? ""} onChange={(e) => set({ [name]: e.currentTarget.value })}>
        <option value="">any</option>
        <option value="1">yes</option>
        <option value="0">no</option>
      </select>
    </label>
  );
}

function Box({ name, title, told, set }: FieldProps & { name: string }) {
  return <label class="box"><input type="checkbox" checked={told.get(name) === "1"} onChange={(e) => set({ [name]: e.currentTarget.checked ? "1" : undefined })} /> {title}</label>;
}
