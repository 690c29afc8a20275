/** An agent's conversation as turns. */
import { Shown, shownSlice } from "../text";
import type { ColourScale, Rollout, TurnTokens } from "../types";
import { number } from "../format";
import { level, levelClass } from "./levels";
import { Rendered } from "./rendered_lazy";

type Told = Pick<Rollout, "turns" | "truncated" | "capped">;

interface ConversationProps {
  rollout: Told;
  folded?: boolean;
  rendered?: boolean;
  name?: string;
  tokens?: TurnTokens[]; // numbers of the words that it wrote
  scale?: ColourScale | null;
}

/** What it wrote and called, what it was answered; reasoning folded, long answers too. `folded`: calls and all answers as well, where
 * several conversations stand side by side. `name`: what its turns are called in the page, where there are several. */
export function Conversation({ rollout, folded = false, rendered = false, name = "turn", tokens = [], scale = null }: ConversationProps) {
  const { turns } = rollout;
  const numbers = new Map(scale && !rendered ? tokens.map((one) => [one.turn, one]) : []);
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
            {turn.excerpt !== null && turn.excerpt !== "" && scale && numbers.has(k) ? <Coloured text={turn.excerpt} tokens={numbers.get(k)} scale={scale} />
              : turn.excerpt !== null && turn.excerpt !== "" && <Words text={turn.excerpt} fold={turn.role === "tool" ? (folded ? 120 : 1200) : 0} rendered={rendered} />}
            {turn.role !== "tool" && turn.call !== null && <Call call={turn.call} words={turn.arguments ?? ""} folded={folded} />}
            {turn.tool_error !== null && turn.tool_error !== turn.excerpt && <Shown text={turn.tool_error} block />}
          </li>
        ))}
      </ol>
    </section>
  );
}

const MOST_TOKENS = 4000; // of a turn that have a node each

/** The words of a turn, each token in its colour, with its number on hover. */
function Coloured({ text, tokens, scale }: { text: string; tokens?: TurnTokens; scale: ColourScale }) {
  let at = 0;
  const parts = (tokens?.widths ?? []).slice(0, MOST_TOKENS).map((width, k) => {
    const [start, stop] = [at, (at += width)];
    const value = tokens?.values[k] ?? null;
    return width ? <span key={k} class={levelClass(level(value, scale), scale)} title={`${scale.title} ${value === null ? "–" : number(value, "–", 4)} ${scale.unit}`}>{shownSlice(text, start, stop)}</span> : null;
  });
  return <pre class="said" data-coloured>{parts}{shownSlice(text, at, text.length)}</pre>;
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
