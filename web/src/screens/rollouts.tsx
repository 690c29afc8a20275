import type { ScreenProps } from "../head";

export function Rollouts({ summary }: ScreenProps) {
  return <p class="empty">{summary.steps} steps</p>;
}
