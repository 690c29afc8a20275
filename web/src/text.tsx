/** The only way in for text that somebody else wrote: text nodes, with what is invisible made visible. */
import type { ComponentChildren } from "preact";

const HIDDEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

/** The same words as `tiltmeter.encode.visible`: every character that is not plainly printable as `\u{hex}`. */
export function visible(text: string): string {
  return text
    .replaceAll("\\u{", "\\u{5c}u{")
    .replace(HIDDEN, (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`);
}

/** Text of a model, a dataset or a person. `limit`: characters shown; the rest is said. */
export function Shown({ text, limit, block }: { text: string; limit?: number; block?: boolean }) {
  const whole = visible(text);
  const cut = limit !== undefined && whole.length > limit ? `${whole.slice(0, limit)}…` : whole;
  return block ? <pre class="said">{cut}</pre> : <span class="shown">{cut}</span>;
}

/** Bold, italic, code, headings and lists as nodes; links, images and HTML stay what they are: text. Off by default,
 * because what a model wrote must be readable as it was written. */
export function Markdown({ text }: { text: string }) {
  return <div class="said markdown">{visible(text).split("\n").map((line, key) => <MarkdownLine key={key} line={line} />)}</div>;
}

function MarkdownLine({ line }: { line: string }) {
  const heading = /^#{1,6} (.*)$/.exec(line);
  if (heading) return <p><b>{inline(heading[1] ?? "")}</b></p>;
  const item = /^\s*[-*] (.*)$/.exec(line);
  if (item) return <p class="item">{inline(item[1] ?? "")}</p>;
  return <p>{inline(line)}</p>;
}

function inline(text: string): ComponentChildren[] {
  return text.split(/(\*\*[^*]+\*\*|\*[^*]+\*|`[^`]+`)/g).map((part) => {
    if (/^\*\*[^*]+\*\*$/.test(part)) return <b>{part.slice(2, -2)}</b>;
    if (/^\*[^*]+\*$/.test(part)) return <i>{part.slice(1, -1)}</i>;
    if (/^`[^`]+`$/.test(part)) return <code>{part.slice(1, -1)}</code>;
    return part;
  });
}
