/** A text that a model wrote, rendered: only nodes of ours, no address that can be followed or loads, no HTML of the text. */
import type { ComponentChildren, JSX } from "preact";
import { useMemo } from "preact/hooks";
import "./rendered.css";
import { visible } from "../text";
import { parse, type Block, type Inline } from "./commonmark";
import { Tex } from "./tex";

/** Characters that are rendered; what follows is shown as it was written. */
const RENDERED = 60_000;

export function Rendered({ text }: { text: string }) {
  const blocks = useMemo(() => parse(text.slice(0, RENDERED)), [text]);
  const rest = text.slice(RENDERED);
  return (
    <div class="rendered" dir="auto">
      {blocks.map((block, key) => <div key={key} class="block">{drawn(block)}</div>)}
      {rest && <><p class="faint small">From here on as it was written: the text is too long to be rendered whole.</p><pre class="said">{visible(rest)}</pre></>}
    </div>
  );
}

function drawn(block: Block): ComponentChildren {
  switch (block.kind) {
    case "paragraph": return <p>{inlines(block.parts)}</p>;
    case "heading": return <p class={`heading h${block.level}`}>{inlines(block.parts)}</p>;
    case "code": return <pre class="code">{block.language && <span class="language">{visible(block.language)}{"\n"}</span>}{visible(block.text)}</pre>;
    case "math": return <div class="display" tabIndex={0} role="group" aria-label="Formula"><Tex text={block.text} display /></div>;
    case "quote": return <blockquote>{block.blocks.map((one) => drawn(one))}</blockquote>;
    case "rule": return <hr />;
    case "list": {
      const items = block.items.map((item) => <li>{item.map((one) => (block.tight && one.kind === "paragraph" ? <>{inlines(one.parts)}</> : drawn(one)))}</li>);
      return block.start === null ? <ul>{items}</ul> : <ol start={block.start}>{items}</ol>;
    }
    case "table":
      return (
        <div class="scroll" tabIndex={0} role="group" aria-label="Table in the text">
          <table>
            <thead><tr>{block.head.map((cell, k) => <th class={block.align[k] || undefined}>{inlines(cell)}</th>)}</tr></thead>
            <tbody>{block.rows.map((row) => <tr>{row.map((cell, k) => <td class={block.align[k] || undefined}>{inlines(cell)}</td>)}</tr>)}</tbody>
          </table>
        </div>
      );
  }
}

function inlines(parts: Inline[]): (JSX.Element | string)[] {
  return parts.map((part) => {
    switch (part.kind) {
      case "text": return visible(part.text);
      case "break": return <br />;
      case "code": return <code>{visible(part.text)}</code>;
      case "math": return <Tex text={part.text} />;
      case "em": return <em>{inlines(part.parts)}</em>;
      case "strong": return <strong>{inlines(part.parts)}</strong>;
      case "link": return <span class="address">{inlines(part.parts)} <span class="faint">({visible(part.to)})</span></span>;
      case "image": return <span class="address">[picture: {inlines(part.parts)}] <span class="faint">({visible(part.to)})</span></span>;
    }
  });
}
