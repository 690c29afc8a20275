/** The range of steps that a page shows: kept in the address, so a pasted link shows the same; a report has none. */
import { range } from "../shared";

export function zoom(chosen: { from: number; to: number } | null): void {
  const told = chosen && { from: Math.max(0, Math.round(chosen.from)), to: Math.max(Math.round(chosen.from) + 1, Math.round(chosen.to)) };
  const [path = "", query = ""] = location.hash.split("?", 2);
  if (path.startsWith("#/run/")) {
    const params = new URLSearchParams(query);
    for (const name of ["from", "to"] as const) told ? params.set(name, String(told[name])) : params.delete(name);
    const text = params.toString();
    location.hash = text ? `${path}?${text}` : path;
  }
  range.set(told);
}
