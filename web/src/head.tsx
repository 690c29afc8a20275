/** The head of a run: its state before anything else. The page and the report both begin with it. */
import { useState } from "preact/hooks";
import { span } from "./format";
import { StateMark } from "./parts";
import { link } from "./route";
import { useSource } from "./shared";
import { Refused, type Source } from "./source";
import { RunName, Shown, visible } from "./text";
import type { Summary } from "./types";

/** What every screen of a run is given. */
export interface ScreenProps {
  run: string;
  summary: Summary;
  params: URLSearchParams;
}

export function RunHead({ summary }: { summary: Summary }) {
  const { live } = useSource();
  const life = summary.live ? "live" : "ended";
  return (
    <div class={`head ${summary.state.toLowerCase()}`} id="verdict">
      <p class="headline">
        <StateMark state={summary.state} />
        <strong class="name"><RunName name={summary.name} /></strong>
        <span class="faint">{life}, step {summary.step < 0 ? "–" : summary.step}, attempt {summary.attempt}, {summary.age_s === null ? "no data yet" : `data ${span(summary.age_s)} old`}</span>
      </p>
      {live && <Buttons summary={summary} />}
      <h1 class="sentence" aria-live="polite"><Shown text={summary.sentence} /></h1>
    </div>
  );
}

/** What a reader does next, whichever screen they are on. */
function Buttons({ summary }: { summary: Summary }) {
  const source = useSource();
  const [trouble, setTrouble] = useState("");
  const [busy, setBusy] = useState(false);
  const report = async () => {
    setBusy(true);
    setTrouble(await save(source, summary));
    setBusy(false);
  };
  const [alarms, waiting] = [summary.alarms.length, summary.proposals.length];
  return (
    <div class="buttons">
      {trouble && <span role="alert">{trouble}</span>}
      {alarms > 0 && <a class="button" href={link("alarms", summary.run, { id: summary.alarms[0]?.id })}>Acknowledge…</a>}
      {waiting > 0 && <a class="button" href={link("actions", summary.run)}>Actions ({waiting})…</a>}
      <button type="button" disabled={busy} onClick={report}>{busy ? "Making the report…" : "Report"}</button>
    </div>
  );
}

/** Keep the run as one file; what went wrong, if something did. */
async function save(source: Source, { run, step }: Summary): Promise<string> {
  try {
    const address = URL.createObjectURL(await source.file("/api/report", { run }));
    const handed = document.createElement("a");
    handed.href = address;
    handed.download = `tiltmeter-${run}-step-${Math.max(step, 0)}.html`;
    handed.click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
    return "";
  } catch (error) {
    return error instanceof Refused ? visible(error.message) : "the server does not answer";
  }
}
