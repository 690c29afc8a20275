/** What a completion was paid by each component, as bars beside the group's mean. */
import { number } from "../format";
import { visible } from "../text";
import type { GroupMember, ReadGroup } from "../types";

/** Components that have a bar; those that tell completions apart most come first. */
const BARS = 3;

export function Components({ member, group }: { member: GroupMember; group: ReadGroup }) {
  const ranked = rank(group);
  if (!ranked.length) return null;
  const rest = ranked.length - BARS;
  return (
    <ul class="components" title={group.weights_why}>
      {ranked.slice(0, BARS).map((part) => <Bar key={part.name} part={part} member={member} />)}
      {rest > 0 && (
        <li>
          <details>
            <summary class="small">{rest} more</summary>
            <ul class="components">{ranked.slice(BARS).map((part) => <Bar key={part.name} part={part} member={member} />)}</ul>
          </details>
        </li>
      )}
    </ul>
  );
}

interface Part {
  name: string;
  weight: number | null;
  low: number; // of the group and 0
  high: number;
  mean: number;
  spread: number; // of what is paid for it
}

const known = new WeakMap<ReadGroup, Part[]>();

/** The components of a group, those first by which the paid amounts differ most. */
function rank(group: ReadGroup): Part[] {
  const found = known.get(group);
  if (found) return found;
  const names = [...new Set(group.members.flatMap((one) => one.rewards.map((part) => part.name)))];
  const parts = names.map((name) => {
    const weight = group.weights.find((one) => one.name === name)?.weight ?? null;
    const values = group.members.flatMap((one) => one.rewards.find((part) => part.name === name)?.value ?? []);
    const mean = values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
    const spread = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0)) * Math.abs(weight ?? 1);
    return { name, weight, mean, spread, low: Math.min(0, ...values), high: Math.max(0, ...values) };
  });
  parts.sort((a, b) => b.spread - a.spread);
  known.set(group, parts);
  return parts;
}

function Bar({ part, member }: { part: Part; member: GroupMember }) {
  const { low, high, mean, weight, name } = part;
  const own = member.rewards.find((one) => one.name === name);
  const value = own?.value ?? null;
  const x = (of: number) => (high > low ? (100 * (of - low)) / (high - low) : 0);
  const [from, to] = value === null ? [0, 0] : [Math.min(x(0), x(value)), Math.max(x(0), x(value))];
  const says = `${visible(name)}${weight === null ? "" : `, weight ${number(weight)}`}: ${own?.flag || number(value)}, mean of the group ${number(mean)}`;
  return (
    <li title={says}>
      <span class="component-name"><span class="unseen">{says}</span><span aria-hidden="true">{visible(name)}{weight !== null && weight !== 1 ? ` ×${number(weight)}` : ""}</span></span>
      <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
        <rect class={value !== null && value > mean ? "over" : "under"} x={from} y="1" width={Math.max(value === null ? 0 : 0.8, to - from)} height="8" />
        <rect class="mean" x={Math.max(0, x(mean) - 0.5)} y="0" width="1" height="10" />
      </svg>
      <span class="component-value" aria-hidden="true">{own?.flag || number(value, "–", 2)}</span>
    </li>
  );
}
