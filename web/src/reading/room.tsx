/** The reading room: a prompt's completions side by side, two or all of them, with their tokens coloured by what is stored. */
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import "../screens.css";
import "./room.css";
import { useControl, type Wish } from "../control";
import { difference } from "../diff";
import { count, number } from "../format";
import { wishes } from "../notes";
import { Figure, Gold } from "../panes";
import { Trouble } from "../parts";
import { useData, type Change } from "../shared";
import { Tags } from "../tags";
import { visible } from "../text";
import type { ColourScale, GroupMember, GroupTokens, ReadGroup, TokenColour, TokenRow } from "../types";
import { Components } from "./components";
import { Column, Watch, type Mark } from "./column";
import { Conversation } from "./conversation";
import { Minimap } from "./minimap";
import { Rendered } from "./rendered_lazy";

export interface RoomProps {
  run: string;
  id: string;
  find: string;
  step: number; // of the run, now
  layout: "pair" | "group";
  told: URLSearchParams;
  change: (change: Change) => void;
  move: (by: number) => void; // to another group
  totals: ComponentChildren; // of the list that groups are taken from
}

/** The number of a token that somebody points at. */
interface Pointed {
  member: number;
  token: number;
}

export function Room({ run, id, find, step, layout, told, change, move, totals }: RoomProps) {
  const [again, setAgain] = useState(0);
  const { ask, shown: dialog } = useControl(run, step, () => setAgain((old) => old + 1));
  const asked = useData<ReadGroup>("/api/members", { run, id, find }, false, again);
  const last = useRef<ReadGroup | null>(null);
  if (asked.data) last.current = asked.data;
  const group = asked.data ?? last.current;
  const by = group?.scales.find((scale) => scale.name === told.get("by") && !scale.why) ?? null;
  const rendered = told.get("show") === "rendered";
  const colours = useData<GroupTokens>(by && !rendered ? "/api/tokens" : "", { run, id, by: by?.name }, false);
  const tokens = by && colours.data?.by === by.name ? colours.data : null;
  if (!group) return asked.error ? <Trouble error={asked.error} /> : <p class="waiting" aria-busy="true">…</p>;
  const shown = layout === "pair" ? pair(group, id, told) : group.members;
  return (
    <section class="room" aria-label="Reading room" aria-busy={asked.busy || (by !== null && !rendered && !tokens && !colours.error)} data-group={group.members[0]?.id}>
      {asked.error && <Trouble error={asked.error} />}
      {colours.error && <Trouble error={colours.error} />}
      <div class="bar room-bar">
        <button type="button" class="slim" onClick={() => move(-1)}>Previous <kbd>k</kbd></button>
        <span class="nowrap">step {group.step}, group {group.group}: {count(group.size)} completions</span>
        <button type="button" class="slim" onClick={() => move(1)}>Next <kbd>j</kbd></button>
        {totals}
        <ColourChoice scales={group.scales} by={rendered ? null : by} rendered={rendered} choose={(name) => change({ by: name, show: undefined })} />
        <div class="choice" role="group" aria-label="How texts are shown">
          <button type="button" aria-pressed={!rendered} onClick={() => change({ show: undefined })}>raw</button>
          <button type="button" aria-pressed={rendered} onClick={() => change({ show: "rendered" })}>rendered <kbd>m</kbd></button>
        </div>
      </div>
      <GroupPrompt text={group.prompt} />
      {layout === "pair" && <PairChoice group={group} shown={shown} change={change} />}
      {layout === "group" && group.size > group.members.length && <p class="faint small">The {group.members.length / 2} best paid and the {group.members.length / 2} worst paid of {count(group.size)}.</p>}
      <Columns key={shown.map((one) => one.id).join()} group={group} shown={shown} scale={by} tokens={rendered ? null : tokens} rendered={rendered} pairs={layout === "pair"} run={run} ask={ask} />
      {dialog}
    </section>
  );
}

