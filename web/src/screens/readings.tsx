/** Every reading as a small chart, the open ones large; and absent readings with the setting that would add them. */
import { useState } from "preact/hooks";
import "../screens.css";
import { zoom } from "../charts/zoom";
import { count, number } from "../format";
import type { ScreenProps } from "../head";
import { lazy } from "../lazy";
import { Card, Empty, Spark, Trouble } from "../parts";
import { range, useAddress, useData, useShared } from "../shared";
import { Dotted, Shown, visible } from "../text";
import type { Panel, Readings as Told, Series } from "../types";

const PanelPlot = lazy(() => import("../charts").then((m) => m.PanelPlot));
type Reading = Told["readings"][number];

export function Readings({ run, summary, params }: ScreenProps) {
  const { data, error } = useData<Told>("/api/readings", { run });
  const [told, change] = useAddress(params);
  const [moved, setMoved] = useState(false);
  const chosen = useShared(range);
  const wanted = told.get("find") ?? "";
  if (!data) return error ? <Trouble error={error} /> : <p class="waiting" aria-busy="true">…</p>;
  const parts = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  const found = data.readings.filter((row) => parts.every((part) => row.name.toLowerCase().includes(part)));
  if (moved) found.sort((a, b) => (b.moved ?? 0) - (a.moved ?? 0));
  const open = told.getAll("name");
  const toggle = (name: string) => change({ name: open.includes(name) ? open.filter((one) => one !== name) : [...open, name] });
  return (
    <>
      {error && <Trouble error={error} />}
      <div class="bar">
        <label>Find <input type="search" value={wanted} size={24} maxLength={100} placeholder="length, kl, text…" onInput={(e) => change({ find: e.currentTarget.value })} /></label>
        <label class="box"><input type="checkbox" checked={moved} onChange={() => setMoved(!moved)} /> moved most first</label>
        {chosen && <button type="button" onClick={() => zoom(null)}>Steps {chosen.from} to {chosen.to}: show all</button>}
        <span class="faint" role="status">{count(found.length)} of {count(data.readings.length)} readings</span>
      </div>
      {!data.readings.length && <Empty>No step has been measured yet. To measure stored steps: <code>tiltmeter watch RUN</code></Empty>}
      {data.readings.length > 0 && !found.length && <Empty>No reading has that in its name.</Empty>}
      {(moved ? [["Readings", found] as const] : families(found)).map(([family, rows]) => (
        <section key={family} aria-label={visible(family)}>
          <h2 class="family"><Shown text={family} limit={40} /></h2>
          <ul class="readings">
            {rows.map((row) => (
              <li key={row.name} class={open.includes(row.name) ? "open" : undefined}>
                <button type="button" class="reading" aria-expanded={open.includes(row.name)} onClick={() => toggle(row.name)}>
                  <span class="title"><Dotted text={row.name} /></span>
                  <Spark values={row.spark} label={`${row.name} from ${number(row.first)} to ${number(row.last)}`} />
                  <span class="ends">{number(row.first)} <span class="faint">→</span> {number(row.last)}</span>
                </button>
                {open.includes(row.name) && <Large run={run} row={row} summary={summary} params={params} />}
              </li>
            ))}
          </ul>
        </section>
      ))}
      <Unseen rows={data.absent} />
    </>
  );
}

/** Readings by the first part of their names, in the order in which they come. */
function families(rows: Reading[]): [string, Reading[]][] {
  const found = new Map<string, Reading[]>();
  for (const row of rows) {
    const [family = ""] = row.name.split(".", 1);
    found.set(family, [...(found.get(family) ?? []), row]);
  }
  return [...found];
}

function Large({ run, row, summary }: ScreenProps & { row: Reading }) {
  const chosen = useShared(range);
  const { data, error } = useData<Series>("/api/series", { run, name: [row.name], from: chosen?.from, to: chosen?.to });
  if (!data) return error ? <Trouble error={error} /> : <p class="waiting tall" aria-busy="true">…</p>;
  const panel: Panel = {
    ...data, title: row.name, left: "", right: "", log: false, empty: data.steps.length ? "" : "No values in these steps.",
    sentence: `${row.name} went from ${number(row.first)} to ${number(row.last)}; its first and last steps differ by ${number(row.moved)} times its step-to-step noise.`,
  };
  return <PanelPlot panel={panel} marks={summary.marks} lanes={summary.lanes} height={220} zoomable span={chosen} />;
}

export function Unseen({ rows }: { rows: Told["absent"] }) {
  if (!rows.length) return null;
  return (
    <Card title="Absent readings" aside={rows.length === 1 ? "1 reading" : `${rows.length} readings`}>
      <table class="cards" role="table" aria-label="Absent readings">
        <thead role="rowgroup"><tr role="row">{["Reading", "Missing column", "How to add it"].map((title) => <th key={title} role="columnheader" scope="col">{title}</th>)}</tr></thead>
        <tbody role="rowgroup">
          {rows.map((row) => (
            <tr key={row.name} role="row">
              <td role="cell" data-label="Reading"><Dotted text={row.name} /></td>
              <td role="cell" data-label="Missing column"><Shown text={row.lacks} limit={120} /></td>
              <td role="cell" data-label="How to add it">{row.fix ? <code><Shown text={row.fix} /></code> : <span class="faint">no setting adds it</span>}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Card>
  );
}
