/** S9: labelling. Blind: the page gets the texts and nothing about where they come from. */
import { useEffect, useRef, useState } from "preact/hooks";
import "../screens.css";
import { KeysSwitch } from "../parts";
import { useKeys, useSource } from "../shared";
import { Refused } from "../source";
import { Rendered } from "../reading/rendered_lazy";
import { Prose, Shown, visible } from "../text";
import type { Answer, LabelTask as Task } from "../types";

interface Way {
  key: string;
  word: string;
  answer: Answer["answer"];
}
const PAIR: Way[] = [
  { key: "a", word: "A is better", answer: "a" },
  { key: "b", word: "B is better", answer: "b" },
  { key: "t", word: "Tie", answer: "tie" },
  { key: "x", word: "Both bad", answer: "both_bad" },
];
const SINGLE: Way[] = [
  { key: "1", word: "Useless", answer: "0" },
  { key: "2", word: "Poor", answer: "0.25" },
  { key: "3", word: "Middling", answer: "0.5" },
  { key: "4", word: "Good", answer: "0.75" },
  { key: "5", word: "Flawless", answer: "1" },
];
const SKIP: Way = { key: "s", word: "Skip, cannot judge", answer: "skip" };
const ways = (task: Task) => [...(task.kind === "single" ? SINGLE : PAIR), SKIP];

export function Label() {
  const desk = useDesk();
  const { task } = desk;
  const [markdown, setMarkdown] = useState(false);
  const guide = useRef<HTMLDialogElement>(null);
  const place = useRef<HTMLDivElement>(null);
  useEffect(() => {
    // The button that had the focus may be gone with its kind of task.
    if (document.activeElement === document.body) place.current?.focus({ preventScroll: true });
  }, [task?.kind]);
  useEffect(() => {
    document.title = "label - tiltmeter";
    return () => {
      document.title = "tiltmeter";
    };
  }, []);
  useKeys((pressed, event) => {
    const key = pressed.toLowerCase();
    if (key === "?") guide.current?.showModal();
    else if (key === "p") desk.pause();
    else if (key === "u") void desk.undo();
    else if (key === "m") setMarkdown((old) => !old);
    else if (task?.task && !desk.paused && !event.repeat) {
      const way = ways(task).find((one) => one.key === key);
      if (way) void desk.say(way);
    }
  });
  return (
    <div class="label" ref={place} tabIndex={-1}>
      <p class="told" role="status">{desk.told}</p>
      {desk.trouble && <p class="trouble" role="alert">{visible(desk.trouble)}</p>}
      {!task ? !desk.trouble && <p class="waiting" aria-busy="true">…</p>
        : !task.task ? <Finished task={task} desk={desk} />
        : <Judge task={task} desk={desk} markdown={markdown} setMarkdown={setMarkdown} help={() => guide.current?.showModal()} />}
      <p class="faint small"><KeysSwitch /></p>
      <dialog ref={guide} class="dialog broad" aria-labelledby="guide-title">
        <h2 id="guide-title">How to judge</h2>
        <Prose text={task?.guide || "Say which answer serves the person who asked better. Length, tone and form do not count by themselves."} />
        <p class="buttons"><button type="button" class="strong" onClick={() => guide.current?.close()}>Close</button></p>
      </dialog>
    </div>
  );
}

interface Desk {
  task: Task | null;
  told: string;
  trouble: string;
  busy: boolean;
  paused: boolean;
  said: number; // answers of this sitting that can be taken back
  say: (way: Way) => Promise<void>;
  undo: () => Promise<void>;
  pause: () => void;
}

/** One task at a time: the next is asked for only when this one is answered, because what comes depends on it. */
function useDesk(): Desk {
  const source = useSource();
  const [task, setTask] = useState<Task | null>(null);
  const [told, setTold] = useState("");
  const [trouble, setTrouble] = useState("");
  const [paused, setPaused] = useState(false);
  const [said, setSaid] = useState(0);
  const [busy, setBusy] = useState(false);
  const working = useRef(false);
  const watch = useStopwatch(task?.task ?? "", paused);
  const doing = async (what: () => Promise<Task>) => {
    if (working.current) return;
    working.current = true;
    setBusy(true);
    setTrouble("");
    try {
      setTask(await what());
    } catch (error) {
      setTrouble(error instanceof Refused ? error.message : "The server does not answer. Nothing was lost but this answer: give it again.");
      setTold("");
    } finally {
      working.current = false;
      setBusy(false);
    }
  };
  const next = () => source.get<Task>("/api/label/next");
  useEffect(() => void doing(next), [source]);
  const say = (way: Way) =>
    doing(async () => {
      if (!task?.task) throw new Refused(0, "There is nothing to answer.");
      const answer: Answer = { task: task.task, answer: way.answer, milliseconds: watch() };
      setTold(`Your answer: ${way.word}.`);
      const reply = await source.post<Partial<Task>>("/api/label", answer);
      setSaid((old) => old + 1);
      return isTask(reply) ? reply : next();
    });
  const undo = () =>
    doing(async () => {
      const reply = await source.post<Partial<Task>>("/api/label/undo", {});
      setSaid((old) => Math.max(0, old - 1));
      setTold("Undone. Answer again.");
      return isTask(reply) ? reply : next();
    });
  const pause = () => {
    setPaused((old) => !old);
    setTold("");
  };
  return { task, told, trouble, busy, paused, said, say, undo, pause };
}

