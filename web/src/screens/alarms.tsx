import type { ScreenProps } from "../head";

export function Alarms({ summary }: ScreenProps) {
  return <p class="empty">{summary.steps} steps</p>;
}
