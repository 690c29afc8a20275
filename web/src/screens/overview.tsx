import type { ScreenProps } from "../head";

export function Overview({ summary }: ScreenProps) {
  return <p class="empty">{summary.steps} steps</p>;
}
