/** Where the reader is. The fragment holds run, screen, step range and filters, so a pasted link shows the same view. */

export type Screen =
  | "fleet" | "overview" | "rollouts" | "phrases" | "pinned" | "alarms" | "actions" | "verifier" | "health" | "readings" | "compare" | "label";

export interface Route {
  screen: Screen;
  run: string;
  params: URLSearchParams;
}

/** Screens of one run, in the order of the questions they answer. */
export const TABS: [Screen, string][] = [
  ["overview", "Overview"],
  ["rollouts", "Rollouts"],
  ["phrases", "Phrases"],
  ["pinned", "Then and now"],
  ["alarms", "Alarms"],
  ["actions", "Actions"],
  ["verifier", "Verifier"],
  ["readings", "All readings"],
  ["health", "Monitor"],
];

export function parse(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const params = new URLSearchParams(query);
  const [head, run = "", screen = "overview"] = path.split("/");
  if (head === "run" && run) {
    const known = TABS.find(([name]) => name === screen);
    return { screen: known ? known[0] : "overview", run, params };
  }
  if (head === "compare") return { screen: "compare", run: "", params };
  if (head === "label") return { screen: "label", run: "", params };
  return { screen: "fleet", run: "", params };
}

export function link(screen: Screen, run = "", params: Record<string, string | number | undefined> = {}): string {
  const told = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) if (value !== undefined && value !== "") told.set(name, String(value));
  const query = told.toString() ? `?${told}` : "";
  if (screen === "fleet") return `#/${query}`;
  if (screen === "compare" || screen === "label") return `#/${screen}${query}`;
  return `#/run/${run}${screen === "overview" ? "" : `/${screen}`}${query}`;
}
