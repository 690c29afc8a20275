/** The only way in for text that somebody else wrote: text nodes, with what is invisible made visible. */
import type { ComponentChildren } from "preact";
import type { TextHit } from "./types";

const HIDDEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

/** The same words as `tiltmeter.safety.safe_text.visible`: every character that is not plainly printable as `\u{hex}`. */
export function visible(text: string): string {
  return text
    .replaceAll("\\u{", "\\u{5c}u{")
    .replace(HIDDEN, (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`);
}

/** Part of a text, as `visible` shows it within the whole: what stands behind its end counts. */
export function shownSlice(text: string, from: number, to: number): string {
  return text.slice(from, to).replace(SHOWN, (char, ...rest) => {
    const at = rest.find((one): one is number => typeof one === "number") ?? 0;
    if (char === "\\") return text.startsWith("u{", from + at + 1) ? "\\u{5c}" : char;
    return `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`;
  });
}
const SHOWN = new RegExp(`\\\\|${HIDDEN.source}`, "gu");

/** A text as it was written, with the places marked that a search found. Offsets count as JavaScript does. */
export function Marked({ text, hits, where }: { text: string; hits: TextHit[]; where: TextHit["where"] }) {
  const parts: ComponentChildren[] = [];
  let at = 0;
  for (const { start, stop, where: there } of hits) {
    if (there !== where || start < at) continue;
    parts.push(visible(text.slice(at, start)), <mark class="hit">{visible(text.slice(start, stop))}</mark>);
    at = stop;
  }
  return <>{parts}{visible(text.slice(at))}</>;
}

/** Text of a model, a dataset or a person. `limit`: characters shown; the rest is said. */
export function Shown({ text, limit, block }: { text: string; limit?: number; block?: boolean }) {
  const whole = visible(text);
  const cut = limit !== undefined && whole.length > limit ? `${whole.slice(0, limit)}…` : whole;
  return block ? <pre class="said">{cut}</pre> : <span class="shown">{cut}</span>;
}

/** A run's name, not made visible yet. Runs that belong together often differ only at the end, so a long one is cut in its middle. */
export function shortened(name: string, most = 72): string {
  const tail = Math.floor(most * 0.4);
  return name.length <= most ? name : `${name.slice(0, most - tail - 1)}…${name.slice(-tail)}`;
}

export function RunName({ name }: { name: string }) {
  const short = shortened(name);
  return <span class="shown" title={short === name ? undefined : visible(name)}>{visible(short)}</span>;
}

/** A name of parts, which breaks where they meet. */
export function Dotted({ text }: { text: string }) {
  const whole = visible(text);
  return <>{(whole.length > 60 ? `${whole.slice(0, 60)}…` : whole).split(/(?<=[._])/).map((part, k) => <span key={k}>{part}<wbr /></span>)}</>;
}

/** Text that somebody wrote to be read, with its lines joined again into paragraphs as wide as the reader's window. */
export function Prose({ text }: { text: string }) {
  return <div class="prose">{paragraphs(visible(text)).map((paragraph, key) => <p key={key}>{paragraph}</p>)}</div>;
}

/** A line was broken to fit its page if the next word would have made it longer than the longest line; else on purpose. */
function paragraphs(text: string): string[] {
  const lines = text.split("\n").map((line) => line.trimEnd());
  const page = Math.max(0, ...lines.map((line) => line.length));
  const found: string[] = [];
  let [open, last] = [false, 0];
  for (const line of lines) {
    const [word = ""] = line.trimStart().split(" ", 1);
    const item = /^([-*•]|\d+[.)])$/.test(word);
    if (line && open && !item && page >= 60 && last + 1 + word.length > page) found.push(`${found.pop()} ${line.trimStart()}`);
    else if (line) found.push(line);
    open = line !== "";
    last = line.length;
  }
  return found;
}
