/** The head of a run: its state before anything else. The page and the report both begin with it. */
import { useState } from "preact/hooks";
import { span } from "./format";
import { StateMark } from "./parts";
import { link } from "./route";
import { useSource } from "./shared";
import { RunName, Shown, visible } from "./text";
import type { Summary } from "./types";

/** What every screen of a run is given. */
export interface ScreenProps {
  run: string;
  summary: Summary;
  params: URLSearchParams;
}

export function RunHead({ summary, gone }: { summary: Summary; gone?: boolean }) {
  const { live } = useSource();
  const life = summary.live ? "live" : "ended";
  return (
    <div class={`head ${summary.state.toLowerCase()}`} id="verdict">
      <p class="headline">
        <StateMark state={summary.state} gone={gone} />
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
  const [trouble, setTrouble] = useState("");
  const [busy, setBusy] = useState(false);
  const report = async () => {
    setBusy(true);
    setTrouble(await save(summary));
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

/** Keep the run as one file. A link could not carry the token, so the file is fetched and then handed over. */
async function save({ run, step }: Summary): Promise<string> {
  try {
    const token = localStorage.getItem("tiltmeter.view") ?? "";
    const reply = await fetch(`/api/report?run=${run}`, { headers: { Authorization: `Bearer ${token}` } });
    if (!reply.ok) return visible(((await reply.json().catch(() => ({}))) as { error?: string }).error ?? `the server answered ${reply.status}`);
    const address = URL.createObjectURL(await reply.blob());
    const handed = document.createElement("a");
    handed.href = address;
    handed.download = `tiltmeter-${run}-step-${Math.max(step, 0)}.html`;
    handed.click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
    return "";
  } catch {
    return "the server does not answer";
  }
}
