/** Tags that people put on a run or on a rollout. */
import "./tags.css";
import { link } from "./route";
import { useSource } from "./shared";
import { visible } from "./text";

/** Tags as links to what else has them. `run`: within it; without one, to runs with that tag. */
export function Tags({ tags, run }: { tags: string[]; run?: string }) {
  const { live } = useSource();
  if (!tags.length) return null;
  const there = (tag: string) => (run === undefined ? link("fleet", "", { find: `tag:${tag}` }) : link("rollouts", run, { find: `tag:${tag}` }));
  return <span class="tags"><span class="unseen">Tags: </span>{tags.map((tag) => (live ? <a key={tag} class="tag" href={there(tag)}>{visible(tag)}</a> : <span key={tag} class="tag">{visible(tag)}</span>))}</span>;
}
