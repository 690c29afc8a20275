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
import type { Group, Summary } from "./types";
import { Actions } from "./screens/actions";
import { Alarms } from "./screens/alarms";
import { Overview } from "./screens/overview";
import { Phrases } from "./screens/phrases";
import { Pinned } from "./screens/pinned";

interface Kept {
  made: string; // by which version, when, up to which step
  answers: Record<string, unknown>;
}

function Report({ kept, summary }: { kept: Kept; summary: Summary }) {
  const given: ScreenProps = { run: "", summary, params: new URLSearchParams() };
  return (
    <main class="report">
      <p class="faint">{kept.made}</p>
      <RunHead summary={summary} />
      <Overview {...given} />
      {summary.steps > 0 && (
        <>
          <Part title="Alarms and warnings"><Alarms {...given} /></Part>
          <Part title="Completions that show it"><Completions answers={kept.answers} /></Part>
          <Part title="Phrases"><Phrases {...given} /></Part>
          <Part title="Then and now"><Pinned {...given} /></Part>
          <Part title="Actions"><Actions {...given} /></Part>
        </>
      )}
    </main>
  );
}

function Part({ title, children }: { title: string; children: ComponentChildren }) {
  return <section class="part" aria-label={title}><h2>{title}</h2>{children}</section>;
}

/** Each completion that the file carries, beside what was said to its prompt at the start. */
function Completions({ answers }: { answers: Record<string, unknown> }) {
  const [how, setHow] = useState<How>("diff");
  const groups = Object.entries(answers).filter(([address]) => address.startsWith("/api/group?")).map(([, group]) => group as Group);
  if (!groups.length) return <p class="empty">No completion is stored with its text.</p>;
  return (
    <>
      <p><button type="button" aria-pressed={how === "diff"} onClick={() => setHow(how === "diff" ? "plain" : "diff")}>Mark what differs</button></p>
      {groups.map(({ rollout, base, base_why }) => (
        <article key={rollout.id} class="completion" data-rollout={rollout.id}>
          <p class="faint">step {rollout.step}, reward <Figure value={rollout.reward} flag={rollout.flag} />, gold <Gold value={rollout.gold} /></p>
          {rollout.prompt !== null && <Shown text={rollout.prompt} limit={2000} block />}
          <Panes
            how={how}
            sides={[
              { title: base ? `At the start (${base.step === null ? "reference" : `step ${base.step}`})` : "At the start", label: "the start", text: base?.text ?? null, missing: base_why },
              { title: `Now (step ${rollout.step})`, label: "now", text: rollout.completion, missing: "The text was not stored." },
            ]}
          />
        </article>
      ))}
    </>
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
