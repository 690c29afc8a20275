import type { ScreenProps } from "../head";

export function Phrases({ summary }: ScreenProps) {
  return <p class="empty">{summary.steps} steps</p>;
}