/** The two that are compared: as the address says, else the best and the worst paid. */
function pair(group: ReadGroup, id: string, told: URLSearchParams): GroupMember[] {
  const { members } = group;
  const named = (name: string) => members.find((one) => one.id === told.get(name));
  const left = named("left") ?? members.find((one) => one.id === id) ?? members[0];
  const right = named("right") ?? (left === members.at(-1) ? members[0] : members.at(-1));
  return [left, right].filter((one): one is GroupMember => one !== undefined);
}

function ColourChoice({ scales, by, rendered, choose }: { scales: ColourScale[]; by: ColourScale | null; rendered: boolean; choose: (name: TokenColour | undefined) => void }) {
  const lacking = scales.filter((scale) => scale.why);
  return (
    <div class="choice" role="group" aria-label="Colour tokens by">
      <span class="faint">colour by</span>
      <button type="button" aria-pressed={by === null && !rendered} onClick={() => choose(undefined)}>none</button>
      {scales.filter((scale) => !scale.why).map((scale) => (
        <button key={scale.name} type="button" aria-pressed={by?.name === scale.name} onClick={() => choose(scale.name)}>{scale.title}</button>
      ))}
      {lacking.length > 0 && (
        <details class="lacking">
          <summary>{lacking.length} cannot be shown</summary>
          <ul>{lacking.map((scale) => <li key={scale.name}><b>{scale.title}</b>: {visible(scale.why)}</li>)}</ul>
        </details>
      )}
    </div>
  );
}

function GroupPrompt({ text }: { text: string | null }) {
  if (text === null) return <p class="faint prompt">No prompt was recorded.</p>;
  const [first = ""] = text.split("\n", 1);
  const long = text.length > 240;
  if (!long) return <p class="room-prompt"><span class="faint">Prompt</span> <span class="said" dir="auto">{visible(text)}</span></p>;
  return (
    <details class="room-prompt">
      <summary><span class="faint">Prompt</span> <span class="said">{visible(first.slice(0, 160))}…</span></summary>
      <div class="scroll" tabIndex={0} role="group" aria-label="Prompt"><pre class="said" dir="auto">{visible(text)}</pre></div>
    </details>
  );
}

function PairChoice({ group, shown, change }: { group: ReadGroup; shown: GroupMember[]; change: (change: Change) => void }) {
  const title = (one: GroupMember, k: number) => `#${k + 1}, reward ${one.flag || number(one.reward)}, gold ${one.gold === null ? "?" : number(one.gold)}`;
  return (
    <div class="bar">
      {(["left", "right"] as const).map((side, k) => (
        <label key={side} class="pair">{side === "left" ? "Left" : "Right"}
          <select value={shown[k]?.id} onChange={(e) => change({ [side]: e.currentTarget.value })}>
            {group.members.map((one, place) => <option key={one.id} value={one.id}>{title(one, place)}</option>)}
          </select>
        </label>
      ))}
      <span class="faint small">Words that differ are marked while tokens have no colour.</span>
    </div>
  );
}

interface ColumnsProps {
  group: ReadGroup;
  shown: GroupMember[];
  scale: ColourScale | null;
  tokens: GroupTokens | null;
  rendered: boolean;
  pairs: boolean;
  run: string;
  ask: (wish: Wish) => void;
}