const isTask = (reply: Partial<Task>): reply is Task => typeof reply?.task === "string" && Array.isArray(reply.texts);

/** Milliseconds that a task was in front of somebody: not those of a pause or of a hidden tab. */
function useStopwatch(task: string, paused: boolean): () => number {
  const clock = useRef({ task: "", spent: 0, since: 0 });
  const stop = () => {
    if (clock.current.since) clock.current.spent += performance.now() - clock.current.since;
    clock.current.since = 0;
  };
  useEffect(() => {
    if (clock.current.task !== task) clock.current = { task, spent: 0, since: 0 };
    const run = () => {
      stop();
      if (!paused && !document.hidden) clock.current.since = performance.now();
    };
    run();
    document.addEventListener("visibilitychange", run);
    return () => {
      document.removeEventListener("visibilitychange", run);
      stop();
    };
  }, [task, paused]);
  return () => Math.round(clock.current.spent + (clock.current.since ? performance.now() - clock.current.since : 0));
}

interface JudgeProps {
  task: Task;
  desk: Desk;
  markdown: boolean;
  setMarkdown: (on: boolean) => void;
  help: () => void;
}

function Judge({ task, desk, markdown, setMarkdown, help }: JudgeProps) {
  const pair = task.kind === "pair";
  return (
    <>
      <header class="desk">
        <h1>{pair ? "Which answer is better?" : "How good is this answer?"}</h1>
        <Progress task={task} />
        <button type="button" onClick={desk.pause} aria-pressed={desk.paused}>{desk.paused ? "Go on" : "Pause"} <kbd>p</kbd></button>
        <button type="button" onClick={help}>How to judge <kbd>?</kbd></button>
      </header>
      {desk.paused ? <p class="empty">Paused. The clock is stopped.</p> : <Texts task={task} markdown={markdown} busy={desk.busy} />}
      <div class="ways" role="group" aria-label="Your answer">
        {ways(task).map((way) => (
          <button key={way.answer} type="button" class={way === SKIP ? "quiet" : "say"} aria-disabled={desk.busy || desk.paused} onClick={() => !desk.paused && void desk.say(way)}>
            <kbd>{way.key.toUpperCase()}</kbd> {way.word}
          </button>
        ))}
        <button type="button" class="quiet" aria-disabled={desk.busy} onClick={() => void desk.undo()}><kbd>U</kbd> Undo last</button>
        <button type="button" class="quiet" aria-pressed={markdown} onClick={() => setMarkdown(!markdown)}><kbd>M</kbd> Markdown{pair ? ", both" : ""}</button>
      </div>
    </>
  );
}

function Progress({ task }: { task: Task }) {
  const all = task.done + task.left;
  return <p class="progress"><progress value={task.done} max={all || 1} aria-label="Done today" /> {task.done} done, {task.left} left</p>;
}

function Texts({ task, markdown, busy }: { task: Task; markdown: boolean; busy: boolean }) {
  const pair = task.kind === "pair";
  return (
    <div class={busy ? "old" : undefined} aria-busy={busy}>
      {task.prompt !== null && <section class="prompt" aria-label="Prompt"><h2>Prompt</h2><Shown text={task.prompt} block /></section>}
      <div class={pair ? "sides" : "sides one"}>
        {task.texts.map((text, k) => (
          <section key={k} class="side" data-answer={pair ? "ab"[k] : "one"} aria-label={pair ? `Answer ${"AB"[k]}` : "Answer"}>
            <h2>{pair ? "AB"[k] : "Answer"}</h2>
            {text === "" ? <p class="empty">An empty text.</p> : markdown ? <Rendered text={text} /> : <Shown text={text} block />}
          </section>
        ))}
      </div>
    </div>
  );
}

function Finished({ task, desk }: { task: Task; desk: Desk }) {
  return (
    <section class="finished" aria-label="Nothing left to do">
      <h1>Nothing to judge now</h1>
      <p><Shown text={task.why || "Every pair that was asked for has an answer."} /></p>
      <Progress task={task} />
      {task.consistency && task.consistency.of > 0 && <p>Pairs that came twice, with sides swapped: you gave the same answer in {task.consistency.same} of {task.consistency.of}.</p>}
      {task.agreement.map((row) => <p key={row.with}>With <Shown text={row.with} limit={40} /> you agree in {row.same} of {row.of}.</p>)}
      {desk.said > 0 && <p class="buttons"><button type="button" onClick={() => void desk.undo()}><kbd>U</kbd> Undo last</button></p>}
    </section>
  );
}
