/** S6: two to six runs over the same axis, the difference, what was set differently, and what each says. */
import { useRef, useState } from "preact/hooks";
import "../screens.css";
import { count } from "../format";
import { lazy } from "../lazy";
import { Figure, Gold, HowButtons, Panes, ToRollout, type How, type Side } from "../panes";
import { Card, Empty, StateMark, Trouble } from "../parts";
import { link } from "../route";
import { useAddress, useData, useKeys } from "../shared";
import { RunName, shortened, Shown } from "../text";
import type { Compare as Told, Fleet } from "../types";
import type { GroupsProps } from "./groups";

const ComparePlot = lazy(() => import("../charts").then((m) => m.ComparePlot));
const DifferencePlot = lazy(() => import("../charts").then((m) => m.DifferencePlot));
const Groups = lazy<GroupsProps>(() => import("./groups").then((m) => m.Groups));
const MOST = 6;
const LISTED = 100; // runs of the chooser; others are found by their words
const AXES: [Told["x"], string][] = [["step", "step"], ["root_kl", "√KL"], ["tokens", "tokens"]];
/** Runs have letters: their names may be long, and may be alike. */
const letter = (k: number) => String.fromCharCode(65 + k);

export function Compare({ params }: { params: URLSearchParams }) {
  const [told, change] = useAddress(params);
  const [choosing, setChoosing] = useState(false);
  const runs = told.getAll("run").slice(0, MOST);
  const by = told.get("by");
  return (
    <>
      <div class="bar">
        <h1 class="title">Compare runs</h1>
        <div class="choice" role="group" aria-label="What is compared">
          <button type="button" aria-pressed={by === null} onClick={() => change({ by: undefined, find: undefined })}>2 to {MOST} runs</button>
          <button type="button" aria-pressed={by !== null} onClick={() => by === null && change({ by: "?" })}>groups of runs</button>
        </div>
      </div>
      {by !== null ? <Groups by={by} find={told.get("find") ?? ""} change={change} /> : runs.length < 2 || choosing
        ? <Choose chosen={runs} choose={(next) => change({ run: next })} done={runs.length >= 2 ? () => setChoosing(false) : undefined} />
        : <Compared runs={runs} told={told} change={change} more={() => setChoosing(true)} />}
    </>
  );
}

/** Runs to choose from: those that need a person first, and any other by a word of its name, its problem or a setting. */
function Choose({ chosen, choose, done }: { chosen: string[]; choose: (runs: string[]) => void; done?: () => void }) {
  const [find, setFind] = useState("");
  const { data, error } = useData<Fleet>("/api/fleet", { find, limit: LISTED, pictures: 0 });
  const [picked, setPicked] = useState(chosen);
  const seen = useRef(new Map<string, Fleet["runs"][number]>()); // so that what was picked stays, whatever is searched for
  for (const row of data?.runs ?? []) seen.current.set(row.run, row);
  if (!data) return error && !find ? <Trouble error={error} /> : <p class="waiting" aria-busy="true">…</p>;
  if (data.runs.length < 2 && !find) return <Empty>There is only one run here. Open a folder with several: <code>tiltmeter view FOLDER</code></Empty>;
  const toggle = (run: string) => setPicked(picked.includes(run) ? picked.filter((one) => one !== run) : [...picked, run]);
  const kept = picked.flatMap((run) => seen.current.get(run) ?? []);
  const rows = [...kept, ...data.runs.filter((row) => !picked.includes(row.run))];
  return (
    <form onSubmit={(event) => { event.preventDefault(); choose(picked); done?.(); }}>
      <p class="bar">
        <label>Find <input type="search" maxLength={300} size={30} spellcheck={false} placeholder="lr-1e state:act beta=0.1" value={find} aria-describedby="choose-help" onInput={(event) => setFind(event.currentTarget.value)} onKeyDown={(event) => event.key === "Enter" && event.preventDefault()} /></label>
        <span id="choose-help" class="faint small" role="status">{error ? error.message : `${count(data.runs.length)} of ${count(data.matches)} listed${data.unread ? `, ${count(data.unread)} not read yet` : ""}`}</span>
      </p>
      <fieldset class="choose">
        <legend>Choose 2 to {MOST} runs; the first is what the others are compared with.</legend>
        {rows.map((row) => {
          const place = picked.indexOf(row.run);
          return (
            <label key={row.run} class="box">
              <input type="checkbox" checked={place >= 0} disabled={place < 0 && picked.length >= MOST} onChange={() => toggle(row.run)} />
              <b class="letter">{place >= 0 ? letter(place) : ""}</b> <StateMark state={row.state} /> <span><RunName name={row.name} /> <span class="faint">step {row.step < 0 ? "–" : row.step}</span></span>
            </label>
          );
        })}
      </fieldset>
      {data.matches > data.runs.length && <p class="faint small">{count(data.matches - data.runs.length)} more: find them by a word.</p>}
      <p class="buttons"><button type="submit" class="strong" disabled={picked.length < 2}>Compare</button></p>
    </form>
  );
}

interface ComparedProps {
  runs: string[];
  told: URLSearchParams;
  change: (change: Record<string, string | string[] | undefined>) => void;
  more: () => void;
}

