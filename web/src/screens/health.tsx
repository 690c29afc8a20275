import type { ScreenProps } from "../head";

export function Health({ summary }: ScreenProps) {
  return <p class="empty">{summary.steps} steps</p>;
}
