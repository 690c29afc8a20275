/** Pinned prompts: completions of the same prompts at an early step and now. */
import { useState } from "preact/hooks";
import "../screens.css";
import type { ScreenProps } from "../head";
import { Figure, Gold, HowButtons, Panes, ToRollout, type How, type Side } from "../panes";
import { Empty, Trouble } from "../parts";
import { useData, useKeys } from "../shared";
import { Shown } from "../text";
import type { Pinned as Told } from "../types";

const FIRST = 5;
type Prompt = Told["prompts"][number];
type Answer = Prompt["said"][number];

export function Pinned({ run }: ScreenProps) {
  const { data, error } = useData<Told>("/api/pinned", { run });
  const [how, setHow] = useState<How>("diff");
  const [shown, setShown] = useState(FIRST);
  useKeys((key) => {
    if (key === "d") setHow((old) => (old === "diff" ? "plain" : "diff"));
    else if (key === "m") setHow((old) => (old === "markdown" ? "plain" : "markdown"));
  });
  if (!data) return error ? <Trouble error={error} /> : <p class="waiting" aria-busy="true">Reading the completions…</p>;
  if (!data.prompts.length) return <Empty><Shown text={data.empty || "Nothing was pinned."} /></Empty>;
  return (
    <>
      {error && <Trouble error={error} />}
      <p class="faint intro">Answers from <Shown text={data.source} /></p>
      <div class="bar"><HowButtons how={how} set={setHow} /></div>
      {data.prompts.slice(0, shown).map((prompt, k) => <Asked key={k} prompt={prompt} number={k + 1} run={run} how={how} />)}
      {data.prompts.length > shown && <p><button type="button" onClick={() => setShown(data.prompts.length)}>Show {data.prompts.length - shown} more prompts</button></p>}
    </>
  );
}

function Asked({ prompt, number, run, how }: { prompt: Prompt; number: number; run: string; how: How }) {
  const last = prompt.said.length - 1;
  const [left, setLeft] = useState(0);
  const [right, setRight] = useState<number | null>(null); // null: the newest, also when one comes
  const at = right === null ? last : Math.min(right, last);
  const [then, now] = [prompt.said[Math.min(left, last)], prompt.said[at]];
  return (
    <section class="card asked" aria-label={`Prompt ${number}`}>
      <header>
        <h2>Prompt {number}</h2>
        {prompt.said.length > 2 && (
          <div class="aside">
            <StepChoice title="Left" said={prompt.said} at={Math.min(left, last)} set={setLeft} />
            <StepChoice title="Right" said={prompt.said} at={at} set={(k) => setRight(k === last ? null : k)} />
          </div>
        )}
      </header>
      <div class="prompt"><Shown text={prompt.prompt} limit={1200} block /></div>
      {now && then && (last === 0 ? <Empty>Only one answer so far, of step {now.step}:</Empty> : null)}
      {now && then && <Panes how={last === 0 && how === "diff" ? "plain" : how} sides={[side(run, then, "Then"), side(run, now, "Now")]} />}
    </section>
  );
}

function StepChoice({ title, said, at, set }: { title: string; said: Answer[]; at: number; set: (k: number) => void }) {
  return (
    <label>{title}{" "}
      <select value={String(at)} onChange={(e) => set(Number(e.currentTarget.value))}>
        {said.map((one, k) => <option key={k} value={String(k)}>step {one.step}</option>)}
      </select>
    </label>
  );
}

function side(run: string, said: Answer, word: string): Side {
  return {
    title: (
      <>
        <b>{word}</b> <span class="faint"><ToRollout run={run} id={said.id}>step {said.step}</ToRollout></span>
        <span>reward <Figure value={said.reward} /></span><span>gold <Gold value={said.gold} /></span>
      </>
    ),
    label: `${word.toLowerCase()}, step ${said.step}`, text: said.text, missing: "",
  };
}