function Compared({ runs, told, change, more }: ComparedProps) {
  const x = AXES.find(([value]) => value === told.get("x"))?.[0] ?? "step";
  const { data, error, busy } = useData<Told>("/api/compare", { run: runs, x, name: told.get("name") ?? undefined });
  const named = (event: Event) => {
    event.preventDefault();
    change({ name: new FormData(event.currentTarget as HTMLFormElement).get("name")?.toString().trim() || undefined });
  };
  return (
    <>
      <div class="bar">
        <fieldset class="pair"><legend>x</legend>
          {AXES.map(([value, title]) => <button key={value} type="button" aria-pressed={x === value} onClick={() => change({ x: value })}>{title}</button>)}
        </fieldset>
        <form class="pair" onSubmit={named}>
          <label>Reading <input name="name" key={told.get("name") ?? ""} defaultValue={told.get("name") ?? ""} size={20} maxLength={200} placeholder="length.mean" /></label>
          <button type="submit">Show</button>
        </form>
        <button type="button" onClick={more}>Other runs…</button>
      </div>
      {error && <Trouble error={error} />}
      {!data ? !error && <p class="waiting tall" aria-busy="true">Comparing…</p> : <Both data={data} busy={busy} />}
    </>
  );
}

function Both({ data, busy }: { data: Told; busy: boolean }) {
  const names = data.runs.map((run, k) => `${letter(k)} ${shortened(run.name, 40)}`);
  return (
    <div class={busy ? "old" : undefined} aria-busy={busy}>
      <ul class="plain runs">
        {data.runs.map((run, k) => (
          <li key={run.run}>
            <b class="letter">{letter(k)}</b>
            <span class="who"><StateMark state={run.state} /> <a href={link("overview", run.run)}><RunName name={run.name} /></a> <span class="faint">step {run.step < 0 ? "–" : run.step}</span></span>
            <span class="says"><Shown text={run.sentence} limit={160} /></span>
          </li>
        ))}
      </ul>
      <p class="intro">{data.diverged ? <><b>First divergence:</b> <Shown text={data.diverged} /></> : <span class="faint">Nothing differs by more than chance.</span>}</p>
      <h2 class="unseen">Measures</h2>
      <div class="two plots">
        {data.measures.flatMap((measure) => [
          <ComparePlot key={`${measure.name} lines`} measure={measure} names={names} x={data.x} />,
          ...(measure.difference ? [<DifferencePlot key={`${measure.name} difference`} difference={measure.difference} label={`${measure.label}: ${names[measure.difference.run]} − ${names[0]}${data.runs.length > 2 ? ", the first of these to differ" : ""}`} x={data.x} />] : []),
        ])}
      </div>
      {!data.measures.length && <Empty>These runs share no reading.</Empty>}
      <Settings data={data} />
      <Said data={data} />
    </div>
  );
}

function Settings({ data }: { data: Told }) {
  return (
    <Card title="Settings" aside={`${data.config.length} differ, ${data.same} do not`}>
      {!data.config.length ? <Empty>No setting differs.</Empty> : (
        <div class="scroll" tabIndex={0} role="group" aria-label="Settings that differ">
          <table class="settings">
            <thead><tr><th scope="col">Setting</th>{data.runs.map((run, k) => <th key={run.run} scope="col">{letter(k)}</th>)}</tr></thead>
            <tbody>
              {data.config.map((row) => (
                <tr key={row.name}><th scope="row"><Shown text={row.name} limit={80} /></th>{row.values.map((value, k) => <td key={k}>{value ? <code><Shown text={value} limit={120} /></code> : <span class="faint">not set</span>}</td>)}</tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Card>
  );
}

/** The same prompts, answered by each run; with more than two runs, each against the first. */
function Said({ data }: { data: Told }) {
  const [how, setHow] = useState<How>("diff");
  useKeys((key) => {
    if (key === "d") setHow((old) => (old === "diff" ? "plain" : "diff"));
    else if (key === "m") setHow((old) => (old === "markdown" ? "plain" : "markdown"));
  });
  if (!data.prompts.length) return <Card title="The same prompts"><Empty>No prompt was answered by more than one of these runs.</Empty></Card>;
  return (
    <section aria-label="The same prompts">
      <div class="bar above"><h2>The same prompts</h2><HowButtons how={how} set={setHow} /></div>
      {data.prompts.map((prompt, k) => {
        const [first, ...others] = prompt.said;
        return (
          <section key={k} class="card asked" aria-label={`Prompt ${k + 1}`}>
            <div class="prompt"><Shown text={prompt.prompt} limit={1200} block /></div>
            {first && others.map((other, at) => <Panes key={at} how={how} sides={[side(data, first), side(data, other)]} />)}
          </section>
        );
      })}
    </section>
  );
}

function side(data: Told, said: Told["prompts"][number]["said"][number]): Side {
  const run = data.runs[said.run];
  return {
    title: (
      <>
        <b class="letter">{letter(said.run)}</b> <span class="faint"><ToRollout run={run?.run ?? ""} id={said.id}>step {said.step}</ToRollout></span>
        <span>reward <Figure value={said.reward} /></span><span>gold <Gold value={said.gold} /></span>
      </>
    ),
    label: `run ${letter(said.run)}, step ${said.step}`, text: said.text, missing: "",
  };
}
