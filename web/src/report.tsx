/** The report: the page's screens one below the other, from data inside the file. */
import { render, type ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import "./style.css";
import "./report.css";
import { RunHead, type ScreenProps } from "./head";
import { Figure, Gold, Panes, type How } from "./panes";
import { SourceContext } from "./shared";
import { InlineSource } from "./source";
import { Shown } from "./text";
import type { ReportAnswers as Kept, RolloutGroup as Group, Summary } from "./types";
import { Actions } from "./screens/actions";
import { Alarms } from "./screens/alarms";
import { Overview } from "./screens/overview";
import { Phrases } from "./screens/phrases";
import { Pinned } from "./screens/pinned";
import { Verifier } from "./screens/verifier";

const PARTS: [string, string, (props: ScreenProps, kept: Kept) => ComponentChildren][] = [
  ["alarms", "Alarms and warnings", (given) => <Alarms {...given} />],
  ["completions", "Completions that show it", (_, kept) => <Completions answers={kept.answers} />],
  ["phrases", "Phrases", (given) => <Phrases {...given} />],
  ["pinned", "Then and now", (given) => <Pinned {...given} />],
  ["actions", "Actions", (given) => <Actions {...given} />],
  ["verifier", "Verifier", (given) => <Verifier {...given} />],
];

function Report({ kept, summary }: { kept: Kept; summary: Summary }) {
  const given: ScreenProps = { run: "", summary, params: new URLSearchParams() };
  const parts = summary.steps > 0 ? PARTS : [];
  return (
    <main class="report">
      <div class="imprint">
        <p class="faint">{kept.made}</p>
        {parts.length > 0 && <nav aria-label="Parts of this report">{parts.map(([id, title]) => <a key={id} href={`#${id}`}>{title}</a>)}</nav>}
      </div>
      <RunHead summary={summary} />
      <Overview {...given} />
      {parts.map(([id, title, draw]) => <section key={id} class="part" id={id} aria-label={title}><h2>{title}</h2>{draw(given, kept)}</section>)}
    </main>
  );
}

/** Completions of one page; the others are one click away, and on paper follow. */
const FIRST = 6;

/** Each completion that the file carries, beside what was said to its prompt at the start. */
function Completions({ answers }: { answers: Record<string, unknown> }) {
  const [how, setHow] = useState<How>("diff");
  const groups = Object.entries(answers).filter(([address]) => address.startsWith("/api/group?")).map(([, group]) => group as Group);
  if (!groups.length) return <p class="empty">No completion is stored with its text.</p>;
  const told = together(groups);
  const shown = (from: number, to: number) => told.slice(from, to).map((group, k) => (
    <Completion key={group.rollout.id} group={group} how={how} again={k > 0 && group.rollout.prompt === told[from + k - 1]?.rollout.prompt} />
  ));
  const rest = told.length - FIRST;
  return (
    <>
      <p class="bar"><span class="faint">Words that differ from the start are marked, unless nearly all do.</span> <button type="button" aria-pressed={how === "diff"} onClick={() => setHow(how === "diff" ? "plain" : "diff")}>Mark what differs</button></p>
      {shown(0, FIRST)}
      {rest > 0 && <details class="rest"><summary>{rest} more</summary>{shown(FIRST, told.length)}</details>}
    </>
  );
}

/** Answers to one prompt below each other, in the order in which their prompts first come. */
function together(groups: Group[]): Group[] {
  const first = new Map<string | null, number>();
  groups.forEach(({ rollout }, k) => first.has(rollout.prompt) || first.set(rollout.prompt, k));
  const place = ({ rollout }: Group) => first.get(rollout.prompt) ?? 0;
  return [...groups].sort((a, b) => place(a) - place(b));
}

/** `again`: the one before answers the same prompt. */
function Completion({ group: { rollout, base, base_why }, how, again }: { group: Group; how: How; again: boolean }) {
  return (
    <article class="completion" data-rollout={rollout.id} aria-label={`Rollout ${rollout.id}`}>
      {rollout.prompt !== null && !again && <div class="prompt"><Shown text={rollout.prompt} limit={2000} block /></div>}
      <Panes
        how={how}
        sides={[
          { title: <><b>Start</b> <span class="faint">{base ? (base.step === null ? "reference" : `step ${base.step}`) : ""}</span></>, label: "the start", text: base?.text ?? null, missing: base_why || "There is no answer of the start to this prompt." },
          {
            title: <><b>Now</b> <span class="faint">step {rollout.step}</span><span>reward <Figure value={rollout.reward} flag={rollout.flag} /></span><span>gold <Gold value={rollout.gold} /></span></>,
            label: "now", text: rollout.completion, missing: "The text was not stored.",
          },
        ]}
      />
    </article>
  );
}

const kept = JSON.parse(document.getElementById("data")?.textContent ?? "{}") as Kept;
const source = new InlineSource(kept.answers);
const root = document.getElementById("page");
void source.get<Summary>("/api/summary").then((summary) => {
  if (!root) return;
  root.textContent = ""; // what a viewer without scripts shows
  render(<SourceContext.Provider value={source}><Report kept={kept} summary={summary} /></SourceContext.Provider>, root);
});