function Columns({ group, shown, scale, tokens, rendered, pairs, run, ask }: ColumnsProps) {
  const root = useRef<HTMLDivElement>(null);
  const [watch, setWatch] = useState<Watch | null>(null);
  const columns = useRef<(Column | null)[]>([]);
  const [drawn, setDrawn] = useState(0); // counts what the map must be drawn again for
  const [pointed, setPointed] = useState<Pointed | null>(null);
  const marks = useMemo(() => shown.map((one, k) => (pairs && !scale ? differing(shown, k) : hits(one))), [shown, pairs, scale]);
  useEffect(() => {
    if (!root.current) return;
    const made = new Watch(root.current);
    setWatch(made);
    return () => made.stop();
  }, []);
  const rows = new Map(tokens?.rows.map((row) => [row.id, row]));
  const troubles = tokens ? shown.flatMap((one, k) => (rows.get(one.id)?.why ? [`#${k + 1}: ${rows.get(one.id)?.why}`] : [])) : [];
  return (
    <>
      <Legend scale={rendered ? null : scale} pointed={pointed} columns={columns.current} members={shown} troubles={troubles} />
      <div class="room-body">
        <div ref={root} class="room-columns" tabIndex={0} role="group" aria-label="Completions side by side" data-count={shown.length}>
          {watch && shown.map((one, k) => (
            <article key={one.id} class="column" aria-label={`Completion ${group.members.indexOf(one) + 1}`} data-rollout={one.id}>
              <ColumnHead member={one} place={group.members.indexOf(one) + 1} group={group} run={run} ask={ask} />
              {one.turns.length > 1 ? <div class="column-text"><Conversation rollout={one} folded rendered={rendered} name={`turn-${k}`} tokens={rows.get(one.id)?.turns} scale={tokens ? scale : null} /></div>
                : one.completion === null ? <p class="empty">No text was recorded for this rollout.</p>
                : rendered ? <div class="column-text"><Rendered text={one.completion} /></div>
                : <TokenText member={one} marks={marks[k] ?? []} watch={watch} row={rows.get(one.id) ?? null} scale={tokens ? scale : null}
                    keep={(column) => { columns.current[k] = column; setDrawn((old) => old + 1); }} point={(token) => setPointed(token < 0 ? null : { member: k, token })} />}
            </article>
          ))}
        </div>
        {!rendered && <Minimap root={root} columns={columns} drawn={drawn + (tokens ? 1000 : 0)} scale={tokens ? scale : null} />}
      </div>
    </>
  );
}

function hits(member: GroupMember): Mark[] {
  return member.hits.map(({ start, stop }) => ({ start, stop, kind: "hit" as const }));
}

/** What one of two texts has and the other has not. */
function differing(shown: GroupMember[], side: number): Mark[] {
  const [left, right] = shown.map((one) => one.completion ?? "");
  if (shown.some((one) => one.hits.length)) return shown[side] ? hits(shown[side]) : [];
  const found = difference(left ?? "", right ?? "");
  if (found.shared < 0.03) return [];
  let at = 0;
  return (side === 0 ? found.before : found.after).flatMap(({ text, changed }) => {
    const start = at;
    at += text.length;
    return changed ? [{ start, stop: at, kind: side === 0 ? ("del" as const) : ("ins" as const) }] : [];
  });
}

function ColumnHead({ member, place, group, run, ask }: { member: GroupMember; place: number; group: ReadGroup; run: string; ask: (wish: Wish) => void }) {
  const { advantage, length, repeats, truncated, capped } = member;
  return (
    <header class="column-head">
      <p class="figures">
        <b>#{place}</b> <span><span class="unseen">reward </span><span class="word" aria-hidden="true">reward </span><b><Figure value={member.reward} flag={member.flag} /></b></span>
        {advantage !== null && <span class={advantage > 0 ? "raised-odds" : "lowered-odds"} title="advantage">{advantage > 0 ? "+" : ""}{number(advantage, "–", 2)}</span>}
        <span class="gold">gold <Gold value={member.gold} /></span>
      </p>
      <Components member={member} group={group} />
      <p class="faint small">
        {[length === null ? "" : `${count(length)} tok`, repeats > 2 ? `repeat ×${repeats}` : "", truncated ? "cut off" : "", capped ? "stored in part" : "", member.stop].filter(Boolean).map(visible).join(" · ") || "\u00a0"}
      </p>
      <p class="column-tags">
        <Tags tags={member.tags} run={run} />
        {member.notes > 0 && <span class="faint small">{member.notes === 1 ? "1 note" : `${member.notes} notes`}</span>}
        <button type="button" class="slim" aria-label={`Tag completion ${place}`} onClick={() => ask(wishes.tag(member.id, `rollout ${member.id}`))}>Tag…</button>
      </p>
    </header>
  );
}

interface TextProps {
  member: GroupMember;
  marks: Mark[];
  watch: Watch;
  row: TokenRow | null;
  scale: ColourScale | null;
  keep: (column: Column | null) => void;
  point: (token: number) => void;
}

