import type { ScreenProps } from "../head";

export function Actions({ summary }: ScreenProps) {
  return <p class="empty">{summary.steps} steps</p>;
}
