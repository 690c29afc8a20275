/** The rollout that is open: the same prompt at the start, what the model says now, and the others of its group. */
import { useRef, useState } from "preact/hooks";
import { useControl } from "../control";
import { exact, number } from "../format";
import { RolloutNotes } from "../notes";
import { Figure, Gold, HowButtons, Panes, type How } from "../panes";
import { Trouble } from "../parts";
import { useData, useKeys, useSource } from "../shared";
import { Conversation, jump } from "../reading/conversation";
import { Marked, Shown, visible } from "../text";
import type { RolloutGroup as Group, Rollout, TextHit } from "../types";

interface OpenedProps {
  run: string;
  step: number;
  now: number; // the server's clock
  id: string;
  find: string; // a query, whose texts are marked
  how: How;
  setHow: (how: How) => void;
  open: (id: string) => void;
  move: (by: number) => void;
}

export function Opened({ run, step, now, id, find, how, setHow, open, move }: OpenedProps) {
  const asked = useData<Group>("/api/group", { run, id, find }, false);
  const last = useRef<Group | null>(null);
  if (asked.data) last.current = asked.data;
  const group = asked.data ?? last.current;
  const source = useSource();
  const { ask, shown } = useControl(run, step);
  const [copied, setCopied] = useState("");
  const label = () =>
    ask({
      kind: "ask_label", target: id, title: "Ask for a gold label", go: "Ask", reason: "none",
      text: `A gold label of rollout ${id} is requested. It is stored as hand-picked: evidence for you, not used by the alarm, whose false-alarm bound needs a random sample.`,
    });
  const copy = () => {
    if (!group) return;
    const done = navigator.clipboard?.writeText(JSON.stringify(group.rollout, null, 2)) ?? Promise.reject(new Error("no clipboard"));
    done.then(() => setCopied("Copied as JSON."), () => setCopied("The browser did not allow copying."));
  };
  const member = () => {
    if (!group?.rows.length) return;
    const here = group.rows.findIndex((row) => row.id === group.rollout.id);
    open(group.rows[(here + 1) % group.rows.length]?.id ?? id);
  };
  useKeys((key) => {
    if (key === "g") member();
    else if (key === "l") label();
    else if (key === "c") copy();
  });
  if (!group) return <div class="opened">{asked.error ? <Trouble error={asked.error} /> : <p class="waiting" aria-busy="true">…</p>}</div>;
  return (
    <section class={`opened${asked.busy ? " old" : ""}`} aria-label="Open rollout" aria-busy={asked.busy} data-rollout={group.rollout.id}>
      {asked.error && <Trouble error={asked.error} />}
      <p class="unseen" role="status">{spoken(group.rollout)}</p>
      <div class="bar">
        <button type="button" onClick={() => move(-1)}>Previous <kbd>k</kbd></button>
        <button type="button" onClick={() => move(1)}>Next <kbd>j</kbd></button>
        <button type="button" onClick={member}>Group <kbd>g</kbd></button>
        <HowButtons how={how} set={setHow} />
        {source.live && <button type="button" onClick={label} disabled={group.rollout.gold !== null}>Ask for gold <kbd>l</kbd></button>}
        <button type="button" onClick={copy}>Copy JSON <kbd>c</kbd></button>
        <span class="faint small" role="status">{copied}</span>
      </div>
      {shown}
      <div class="against">
        <div>
          <Prompt text={group.rollout.prompt} hits={group.hits} />
          <Acts rollout={group.rollout} />
          {group.rollout.turns.length ? <Conversation rollout={group.rollout} /> : <Compared group={group} how={how} />}
          <Steps steps={group.rollout.steps} />
        </div>
        <aside class="beside" aria-label="The group and the reward">
          <Members group={group} open={open} />
          <Paid rollout={group.rollout} />
          <RolloutNotes run={run} id={group.rollout.id} step={step} now={now} />
        </aside>
      </div>
    </section>
  );
}

function spoken(row: Rollout): string {
  return `Step ${row.step}, group ${row.group}, reward ${row.flag || number(row.reward)}, gold ${row.gold === null ? "not labelled" : number(row.gold)}`;
}

function Prompt({ text, hits }: { text: string | null; hits: TextHit[] }) {
  if (text === null) return <p class="faint prompt">No prompt was recorded.</p>;
  const marked = hits.some((hit) => hit.where === "prompt");
  const long = text.length > 400 && !marked;
  return (
    <details class="prompt" open={!long}>
      <summary>Prompt{long ? <span class="faint"> <Shown text={text.slice(0, 80)} />…</span> : ""}</summary>
      {marked ? <pre class="said"><Marked text={text} hits={hits} where="prompt" /></pre> : <Shown text={text} block />}
    </details>
  );
}

function Compared({ group, how }: { group: Group; how: How }) {
  const { rollout, base } = group;
  const left = {
    title: <><b>Start</b> {base && <span class="faint"><Shown text={base.source || `step ${base.step}`} limit={80} /></span>}</>,
    label: "the same prompt at the start", text: base?.text ?? null, missing: group.base_why || "There is no answer of the start to this prompt.",
  };
  const right = {
    title: (
      <>
        <b>Now</b> <span class="faint">step {rollout.step}, attempt {rollout.attempt}</span>
        {rollout.truncated && <span class="flag">cut off at the length limit</span>}
        {rollout.capped && <span class="flag">stored only in part</span>}
      </>
    ),
    label: "this rollout", text: rollout.completion, missing: "No text was recorded for this rollout.", hits: group.hits,
  };
  return <Panes sides={[left, right]} how={how} />;
}

