/** Runs grouped by a setting, each group against the others: gold, gold lost, reward and state. */
import { useEffect, useState } from "preact/hooks";
import "../groups.css";
import { count, number } from "../format";
import { Empty, StateMark, Trouble } from "../parts";
import { link } from "../route";
import { useData, type Change } from "../shared";
import { Shown, visible } from "../text";
import { MEANINGS, type Fleet, type FleetGroup, type GroupSpread, type State } from "../types";

export interface GroupsProps {
  by: string; // a setting; "?": none chosen yet
  find: string;
  change: (change: Change) => void;
}

const ORDER = Object.keys(MEANINGS) as State[];
const MEASURES: ["gold" | "lost" | "reward", string, string][] = [
  ["gold", "Gold now", "what you really want, at the end of the run"],
  ["lost", "Gold change", "gold now against its best; 0: nothing was lost"],
  ["reward", "Reward now", "comparable only between runs with the same reward function"],
];

export function Groups({ by, find, change }: GroupsProps) {
  const { data, error } = useData<Fleet>("/api/fleet", { find: find || undefined, group: by === "?" ? undefined : by, limit: 1, pictures: 0 });
  const [typed, setTyped] = useState(find);
  useEffect(() => setTyped(find), [find]);
  if (!data) return error ? <Trouble error={error} /> : <p class="waiting" aria-busy="true">…</p>;
  const names = [...new Set([...(by === "?" ? [] : [by]), ...data.setting_names])];
  const groups = [...data.groups].sort(inOrder);
  return (
    <>
      <form class="bar" onSubmit={(event) => { event.preventDefault(); change({ find: typed }); }}>
        <label>Group by <select value={by} onChange={(event) => change({ by: event.currentTarget.value })}>
          {by === "?" && <option value="?">choose a setting</option>}
          {names.map((name) => <option key={name} value={name}>{visible(name)}</option>)}
        </select></label>
        <label>Of the runs <input type="search" size={30} maxLength={300} spellcheck={false} value={typed} placeholder="words, tag:sweep-3, state:act" onInput={(event) => setTyped(event.currentTarget.value)} onChange={(event) => change({ find: event.currentTarget.value })} /></label>
        <span class="faint small" role="status">{count(data.matches)} of {count(data.total)} runs{data.unread ? `, ${count(data.unread)} not read yet` : ""}{hidden(data)}</span>
      </form>
      {error && <Trouble error={error} />}
      {!names.length ? <Empty>No setting that was captured differs between these runs. At <code>attach</code> the trainer's arguments are captured; in a loop of your own pass <code>{"open_run(..., settings={\"learning_rate\": 1e-6})"}</code></Empty>
        : by === "?" ? <Empty>Choose a setting.</Empty> : !groups.length ? <Empty>No run is found.</Empty> : <Table groups={groups} by={by} find={find} />}
    </>
  );
}

function hidden(fleet: Fleet): string {
  const many = Object.values(fleet.hidden).reduce((sum, n) => sum + n, 0);
  return many ? `, ${count(many)} archived and left out` : "";
}

/** Numbers by size, others by name; what is not known last. */
function inOrder(a: FleetGroup, b: FleetGroup): number {
  const [x, y] = [Number(a.value), Number(b.value)];
  if (a.value === "not known" || b.value === "not known") return Number(a.value === "not known") - Number(b.value === "not known");
  return Number.isFinite(x) && Number.isFinite(y) ? x - y : a.value.localeCompare(b.value);
}

function Table({ groups, by, find }: { groups: FleetGroup[]; by: string; find: string }) {
  const spans = Object.fromEntries(MEASURES.map(([name]) => [name, extent(groups.map((group) => group[name]), name === "lost")]));
  return (
    <>
      <table class="cards group-table" role="table" aria-label={`Groups by ${visible(by)}`}>
        <thead role="rowgroup"><tr role="row">
          <th role="columnheader" scope="col"><Shown text={by} limit={60} /></th><th role="columnheader" scope="col">Runs</th>
          {MEASURES.map(([name, title, why]) => <th key={name} role="columnheader" scope="col" title={why}>{title}</th>)}
        </tr></thead>
        <tbody role="rowgroup">
          {groups.map((group) => (
            <tr key={group.value} role="row">
              <th role="rowheader" scope="row"><a href={link("fleet", "", { group: by, find: [find, isPlain(group.value) && isPlain(by) ? `${by}=${group.value}` : ""].filter(Boolean).join(" ") })}><Shown text={group.value} limit={60} /></a></th>
              <td role="cell" data-label="Runs">
                <b>{count(group.runs)}</b> <span class="faint small">step {group.first === group.last ? Math.max(0, group.last) : `${Math.max(0, group.first)} to ${group.last}`}</span>
                <div class="group-states">{ORDER.filter((state) => group.states[state]).map((state) => <span key={state}>{group.states[state]} <StateMark state={state} /></span>)}</div>
              </td>
              {MEASURES.map(([name, title]) => <td key={name} role="cell" data-label={title}><Spread of={group[name]} runs={group.runs} span={spans[name] ?? [0, 1]} title={title} /></td>)}
            </tr>
          ))}
        </tbody>
      </table>
      <p class="faint small">A dot is a run, the line the mean of the group, the bar one standard deviation between runs to each side. Nothing here is a test: a difference between groups of few runs may be chance.</p>
    </>
  );
}

const isPlain = (text: string) => !/[\s"'=\\]/.test(text);

function extent(spreads: GroupSpread[], zero: boolean): [number, number] {
  const all = spreads.flatMap((one) => [...one.values, ...(one.mean !== null && one.sd !== null ? [one.mean - one.sd, one.mean + one.sd] : [])]);
  if (zero) all.push(0);
  return all.length ? [Math.min(...all), Math.max(...all)] : [0, 1];
}

/** One number of a group's runs, on the scale that all groups share. */
function Spread({ of, runs, span: [low, high], title }: { of: GroupSpread; runs: number; span: [number, number]; title: string }) {
  if (of.mean === null) return <span class="faint">{title.startsWith("Gold") ? "? no gold" : "–"}</span>;
  const x = (value: number) => 6 + (188 * (value - low)) / (high - low || 1);
  const words = `${number(of.mean)}${of.sd === null ? "" : ` ± ${number(of.sd, "–", 2)}`}`;
  return (
    <div class="spread">
      <svg viewBox="0 0 200 20" width="200" height="20" role="img" aria-label={`${title}: mean ${words} of ${of.n} runs, from ${number(of.values[0] ?? null)} to ${number(of.values.at(-1) ?? null)}`}>
        <path class="axis" d="M6 10H194" />
        {of.sd !== null && <rect class="deviation" x={x(of.mean - of.sd)} y="6" width={Math.max(1, x(of.mean + of.sd) - x(of.mean - of.sd))} height="8" />}
        {of.values.map((value, k) => <circle key={k} cx={x(value)} cy="10" r="2.6" />)}
        <path class="mean" d={`M${x(of.mean)} 2V18`} />
      </svg>
      <span class="nowrap"><b>{words}</b>{of.n < runs && <span class="faint"> in {of.n} of {runs}</span>}</span>
    </div>
  );
}
