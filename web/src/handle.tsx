/** Under the picture: a handle at a step, and the answer to one pinned prompt at that step beside the one before it. */
import { useEffect, useRef, useState } from "preact/hooks";
import "./screens.css";
import { Figure, Gold, Panes, ToRollout, type Side } from "./panes";
import { useData } from "./shared";
import { Shown } from "./text";
import type { Pinned, PromptAnswer } from "./types";

export interface HandleProps {
  run: string;
  first: number;
  last: number;
  step: number | null; // null: the newest
  set: (step: number | null) => void;
}

export function Handle({ run, first, last, step, set }: HandleProps) {
  const { data } = useData<Pinned>("/api/pinned", { run }, 30);
  const [chosen, setChosen] = useState(0);
  const box = useRef<HTMLElement>(null);
  useEffect(() => {
    // Each text is scrolled to where it differs, inside its own frame.
    for (const text of box.current?.querySelectorAll<HTMLElement>(".pane .text") ?? []) {
      const mark = text.querySelector<HTMLElement>("ins, del");
      text.scrollTop = mark ? mark.offsetTop - text.offsetTop - 24 : 0;
    }
  });
  const prompts = (data?.prompts ?? []).filter((prompt) => prompt.said.length > 1);
  const prompt = prompts[chosen % Math.max(prompts.length, 1)];
  if (!prompt) return null; // "Then and now" says why there is none
  const at = Math.min(Math.max(step ?? last, first), last);
  // The stored answer that is nearest, beside the one before it.
  const apart = prompt.said.map((answer) => Math.abs(answer.step - at));
  const place = Math.max(1, apart.indexOf(Math.min(...apart)));
  const [before, now] = [prompt.said[place - 1], prompt.said[place]];
  if (!before || !now) return null;
  return (
    <section class="card handle" ref={box} aria-label="The same prompt through training">
      <header>
        <h2>The same prompt through training</h2>
        <span class="aside">answers of {prompt.said.length} steps are stored · prompt {(chosen % prompts.length) + 1} of {prompts.length} {prompts.length > 1 && <button type="button" class="small" onClick={() => setChosen(chosen + 1)}>next prompt</button>}</span>
      </header>
      <label class="slide">
        <span>step {at}</span>
        <input type="range" min={first} max={last} value={at} onInput={(event) => set(Number(event.currentTarget.value) === last ? null : Number(event.currentTarget.value))} />
      </label>
      <div class="prompt"><Shown text={prompt.prompt} limit={300} block /></div>
      <Panes how="diff" sides={[side(run, before), side(run, now)]} />
    </section>
  );
}

function side(run: string, answer: PromptAnswer): Side {
  return {
    title: <><ToRollout run={run} id={answer.id}><b>step {answer.step}</b></ToRollout> <span>reward <Figure value={answer.reward} /></span> <span>gold <Gold value={answer.gold} /></span></>,
    label: `step ${answer.step}`,
    text: answer.folded ?? answer.text,
    missing: "The text was not stored.",
  };
}
