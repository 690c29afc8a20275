/** An agent's conversation as turns. */
import { Shown } from "../text";
import type { Rollout } from "../types";
import { Rendered } from "./rendered_lazy";

type Told = Pick<Rollout, "turns" | "truncated" | "capped">;

/** What it wrote and called, what it was answered; reasoning folded, long answers too. `folded`: calls and all answers as well, where
 * several conversations stand side by side. `name`: what its turns are called in the page, where there are several. */
export function Conversation({ rollout, folded = false, rendered = false, name = "turn" }: { rollout: Told; folded?: boolean; rendered?: boolean; name?: string }) {
  const { turns } = rollout;
  const calls = turns.filter((turn) => turn.own && turn.call).length;
  const failed = turns.filter((turn) => turn.tool_error !== null).length;
  const marks = turns.flatMap((turn, k) => (turn.tool_error !== null || turn.again ? [k] : []));
  return (
    <section class="turns" aria-label="Conversation">
      {!folded && <h2>Conversation</h2>}
      <p class="faint small">
        {turns.length} turns, {calls} {calls === 1 ? "call" : "calls"}{failed > 0 && `, ${failed} failed`}
        {rollout.truncated && <span class="flag">cut off at the length limit</span>}
        {rollout.capped && <span class="flag">stored only in part</span>}
      </p>
      {marks.length > 0 && (
        <p class="small">
          {"Look at "}
          {marks.slice(0, 12).map((k) => <a key={k} href={`#${name}-${k}`} onClick={(event) => jump(event, k, name)}>turn {k + 1}</a>)}
        </p>
      )}
      <ol>
        {turns.map((turn, k) => (
          <li key={k} id={`${name}-${k}`} class={`${turn.own ? "own" : turn.role}${turn.tool_error !== null ? " bad" : ""}`}>
            <p class="who">
              <span class="faint">{k + 1}</span> <b><Shown text={turn.role === "tool" && turn.call ? `tool ${turn.call}` : turn.role} limit={60} /></b>
              {turn.role === "assistant" && !turn.own && <span class="flag">not by this policy</span>}
              {turn.again && <span class="flag">called before, word for word</span>}
              {turn.tool_error !== null && <span class="flag">failed</span>}
            </p>
            {turn.reasoning !== null && <details><summary>Reasoning</summary><Shown text={turn.reasoning} block /></details>}
            {turn.excerpt !== null && turn.excerpt !== "" && <Words text={turn.excerpt} fold={turn.role === "tool" ? (folded ? 120 : 1200) : 0} rendered={rendered} />}
            {turn.role !== "tool" && turn.call !== null && <Call call={turn.call} words={turn.arguments ?? ""} folded={folded} />}
            {turn.tool_error !== null && turn.tool_error !== turn.excerpt && <Shown text={turn.tool_error} block />}
          </li>
        ))}
      </ol>
    </section>
  );
}

export function jump(event: Event, turn: number, name = "turn"): void {
  event.preventDefault();  // the address names the screen
  document.getElementById(`${name}-${turn}`)?.scrollIntoView({ block: "center" });
}

function Call({ call, words, folded }: { call: string; words: string; folded: boolean }) {
  if (folded && words.length > 120) {
    return <details class="call"><summary><span class="faint">calls</span> <Shown text={call} limit={60} /></summary><Shown text={`${call}(${words})`} block /></details>;
  }
  return <div class="call"><span class="faint">calls</span> <Shown text={`${call}(${words})`} block /></div>;
}

/** `fold`: characters beyond which a text is folded; 0: never. */
function Words({ text, fold, rendered }: { text: string; fold: number; rendered: boolean }) {
  const whole = rendered ? <Rendered text={text} /> : <Shown text={text} block />;
  if (!fold || text.length <= fold) return whole;
  return <details><summary><Shown text={text.slice(0, 80)} />…</summary>{whole}</details>;
}
