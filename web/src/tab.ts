/** The browser's tab: its title and icon carry the state and the run's name, so that a hidden page still says it. */
import { visible } from "./text";
import type { State } from "./types";

const LONGEST = 40; // characters of a run's name
const icons = import.meta.glob<string>("./icons/*.svg", { eager: true, query: "?url", import: "default" });

export type TabState = State | "LOST";

const tab: { state: TabState | null; name: string } = { state: null, name: "" };
let plain = "";

/** What the tab says from now on; a part that is left out stays as it was. */
export function markTab(change: Partial<typeof tab>): void {
  Object.assign(tab, change);
  const name = visible(tab.name).slice(0, LONGEST);
  document.title = [tab.state === "LOST" ? "disconnected" : tab.state, name, "tiltmeter"].filter(Boolean).join(" - ");
  const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]");
  if (!icon) return;
  plain ||= icon.href;
  // Without a connection nothing is known: an old green must not look current.
  icon.href = tab.state === null ? plain : (icons[`./icons/${tab.state === "LOST" ? "stale" : tab.state.toLowerCase()}.svg`] ?? plain);
}
