/** S8: whether the monitor itself works, so that an OK verdict can be trusted. */
import "../screens.css";
import { bytes, count, span } from "../format";
import type { ScreenProps } from "../head";
import { Card, Empty, Trouble } from "../parts";
import { useData } from "../shared";
import { Shown } from "../text";
import type { Health as Told } from "../types";
import { Unseen } from "./readings";

export function Health({ run, summary }: ScreenProps) {
  const { data, error } = useData<Told>("/api/health", { run });
  if (!data) return error ? <Trouble error={error} /> : <p class="waiting" aria-busy="true">…</p>;
  const { monitor } = data;
  return (
    <>
      {error && <Trouble error={error} />}
      <div class="piles">
        <Card title="Trainer" aside={`${count(data.seen)} batches seen, ${count(data.lost)} lost`}>
          {data.ranks.length ? <Ranks ranks={data.ranks} /> : <Empty>No rank has written anything yet.</Empty>}
        </Card>
        <Card title="Monitor">
          <dl class="sheet">
            <div><dt>State</dt><dd>{monitor.running === null ? "not known from here" : monitor.running ? "running" : summary.live ? "not running: tiltmeter watch RUN" : "not running; the run has ended"}</dd></div>
            <div><dt>Measured up to</dt><dd>{monitor.step < 0 ? "no step" : `step ${monitor.step}`}{monitor.behind > 0 ? `, ${count(monitor.behind)} behind` : ", nothing behind"}</dd></div>
            <div><dt>Last event</dt><dd>{monitor.age_s === null ? "–" : `${span(monitor.age_s)} ago`}</dd></div>
            <div><dt>On disk</dt><dd>{bytes(data.disk_bytes)}</dd></div>
            <div><dt>Damaged lines skipped</dt><dd>{count(data.skipped)}</dd></div>
            <div><dt>Rollouts indexed</dt><dd>{count(data.index.rollouts)}{data.index.ready < 1 ? ` (${Math.floor(100 * data.index.ready)} %)` : ""}</dd></div>
          </dl>
        </Card>
        <Card title="Conditions of the verdict">
          {data.checks.length ? <Checks checks={data.checks} /> : <Empty>Nothing was checked yet.</Empty>}
        </Card>
        <Card title="Switched off and faults">
          {data.off.length + data.faults.length === 0 ? <Empty>Every part has worked at every step.</Empty> : <Faults told={data} />}
        </Card>
        <Card title="Overhead in the trainer">
          {data.cost.length ? <Pairs rows={data.cost} /> : <Empty>Not measured in this run.</Empty>}
        </Card>
        <Card title="Versions">
          {data.versions.length ? <Pairs rows={data.versions} /> : <Empty>Not recorded.</Empty>}
        </Card>
      </div>
      <Unseen rows={data.absent} />
    </>
  );
}

function Ranks({ ranks }: { ranks: Told["ranks"] }) {
  return (
    <table>
      <thead><tr><th scope="col">Rank</th><th scope="col" class="number">Step</th><th scope="col" class="number">Age</th><th scope="col" class="number">Lost</th><th scope="col">State</th></tr></thead>
      <tbody>
        {ranks.map((row) => (
          <tr key={row.rank}>
            <th scope="row">{row.rank}</th>
            <td class="number">{row.step < 0 ? "–" : row.step}</td>
            <td class="number">{span(row.age_s)}</td>
            <td class="number">{count(row.lost)}</td>
            <td>{row.late ? <strong class="flag">LATE</strong> : "on time"}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

export function Checks({ checks }: { checks: Told["checks"] }) {
  return (
    <ul class="conditions">
      {checks.map((check) => (
        <li key={check.name}>
          <svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" class={check.ok ? "yes" : "no"}>
            <path d={check.ok ? "M2 8.5 6.2 13 14 3.5" : "M3 3 13 13M13 3 3 13"} fill="none" stroke="currentColor" stroke-width="2.4" />
          </svg>
          <span><b>{check.ok ? "" : "no: "}<Shown text={check.name.replaceAll("_", " ")} limit={80} /></b>{check.why && <span class="faint"> <Shown text={check.why} limit={300} /></span>}</span>
        </li>
      ))}
    </ul>
  );
}

function Faults({ told }: { told: Told }) {
  return (
    <>
      {told.off.map((part) => <p key={part.part}><strong class="flag">off</strong> <Shown text={part.part} limit={60} />: <Shown text={part.error} limit={200} /></p>)}
      {told.faults.length > 0 && (
        <ul class="plain">
          {told.faults.map((fault, k) => <li key={k}><span class="faint">s{fault.step}, attempt {fault.attempt}</span> <Shown text={fault.part} limit={60} />: <Shown text={fault.error} limit={200} /></li>)}
        </ul>
      )}
    </>
  );
}

function Pairs({ rows }: { rows: { name: string; value: string }[] }) {
  return <dl class="sheet">{rows.map((row) => <div key={row.name}><dt><Shown text={row.name} limit={60} /></dt><dd><Shown text={row.value} limit={120} /></dd></div>)}</dl>;
}
