import { link } from "../route";
import { useData } from "../shared";
import { Shown } from "../text";
import type { Fleet as Told } from "../types";

export function Fleet() {
  const { data } = useData<Told>("/api/fleet");
  return <ul>{data?.runs.map((row) => <li key={row.run}><a href={link("overview", row.run)}><Shown text={row.name} /></a></li>)}</ul>;
}
