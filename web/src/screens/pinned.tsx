import type { ScreenProps } from "../head";

export function Pinned({ summary }: ScreenProps) {
  return <p class="empty">{summary.steps} steps</p>;
}