function Members({ group, open }: { group: Group; open: (id: string) => void }) {
  const known = group.rows.flatMap((row) => (row.reward === null ? [] : [row.reward]));
  const [low, high] = [Math.min(0, ...known), Math.max(...known, 0)];
  return (
    <section>
      <h2>Group of {group.rows.length}</h2>
      <p class="faint small">mean <Figure value={group.mean} />, sd <Figure value={group.spread} /></p>
      <p class="members-head" aria-hidden="true"><span>#</span><span>reward</span><span /><span>adv.</span><span>gold</span></p>
      <ol class="members">
        {group.rows.map((row, k) => (
          <li key={row.id}>
            <button type="button" aria-current={row.id === group.rollout.id ? "true" : undefined} onClick={() => open(row.id)}>
              <span class="faint">{k + 1}</span>
              <span><span class="unseen">reward </span><Figure value={row.reward} flag={row.flag} /></span>
              <svg class="bar-mark" viewBox="0 0 60 10" width="60" height="10" aria-hidden="true" preserveAspectRatio="none">
                <rect x="0" y="2" height="6" width={row.reward === null || high === low ? 0 : Math.max(1, (60 * (row.reward - low)) / (high - low))} />
              </svg>
              <span><span class="unseen">advantage </span>{row.advantage === null ? "–" : `${row.advantage > 0 ? "+" : ""}${number(row.advantage, "–", 2)}`}</span>
              <span class="last"><span class="unseen">gold </span><Gold value={row.gold} /></span>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Paid({ rollout }: { rollout: Rollout }) {
  // Four digits for people; every digit on hover.
  const full = (value: number | null, flag = "") => (flag || value === null ? flag || "–" : <span title={exact(value)}>{number(value, "–", 4)}</span>);
  const facts: [string, string][] = [
    ["Length", rollout.length === null ? "–" : `${rollout.length} tokens`],
    ...(rollout.env ? [["Environment", rollout.env] as [string, string]] : []),
    ...(rollout.stop ? [["Ended", rollout.stop] as [string, string]] : []),
    ["Id", rollout.id],
  ];
  return (
    <section>
      <h2>Reward</h2>
      <dl class="sheet">
        <div><dt>Reward</dt><dd>{full(rollout.reward, rollout.flag)}</dd></div>
        {rollout.rewards.map((part) => <div key={part.name} class="part"><dt><Shown text={part.name} limit={40} /></dt><dd>{full(part.value, part.flag)}</dd></div>)}
        <div><dt>Gold</dt><dd>{rollout.gold === null ? "? not labelled" : full(rollout.gold)}</dd></div>
        <div><dt>Advantage</dt><dd>{full(rollout.advantage)}</dd></div>
        {facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{visible(value)}</dd></div>)}
      </dl>
      {rollout.facts && rollout.facts !== "{}" && (
        <details>
          <summary>Dataset columns</summary>
          <div class="scroll" tabIndex={0} role="group" aria-label="Dataset columns"><Shown text={pretty(rollout.facts)} block /></div>
        </details>
      )}
    </section>
  );
}

/** What was done that no task asks for, each with the place that shows it. */
function Acts({ rollout }: { rollout: Rollout }) {
  const { acts, turns } = rollout;
  if (!acts.length) return null;
  return (
    <section class="turns" aria-label="What it did">
      <h2>What it did</h2>
      <p class="faint small">Seen by patterns in calls and code: evidence, no verdict.</p>
      <ol>
        {acts.map((act, k) => (
          <li key={k} class="bad">
            <p class="who">
              <b>{act.says}</b>{" "}
              {act.turn >= 0 && act.turn < turns.length && turns.length > 1
                ? <a href={`#turn-${act.turn}`} onClick={(event) => jump(event, act.turn)}>turn {act.turn + 1}, line {act.line}</a>
                : <span class="faint">{act.turn < 0 ? "by the record of files" : `line ${act.line}`}</span>}
            </p>
            <Shown text={act.quote} block />
          </li>
        ))}
      </ol>
    </section>
  );
}

/** Process rewards: each step of the answer with its score, and the first bad one marked. */
function Steps({ steps }: { steps: Rollout["steps"] }) {
  if (!steps.length) return null;
  const bad = steps.findIndex((step) => step.bad);
  return (
    <section class="steps" aria-label="Scores of the steps">
      <h2>Steps</h2>
      <p class="faint small">{bad < 0 ? `${steps.length} scored, none marked as bad` : `step ${bad + 1} of ${steps.length} is the first below 0.5`}</p>
      <ol>
        {steps.map((step, k) => (
          <li key={k} class={step.bad ? "bad" : undefined}>
            <span class="faint">{k + 1}</span>
            <span><span class="unseen">score </span>{step.reward === null ? "–" : number(step.reward, "–", 2)}</span>
            <span>{step.text === null ? <span class="faint">–</span> : <Shown text={step.text} />}{step.bad && <span class="flag">first bad step</span>}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function pretty(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 1);
  } catch {
    return json;
  }
}
