/** What people put on a run, a step or a rollout: tags, notes, saved views, and whether the run is archived. */
import "./notes.css";
import { useControl, type Wish } from "./control";
import { clock } from "./format";
import { Card } from "./parts";
import { useData, useSource } from "./shared";
import { Tags } from "./tags";
import { Shown, visible } from "./text";
import type { Lane, NoteRow, RunNoteList, Summary } from "./types";

/** What a person is asked before something is tagged, noted or taken back. `what`: as "rollout 0-12-3". */
export const wishes = {
  tag: (target: string, what: string): Wish => ({ kind: "tag", target, title: `Tag ${what}`, go: "Tag", reason: "must", label: "Tag, without blanks", short: true, most: 40, text: "It is stored in the run, with your name, and found by tag:NAME." }),
  note: (target: string, what: string): Wish => ({ kind: "note", target, title: `Note on ${what}`, go: "Keep", reason: "must", label: "Note", most: 2000, text: "It is stored in the run, with your name. It can be taken back; its file stays." }),
  remove: (row: NoteRow): Wish => ({ kind: "remove", target: row.target, fixed: row.id, title: "Take back?", go: "Take back", reason: "none", text: row.kind === "view" ? `The saved view ${row.name}` : row.kind === "archive" ? "The run is shown again." : `The ${row.kind} “${row.text.slice(0, 120)}”. Its file stays in the run.` }),
  archive: (): Wish => ({ kind: "archive", target: "", title: "Archive this run?", go: "Archive", reason: "may", most: 500, text: "Lists of runs hide it once it has ended, and count it. Nothing is deleted, and it can be taken back." }),
  view: (address: string): Wish => ({ kind: "view", target: "", typed: "target", fixed: address, title: "Save this view", go: "Save", reason: "must", label: "Name", short: true, most: 80, text: "The query, filters, layout and colours that are in the address, under a name, for all who read this run." }),
};

function Row({ row, now, ask }: { row: NoteRow; now: number; ask: ((wish: Wish) => void) | null }) {
  return (
    <li class={`is-${row.kind}`}>
      <span class="faint small">{row.target ? `step ${row.target.split("-")[1]} · ` : ""}{visible(row.author)}, {clock(row.time, now)}</span>
      {row.kind === "tag" ? <span class="tag">{visible(row.text)}</span> : <span class="note-text"><Shown text={row.kind === "archive" ? `Archived${row.text ? `: ${row.text}` : ""}` : row.text} /></span>}
      {ask && <button type="button" class="slim" aria-label={`Take back ${row.kind}${row.kind === "tag" ? ` ${visible(row.text)}` : ""}`} onClick={() => ask(wishes.remove(row))}>×</button>}
    </li>
  );
}

function Unreadable({ list }: { list: RunNoteList }) {
  return list.unreadable.length ? <p class="flag small">Not understood: {list.unreadable.map(visible).join("; ")}</p> : null;
}

/** Everything on one rollout, and buttons to add to it. */
export function RolloutNotes({ run, id, step, now }: { run: string; id: string; step: number; now: number }) {
  const source = useSource();
  const { data } = useData<RunNoteList>("/api/notes", { run, target: id });
  const { ask, shown } = useControl(run, step);
  const here = data && data.rows.every((row) => row.target === id) ? data : null;
  if (!here) return null;
  return (
    <section class="notes" aria-label="Tags and notes">
      <h2>Tags and notes</h2>
      {here.rows.length > 0 && <ul class="plain note-rows">{here.rows.map((row) => <Row key={row.id} row={row} now={now} ask={source.live ? ask : null} />)}</ul>}
      {source.live && (
        <p class="buttons">
          <button type="button" class="slim" onClick={() => ask(wishes.tag(id, `rollout ${id}`))}>Tag…</button>
          <button type="button" class="slim" onClick={() => ask(wishes.note(id, `rollout ${id}`))}>Note…</button>
        </p>
      )}
      <Unreadable list={here} />
      {shown}
    </section>
  );
}

/** The attempt that a step of the current lineage belongs to. */
function attemptOf(lanes: Lane[], step: number): number {
  return [...lanes].reverse().find((lane) => step >= lane.first && step <= lane.last && (lane.left === null || step < lane.left))?.attempt ?? 0;
}

export interface NotesProps {
  run: string;
  summary: Summary;
  step: number | null; // where the handle is
}

/** Everything on the run and on its steps. */
export function RunNotes({ run, summary, step }: NotesProps) {
  const source = useSource();
  const { data } = useData<RunNoteList>("/api/notes", { run });
  const { ask, shown } = useControl(run, summary.step);
  if (!data || (!source.live && !data.rows.length)) return null;
  const at = step ?? summary.step;
  const target = `${attemptOf(summary.lanes, at)}-${at}`;
  const archived = data.rows.filter((row) => row.kind === "archive");
  return (
    <Card title="Tags and notes" id="notes" aside={data.archived ? <b>archived{summary.live ? "; shown while it is live" : ""}</b> : undefined}>
      <Tags tags={data.tags.map((one) => one.tag)} run={run} />
      {data.rows.length > 0 && <ul class="plain note-rows">{data.rows.map((row) => <Row key={row.id} row={row} now={summary.now} ask={source.live ? ask : null} />)}</ul>}
      {source.live && (
        <p class="buttons">
          <button type="button" class="slim" onClick={() => ask(wishes.tag("", "this run"))}>Tag the run…</button>
          <button type="button" class="slim" onClick={() => ask(wishes.note("", "this run"))}>Note on the run…</button>
          {at >= 0 && <button type="button" class="slim" onClick={() => ask(wishes.tag(target, `step ${at}`))}>Tag step {at}…</button>}
          {at >= 0 && <button type="button" class="slim" onClick={() => ask(wishes.note(target, `step ${at}`))}>Note on step {at}…</button>}
          {archived[0] ? <button type="button" class="slim" onClick={() => archived[0] && ask(wishes.remove(archived[0]))}>Take out of the archive…</button>
            : <button type="button" class="slim" onClick={() => ask(wishes.archive())}>Archive…</button>}
        </p>
      )}
      <Unreadable list={data} />
      {shown}
    </Card>
  );
}

/** Named addresses within the run. `here`: the address that would be saved, from its screen on. */
export function SavedViews({ run, step, here }: { run: string; step: number; here: string }) {
  const { data } = useData<RunNoteList>("/api/notes", { run });
  const { ask, shown } = useControl(run, step);
  if (!data) return null;
  return (
    <div class="views">
      {data.views.length > 0 && <span class="faint">views</span>}
      {data.views.map((view) => (
        <span key={view.id} class="view">
          <a href={`#/run/${run}/${view.text.replace(/^#\/*/, "")}`} title={`saved by ${visible(view.author)}`}>{visible(view.name)}</a>
          <button type="button" class="slim" aria-label={`Remove the view ${visible(view.name)}`} onClick={() => ask(wishes.remove(view))}>×</button>
        </span>
      ))}
      <button type="button" class="slim" onClick={() => ask(wishes.view(`#/${here}`))}>Save view…</button>
      {shown}
    </div>
  );
}
