import type { ScreenProps } from "../head";

export function Readings({ summary }: ScreenProps) {
  return <p class="empty">{summary.steps} steps</p>;
}
