/** What several parts of a page look at together: the cursor and the range of steps, and hooks for data. */
import { createContext } from "preact";
import { useContext, useEffect, useRef, useState } from "preact/hooks";
import { Refused, type Params, type Source } from "./source";
import type { Me } from "./types";

/** A value that components can watch. */
export class Shared<T> {
  private watchers = new Set<(value: T) => void>();
  constructor(public value: T) {}
  set(value: T): void {
    if (value === this.value) return;
    this.value = value;
    for (const watcher of this.watchers) watcher(value);
  }
  watch(watcher: (value: T) => void): () => void {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  }
}

export function useShared<T>(shared: Shared<T>): T {
  const [value, setValue] = useState(shared.value);
  useEffect(() => {
    setValue(shared.value);
    return shared.watch(setValue);
  }, [shared]);
  return value;
}

/** The step under the pointer, on every plot over steps at once. */
export const cursor = new Shared<number | null>(null);
/** The steps that a reader has zoomed to; null: all. */
export const range = new Shared<{ from: number; to: number } | null>(null);
/** Counts up when the run has something new; data that is shown is asked for again. */
export const news = new Shared(0);
/** Who the server takes this page for. */
export const me = new Shared<Me>({ name: "", roles: [], control: "none" });
/** Single-letter keys, which some people must be able to turn off (WCAG 2.1.4). */
export const keys = new Shared(localStorageSafe("tiltmeter.keys") !== "off");

export function localStorageSafe(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return null; // a report opened from a file may not have any
  }
}

export const SourceContext = createContext<Source>(null as unknown as Source);
export const useSource = () => useContext(SourceContext);

export interface Asked<T> {
  data: T | null; // stays while something newer is asked for
  error: Refused | null;
  busy: boolean;
}

/** Data of a route, asked for again when its parameters change or when the run has news; `live`: at most once in so many
 * seconds, or never; `again`: whenever this number changes. News never interrupts a question: on a fast run nothing would ever be answered. */
export function useData<T>(path: string, params: Params = {}, live: boolean | number = true, again = 0): Asked<T> {
  const source = useSource();
  const [turn, setTurn] = useState(0);
  const [state, setState] = useState<Asked<T>>({ data: null, error: null, busy: true });
  const key = JSON.stringify([path, params]);
  const shown = useRef("");
  const asking = useRef(false);
  useEffect(() => {
    if (live === false) return;
    let timer = 0;
    let last = 0;
    const ask = () => {
      timer = asking.current ? window.setTimeout(ask, 200) : 0;
      if (timer) return;
      last = Date.now();
      setTurn((n) => n + 1);
    };
    const unwatch = news.watch(() => {
      timer ||= window.setTimeout(ask, Math.max(0, last + 1000 * Number(live) - Date.now()));
    });
    return () => {
      unwatch();
      clearTimeout(timer);
    };
  }, [live]);
  useEffect(() => {
    if (!path) return;
    const abort = new AbortController();
    asking.current = true;
    setState((old) => ({ data: shown.current === key || live !== false ? old.data : null, error: null, busy: true }));
    source
      .get<T>(path, params, abort.signal)
      .then((data) => {
        if (abort.signal.aborted) return;
        asking.current = false;
        shown.current = key;
        setState({ data, error: null, busy: false });
      })
      .catch((error: unknown) => {
        if (abort.signal.aborted) return;
        asking.current = false;
        const refused = error instanceof Refused ? error : new Refused(0, "the server does not answer");
        setState((old) => ({ ...old, error: refused, busy: false }));
      });
    return () => {
      asking.current = false;
      abort.abort();
    };
  }, [source, key, turn, again]);
  return state;
}

/** Calls `pressed` for single keys, unless they are off, a modifier is held or somebody is typing. */
export function useKeys(pressed: (key: string, event: KeyboardEvent) => void): void {
  const latest = useRef(pressed);
  latest.current = pressed;
  useEffect(() => {
    const heard = (event: KeyboardEvent) => {
      const target = event.target as HTMLElement;
      const box = target instanceof HTMLInputElement && ["checkbox", "radio"].includes(target.type);
      const typing = target.isContentEditable || (!box && ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName));
      if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (!keys.value && event.key.length === 1) return;
      latest.current(event.key, event);
    };
    document.addEventListener("keydown", heard);
    return () => document.removeEventListener("keydown", heard);
  }, []);
}

export type Change = Record<string, string | number | string[] | undefined>;

/** A screen's part of the address: its filters and what is open. A change moves neither the focus nor the history. */
export function useAddress(params: URLSearchParams): [URLSearchParams, (change: Change) => void] {
  const [told, setTold] = useState(params);
  const latest = useRef(told);
  latest.current = told;
  useEffect(() => setTold(params), [params]);
  const change = (changes: Change) => {
    const next = new URLSearchParams(latest.current);
    for (const [name, value] of Object.entries(changes)) {
      next.delete(name);
      for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== "") next.append(name, String(one));
    }
    latest.current = next;
    setTold(next);
    const [path = "#/"] = location.hash.split("?", 1);
    if (location.protocol !== "file:") history.replaceState(null, "", next.toString() ? `${path || "#/"}?${next}` : path || "#/");
  };
  return [told, change];
}