/** The text of a column; its nodes are made by hand, because there are thousands of them. */
function TokenText({ member, marks, watch, row, scale, keep, point }: TextProps) {
  const host = useRef<HTMLDivElement>(null);
  const column = useRef<Column | null>(null);
  const here = useRef(-1);
  const plain = visible(member.completion ?? "") === "";
  useEffect(() => {
    if (!host.current) return;
    host.current.replaceChildren();
    column.current = new Column(host.current, member.completion ?? "", marks, watch);
    column.current.colour(row, scale);
    keep(column.current);
  }, [member.id, marks, watch]);
  useEffect(() => {
    column.current?.colour(row, scale);
    keep(column.current);
  }, [row, scale]);
  const due = useRef(0);
  const pointer = ({ clientX, clientY }: PointerEvent) => {
    if (!scale) return;
    cancelAnimationFrame(due.current);
    due.current = requestAnimationFrame(() => {
      const token = column.current?.tokenUnder(clientX, clientY) ?? -1;
      if (token !== here.current) point((here.current = token));
    });
  };
  const step = (event: KeyboardEvent) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    const all = column.current?.tokens?.widths;
    if (!by || !all || !scale) return;
    event.preventDefault();
    let next = here.current + by;
    while (all[next] === 0) next += by;
    if (next < 0 || next >= all.length) return;
    point((here.current = next));
    const [box] = column.current?.boxes(next) ?? [];
    const root = host.current?.closest(".room-columns");
    const edge = root?.getBoundingClientRect();
    if (box && root && edge && (box.top < edge.top + 120 || box.bottom > edge.bottom - 20)) root.scrollTop += box.top - edge.top - edge.height / 2;
  };
  return (
    <div ref={host} class="column-text said" data-text="now" dir="auto" tabIndex={0} role="group" aria-label={`Text of completion ${member.id}; arrow keys go from token to token`}
      onPointerMove={pointer} onPointerLeave={() => { cancelAnimationFrame(due.current); point((here.current = -1)); }} onKeyDown={step}>{plain ? "" : null}</div>
  );
}

interface LegendProps {
  scale: ColourScale | null;
  pointed: Pointed | null;
  columns: (Column | null)[];
  members: GroupMember[];
  troubles: string[];
}

/** What the colours mean, the number of the token that is pointed at, and which texts could not be coloured. */
function Legend({ scale, pointed, columns, members, troubles }: LegendProps) {
  if (!scale) return null;
  const column = pointed ? columns[pointed.member] : null;
  const [start, stop] = pointed && column ? column.span(pointed.token) : [0, 0];
  const value = pointed && column ? (column.tokens?.values[pointed.token] ?? null) : null;
  const above = scale.levels.map((edge, k) => [edge, k + 1] as const);
  const marks = scale.signed ? [...above.map(([edge, k]) => [-edge, -k] as const).reverse(), ...above] : above;
  const sign = scale.name === "process" && scale.centre > 0 ? -1 : 1;
  return (
    <div class="legend">
      <p class="swatches" aria-hidden="true">
        {marks.map(([edge, k]) => <span key={k} class={`${k * sign > 0 || (!scale.signed && scale.side === "below") ? "up" : "down"}-${Math.abs(k)}`}>{number(scale.centre + (scale.side === "below" && !scale.signed ? -edge : edge))}</span>)}
        <span class="faint">{scale.unit}</span>
      </p>
      <p class="faint small">{scale.says}</p>
      <p class="readout" role="status">
        {pointed && column && members[pointed.member] ? (
          <>
            <span class="faint">token {count(pointed.token + 1)}</span> <span class="shown token-text">{visible(column.text.slice(start, Math.min(stop, start + 40)))}</span>{" "}
            {scale.title} <b>{value === null ? "–" : number(value, "–", 4)}</b> {scale.unit}
          </>
        ) : <span class="faint">point at a token for its number</span>}
      </p>
      {troubles.length > 0 && <p class="flag small">Tokens cannot be coloured. {visible(troubles.slice(0, 3).join("; "))}{troubles.length > 3 ? `; and ${troubles.length - 3} more` : ""}</p>}
    </div>
  );
}
