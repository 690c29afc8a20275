/** S3: over-used phrases, compared with the start of the run. */
import { useState } from "preact/hooks";
import "../screens.css";
import { number, percent } from "../format";
import type { ScreenProps } from "../head";
import { Gold } from "../panes";
import { Empty, Spark, Trouble } from "../parts";
import { link } from "../route";
import { useData, useSource } from "../shared";
import { Shown, visible } from "../text";
import type { PhraseRow, PhraseList as Told } from "../types";

type Key = "text" | "share" | "share_before" | "z" | "paid" | "worth" | "first";
const COLUMNS: [Key, string, string][] = [
  ["text", "Phrase", "what is said"],
  ["share", "Now", "share of completions that contain it now"],
  ["share_before", "Start", "share of completions that contained it at the start"],
  ["z", "z", "how sure it is that the share has changed"],
  ["paid", "Reward with / without", "difference in mean reward"],
  ["worth", "Gold with / without", "difference in mean gold"],
  ["first", "Since", "step at which its share had first doubled"],
];
/** Steps of rollouts that a phrase opens: text is searched file by file. */
const BACK = 20;

export function Phrases({ run }: ScreenProps) {
  const { data, error } = useData<Told>("/api/phrases", { run });
  const [sort, setSort] = useState<{ key: Key; down: boolean }>({ key: "z", down: true });
  if (!data) return error ? <Trouble error={error} /> : <p class="waiting" aria-busy="true">Counting phrases…</p>;
  if (!data.rows.length) return <Empty><Shown text={data.empty || "No phrase has become more common."} /></Empty>;
  const rows = [...data.rows].sort((a, b) => {
    const [x, y] = [value(a, sort.key), value(b, sort.key)];
    if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1; // what is unknown stays last either way
    return (x < y ? -1 : x > y ? 1 : 0) * (sort.down ? -1 : 1);
  });
  return (
    <>
      {error && <Trouble error={error} />}
      <p class="faint intro">What is said at step {data.step}, against <Shown text={data.against} />. A phrase opens the rollouts that contain it.</p>
      <div class="scroll" tabIndex={0} role="group" aria-label="Phrases">
        <table class="phrases cards" role="table">
          <thead role="rowgroup">
            <tr role="row">
              {COLUMNS.map(([key, title, why], k) => (
                <th key={key} role="columnheader" scope="col" class={k ? "number" : undefined} aria-sort={sort.key === key ? (sort.down ? "descending" : "ascending") : "none"}>
                  <button type="button" class="sort" title={why} onClick={() => setSort({ key, down: sort.key === key ? !sort.down : key !== "text" && key !== "first" })}>
                    {title} <span aria-hidden="true">{sort.key === key ? (sort.down ? "↓" : "↑") : ""}</span>
                  </button>
                </th>
              ))}
              <th role="columnheader" scope="col">Trend</th>
              <th role="columnheader" scope="col">For example</th>
            </tr>
          </thead>
          <tbody role="rowgroup">{rows.map((row) => <Row key={row.text} row={row} run={run} step={data.step} />)}</tbody>
        </table>
      </div>
    </>
  );
}

function value(row: PhraseRow, key: Key): number | string | null {
  if (key === "paid") return row.reward_with === null || row.reward_without === null ? null : row.reward_with - row.reward_without;
  if (key === "worth") return row.gold_with === null || row.gold_without === null ? null : row.gold_with - row.gold_without;
  return row[key];
}

function Row({ row, run, step }: { row: PhraseRow; run: string; step: number }) {
  const source = useSource();
  const phrase = <Shown text={row.text} limit={80} />;
  const where = link("rollouts", run, { phrase: row.text, from: Math.max(0, step - BACK), to: step, id: row.id });
  return (
    <tr role="row">
      <th role="rowheader" scope="row" class="phrase">{source.live ? <a href={where}>“{phrase}”</a> : <>“{phrase}”</>}</th>
      <td role="cell" data-label="Now" class="number">{percent(row.share)}</td>
      <td role="cell" data-label="Start" class="number">{percent(row.share_before)}</td>
      <td role="cell" data-label="z" class="number">{number(row.z)}</td>
      <td role="cell" data-label="Reward with / without" class="number">{number(row.reward_with)} / {number(row.reward_without)}</td>
      <td role="cell" data-label="Gold with / without" class="number"><Gold value={row.gold_with} /> / <Gold value={row.gold_without} /></td>
      <td role="cell" data-label="Since" class="number">{row.first === null ? "–" : `s${row.first}`}</td>
      <td role="cell" data-label="Trend"><Spark values={row.trend} label={`share of “${visible(row.text)}” from ${percent(row.share_before)} to ${percent(row.share)}`} /></td>
      <td role="cell" data-label="For example" class="excerpt"><Shown text={row.excerpt} limit={120} /></td>
    </tr>
  );
}
