/** What surrounds a plot: its title, its sentence, a legend in words, and the same data as a table. */
import { createContext, type ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { count, number } from "../format";
import { visible } from "../text";
import type { Number } from "../types";
import type { Style } from "./palette";

export interface Column {
  name: string;
  values: (Number | string)[];
}

/** Of a row of plots: a third, two thirds, or all of it. */
export type Width = "third" | "two" | "all";

export interface FrameProps {
  title: string;
  sentence: string;
  tools?: ComponentChildren; // beside the title
  legend?: ComponentChildren;
  left?: string; // titles of the vertical axes
  right?: string;
  note?: ComponentChildren;
  table?: () => Column[];
  empty?: string;
  wide?: Width;
  children: ComponentChildren;
}

/** Called by whatever draws inside a frame, once it has drawn. */
export const Drawn = createContext<() => void>(() => undefined);

export function Frame({ title, sentence, tools, legend, left, right, note, table, empty, wide, children }: FrameProps) {
  const [open, setOpen] = useState(false);
  const [drawn, setDrawn] = useState(false);
  const [seen] = useState(() => () => setDrawn(true));
  const names = (
    (left || right) && <div class="axis-names" aria-hidden="true"><span>{left ? `↑ ${visible(left)}` : ""}</span><span>{right ? `${visible(right)} ↑` : ""}</span></div>
  );
  return (
    <section class={`card plot${wide === "two" ? " double" : wide === "all" ? " wide" : ""}`} aria-label={visible(title)} data-plot={drawn && !empty ? visible(title) : undefined}>
      <header><h3>{visible(title)}</h3>{!empty && tools && <div class="tools">{tools}</div>}</header>
      {empty ? (
        <p class="nothing">{visible(empty)}</p>
      ) : (
        <>
          <p class="caption" title={visible(sentence)}>{visible(sentence)}</p>
          {legend}
          <div class="drawing" role="img" aria-label={visible(sentence) || visible(title)} hidden={open}>{names}<Drawn.Provider value={seen}>{children}</Drawn.Provider></div>
          {open && table && <Table columns={table()} title={title} />}
          {(note || table) && (
            <footer>
              <span class="note">{note}</span>
              {table && <button type="button" class="small" aria-pressed={open} onClick={() => setOpen(!open)}>{open ? "Show plot" : "Show data"}</button>}
            </footer>
          )}
        </>
      )}
    </section>
  );
}

const ROWS = 1000;

function Table({ columns, title }: { columns: Column[]; title: string }) {
  const length = Math.max(0, ...columns.map((c) => c.values.length));
  const rows = Array.from({ length: Math.min(length, ROWS) }, (_, k) => k);
  const cell = (value: Number | string | undefined) => (typeof value === "string" ? visible(value) : number(value, "–", 4));
  return (
    <div class="data" tabIndex={0} role="region" aria-label={`Data of ${visible(title)}`}>
      <table>
        <thead><tr>{columns.map((c, k) => <th key={k} class="number" scope="col">{visible(c.name)}</th>)}</tr></thead>
        <tbody>{rows.map((row) => <tr key={row}>{columns.map((c, k) => <td key={k} class="number">{cell(c.values[row])}</td>)}</tr>)}</tbody>
      </table>
      {length > ROWS && <p class="faint">{count(length - ROWS)} more rows: choose a narrower range.</p>}
    </div>
  );
}

export type Sign =
  | { kind: "line"; style: Style }
  | { kind: "area"; style: Style; hatch: number }
  | { kind: "mark"; token: string; shape: "ring" | "disc" | "triangle" | "square" | "diamond" | "cross" | "block" | "bar" | "band" | "best" };

export interface Item {
  label: string;
  sign: Sign;
  value?: string;
}

export function Legend({ items, lead }: { items: Item[]; lead?: string }) {
  if (!items.length) return null;
  return (
    <ul class="legend">
      {lead && <li class="lead">{lead}</li>}
      {items.map(({ label, sign, value }, key) => (
        <li key={key}><Swatch sign={sign} /> <span>{visible(label)}</span>{value !== undefined && <b>{value}</b>}</li>
      ))}
    </ul>
  );
}

function Swatch({ sign }: { sign: Sign }) {
  const token = sign.kind === "mark" ? sign.token : sign.style.token;
  const paint = { stroke: `var(--${token})`, color: `var(--${token})` };
  return <svg class="swatch" viewBox="0 0 24 12" width="24" height="12" aria-hidden="true" style={paint}>{drawn(sign)}</svg>;
}

function drawn(sign: Sign): ComponentChildren {
  if (sign.kind === "line") return <path d="M1 6H23" fill="none" stroke-width={sign.style.width} stroke-dasharray={sign.style.dash.join(" ")} />;
  if (sign.kind === "area") {
    const way = sign.hatch % 4;
    return (
      <>
        <rect x="3" y="1" width="18" height="10" fill="currentColor" fill-opacity="0.28" stroke="none" />
        {(way === 1 || way === 3) && <path d="M3 11 13 1M11 11 21 1" stroke-width="1" />}
        {(way === 2 || way === 3) && <path d="M3 1 13 11M11 1 21 11" stroke-width="1" />}
      </>
    );
  }
  switch (sign.shape) {
    case "ring": return <circle cx="12" cy="6" r="4" fill="none" stroke-width="1.5" />;
    case "disc": return <circle cx="12" cy="6" r="4" fill="currentColor" stroke="none" />;
    case "best": return <><circle cx="12" cy="6" r="4.5" fill="none" stroke-width="1.5" /><circle cx="12" cy="6" r="2.4" fill="currentColor" stroke="none" /></>;
    case "triangle": return <path d="M12 1.5 17 10.5H7Z" fill="currentColor" stroke="none" />;
    case "square": return <rect x="8.5" y="2.5" width="7" height="7" fill="none" stroke-width="1.5" />;
    case "block": return <rect x="7" y="1" width="10" height="10" fill="currentColor" stroke="none" />;
    case "diamond": return <path d="M12 1 17 6 12 11 7 6Z" fill="none" stroke-width="1.5" />;
    case "cross": return <path d="M8 2 16 10M16 2 8 10" fill="none" stroke-width="1.6" />;
    case "bar": return <path d="M5 11V6M9 11V3M13 11V7M17 11V4" fill="none" stroke-width="2" />;
    case "band": return <rect x="2" y="2" width="20" height="8" fill="currentColor" fill-opacity="0.25" stroke="none" />;
  }
}

/** One of a few, as buttons that say which is pressed. */
export function Choice<T extends string>({ label, value, options, onChange }: { label: string; value: T; options: [T, string][]; onChange: (value: T) => void }) {
  return (
    <div class="choice" role="group" aria-label={label}>
      {options.map(([name, text]) => (
        <button key={name} type="button" aria-pressed={name === value} onClick={() => onChange(name)}>{text}</button>
      ))}
    </div>
  );
}
