/** Small parts that every screen uses: the state as icon, word and colour; a card; a sparkline; an empty screen. */
import type { ComponentChildren } from "preact";
import { MEANINGS, type Number, type State } from "./types";
import type { Refused } from "./source";
import { keys, useShared } from "./shared";
import { visible } from "./text";

const SHAPES: Record<State, ComponentChildren> = {
  ACT: <><path d="M8 1 15.5 15 .5 15Z" fill="currentColor" /><path d="M8 6v4.5M8 12.2v1.3" class="inside" /></>,
  HOLLOW: <path d="M8 1 15 8 8 15 1 8Z" class="ring thick" />,
  STALE: <><circle cx="8" cy="8" r="6.5" class="ring" /><path d="M8 4v4l2.5 2M2.5 13.5l11-11" class="ring" /></>,
  BLIND: <><circle cx="8" cy="8" r="6.5" class="ring" /><path d="M6 6.2a2 2 0 1 1 2.6 1.9Q8 8.4 8 9.3M8 11v1.3" class="ring" /></>,
  WATCH: <><circle cx="8" cy="8" r="6.5" class="ring" /><path d="M8 1.5a6.5 6.5 0 0 1 0 13Z" fill="currentColor" /></>,
  OK: <path d="M2 8.5 6.2 13 14 3.5" class="ring thick" />,
};

/** The state of a run: never colour alone. Without a connection the style sheet greys it: an old green must not look
 * current. */
export function StateMark({ state }: { state: State }) {
  return (
    <span class={`state ${state.toLowerCase()}`} title={MEANINGS[state]}>
      <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">{SHAPES[state]}</svg>
      {state}
    </span>
  );
}

export function Card({ title, aside, children, wide, id }: { title: string; aside?: ComponentChildren; children: ComponentChildren; wide?: boolean; id?: string }) {
  return (
    <section class={`card${wide ? " wide" : ""}`} id={id} aria-label={title}>
      <header><h2>{title}</h2>{aside && <div class="aside">{aside}</div>}</header>
      {children}
    </section>
  );
}

/** A series in a line the height of a word; what it shows is said in words beside it. */
export function Spark({ values, label, kind = "plain" }: { values: Number[]; label: string; kind?: string }) {
  const known = values.filter((v): v is number => v !== null);
  if (known.length < 2) return <span class="faint">{known.length ? "–" : "?"}</span>;
  const low = Math.min(...known);
  const spread = Math.max(...known) - low || 1;
  const points = values.map((v, k) => (v === null ? null : `${((k / (values.length - 1)) * 78 + 1).toFixed(1)},${(18 - ((v - low) / spread) * 16).toFixed(1)}`));
  return (
    <svg class={`spark ${kind}`} viewBox="0 0 80 20" width="80" height="20" role="img" aria-label={visible(label)}>
      <polyline points={points.filter((p) => p !== null).join(" ")} />
    </svg>
  );
}

/** Why there is nothing here, and what would change that. */
export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Trouble({ error }: { error: Refused }) {
  return <p class="trouble" role="alert">{visible(error.message)}</p>;
}

/** Single-letter keys can be turned off, for people whose software types them by itself. */
export function KeysSwitch() {
  const on = useShared(keys);
  const toggle = () => {
    localStorage.setItem("tiltmeter.keys", on ? "off" : "on");
    keys.set(!on);
  };
  return <label class="box"><input type="checkbox" checked={on} onChange={toggle} /> single-letter keys</label>;
}
