/** Two texts side by side, as they were written, with the words that differ marked. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import "./screens.css";
import { COMPARED, difference, type Piece } from "./diff";
import { count, exact, number } from "./format";
import { useSource } from "./shared";
import { link } from "./route";
import { Rendered } from "./reading/rendered_lazy";
import { Marked, Shown, visible } from "./text";
import type { Number, TextHit } from "./types";

export type How = "diff" | "plain" | "markdown";

/** A reward or a gold score: three digits here, every digit on hover and for screen readers of the cell. */
export function Figure({ value, flag, missing = "–" }: { value: Number; flag?: string; missing?: string }) {
  if (flag) return <span class="flag">{flag}</span>;
  return value === null ? <span class="faint">{missing}</span> : <span title={exact(value)}>{number(value)}</span>;
}

/** Gold that nobody has given yet is unknown, never zero. */
export function Gold({ value }: { value: Number }) {
  return value === null ? <span class="faint" title="not labelled">?</span> : <Figure value={value} />;
}

export function ToRollout({ run, id, children }: { run: string; id: string; children: ComponentChildren }) {
  const source = useSource();
  return source.live && id ? <a href={link("rollouts", run, { id })}>{children}</a> : <>{children}</>;
}

export interface Side {
  title: ComponentChildren;
  label: string; // for people who hear it
  text: string | null;
  missing: string; // why there is no text
  hits?: TextHit[]; // of a search, marked instead of what differs
}

export function Panes({ sides, how }: { sides: [Side, Side]; how: How }) {
  const [left, right] = sides;
  const { live } = useSource();
  const hits = right.hits?.some((hit) => hit.where === "completion") ?? false;
  const found = useMemo(
    () => (how === "diff" && !hits && left.text !== null && right.text !== null ? difference(visible(left.text), visible(right.text)) : null),
    [left.text, right.text, how, hits],
  );
  const nothing = found !== null && found.shared < 0.03;
  const marked = found && !nothing ? [found.before, found.after] : [null, null];
  return (
    <div class="panes">
      {sides.map((side, k) => <Pane key={k} side={side} how={how} pieces={marked[k] ?? null} mark={k ? "ins" : "del"} />)}
      {live && (nothing || found?.capped) && (
        <p class="faint small across">
          {nothing ? "Hardly a word in common, so none is marked. " : ""}
          {found?.capped ? `Compared up to ${count(COMPARED)} characters a side.` : ""}
        </p>
      )}
    </div>
  );
}

function Pane({ side, how, pieces, mark }: { side: Side; how: How; pieces: Piece[] | null; mark: "ins" | "del" }) {
  return (
    <div class="pane">
      <header>{side.title}</header>
      <div class="text" tabIndex={0} role="group" aria-label={`Text of ${side.label}`} data-text={mark === "ins" ? "now" : "base"}>
        {side.text === null ? <p class="empty">{visible(side.missing)}</p>
          : side.text === "" ? <p class="empty">An empty text.</p>
          : pieces ? <Pieces pieces={pieces} mark={mark} />
          : side.hits?.some((hit) => hit.where === "completion") && how !== "markdown" ? <pre class="said"><Marked text={side.text} hits={side.hits} where="completion" /></pre>
          : how === "markdown" ? <Rendered text={side.text} />
          : <Shown text={side.text} block />}
      </div>
    </div>
  );
}

function Pieces({ pieces, mark: Mark }: { pieces: Piece[]; mark: "ins" | "del" }) {
  return <pre class="said">{pieces.map((piece, k) => (piece.changed ? <Mark key={k}>{piece.text}</Mark> : piece.text))}</pre>;
}

/** How both texts are shown; the same three choices wherever two texts stand side by side. */
export function HowButtons({ how, set }: { how: How; set: (how: How) => void }) {
  const toggle = (wanted: How) => set(how === wanted ? "plain" : wanted);
  return (
    <>
      <button type="button" aria-pressed={how === "diff"} onClick={() => toggle("diff")}>Diff <kbd>d</kbd></button>
      <button type="button" aria-pressed={how === "markdown"} onClick={() => toggle("markdown")}>Rendered <kbd>m</kbd></button>
    </>
  );
}
