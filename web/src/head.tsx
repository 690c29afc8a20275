/** The head of a run: its state before anything else. The page and the report both begin with it. */
import { span } from "./format";
import { StateMark } from "./parts";
import { Shown } from "./text";
import type { Summary } from "./types";

/** What every screen of a run is given. */
export interface ScreenProps {
  run: string;
  summary: Summary;
  params: URLSearchParams;
}

export function RunHead({ summary, gone }: { summary: Summary; gone?: boolean }) {
  const life = summary.live ? "live" : "ended";
  return (
    <div class={`head ${summary.state.toLowerCase()}`} id="verdict">
      <p class="headline">
        <StateMark state={summary.state} gone={gone} />
        <strong class="name"><Shown text={summary.name} limit={60} /></strong>
        <span class="faint">{life}, step {summary.step < 0 ? "–" : summary.step}, attempt {summary.attempt}, data {span(summary.age_s)} old</span>
      </p>
      <h1 class="sentence" aria-live="polite"><Shown text={summary.sentence} /></h1>
    </div>
  );
}
