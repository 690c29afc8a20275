/** The plots of a run's overview. They arrive after the verdict. */
import "./charts.css";
import { Trouble } from "../parts";
import { range, useData, useShared } from "../shared";
import { visible } from "../text";
import type { Geometry, Plots, Summary } from "../types";
import { HeatPlot } from "./heat";
import { PanelPlot } from "./index";
import { PaidPlot } from "./paid";
import { ScatterPlot } from "./scatter";
import { StripsPlot } from "./strips";
import { extent, Timeline } from "./timeline";
import { TruthPlot } from "./truth";
import type { Width } from "./frame";

const HEIGHT = 230;

export function Board({ run, summary }: { run: string; summary: Summary }) {
  const chosen = useShared(range);
  const asked = { run, from: chosen?.from, to: chosen?.to };
  const plots = useData<Plots>("/api/plots", asked, 3);
  // What needs the rollouts themselves waits for what does not.
  const geometry = useData<Geometry>(plots.data ? "/api/geometry" : "", asked, 10);
  const told = plots.data;
  const span = chosen ?? extent(summary.lanes, summary.step);
  const same = { marks: summary.marks, lanes: summary.lanes, span, height: HEIGHT };
  const shapes = geometry.data;
  const room = told ? spread([told.truth, told.paid, shapes?.scatter, told.diversity, told.kl, shapes?.heat, told.length].map((panel) => !panel?.empty)) : null;
  const behind = chosen && told && (told.from !== chosen.from || told.to !== chosen.to);
  return (
    <div class={`board${behind && plots.busy ? " busy" : ""}`} aria-busy={plots.busy && !told}>
      <Timeline summary={summary} />
      {plots.error && <Trouble error={plots.error} />}
      {told ? (
        <>
          {!told.truth.empty && <TruthPlot truth={told.truth} {...same} wide={room?.truth} />}
          {!told.paid.empty && <PaidPlot paid={told.paid} {...same} height={HEIGHT + 24} />}
          {shapes ? !shapes.scatter.empty && <ScatterPlot geometry={shapes} run={run} height={HEIGHT + 40} /> : <Waiting title="Length and reward" error={geometry.error?.message} />}
          {!told.diversity.empty && <StripsPlot panel={told.diversity} {...same} height={HEIGHT + 60} />}
          {!told.kl.empty && <PanelPlot panel={told.kl} {...same} height={HEIGHT + 30} zoomable />}
          {shapes ? !shapes.heat.empty && <HeatPlot heat={shapes.heat} height={HEIGHT + 30} wide={room?.heat} /> : <Waiting title="Reward spread within prompt groups" error={geometry.error?.message} />}
          {!told.length.empty && <PanelPlot panel={told.length} {...same} zoomable />}
          <Absent panels={[told.truth, told.paid, ...(shapes ? [shapes.scatter] : []), told.diversity, told.kl, ...(shapes ? [shapes.heat] : []), told.length]} />
        </>
      ) : (
        !plots.error && ["Proxy and gold", "Reward by component", "Length and reward"].map((title) => <Waiting key={title} title={title} />)
      )}
    </div>
  );
}

/** How wide the two wide plots are, so that no row of three ends in a hole when others cannot be drawn. */
function spread([truth, paid, scatter, diversity, kl, heat, length]: boolean[]): { truth: Width; heat: Width } {
  const small = [paid, scatter, diversity, kl, length].filter(Boolean).length;
  const over = (small + (truth ? 2 : 0) + (heat ? 2 : 0)) % 3;
  const last: Width = (["two", "third", "all"] as const)[over] ?? "two";
  return heat ? { truth: "two", heat: last } : { truth: last, heat: "two" };
}

function Waiting({ title, error }: { title: string; error?: string }) {
  return (
    <section class="card plot" aria-label={title} aria-busy={!error}>
      <header><h3>{title}</h3></header>
      <p class="nothing">{error ?? "on its way…"}</p>
    </section>
  );
}

/** What could not be drawn takes a line each, and says what it lacks. */
function Absent({ panels }: { panels: { title: string; empty: string }[] }) {
  const absent = panels.filter((panel) => panel.empty);
  if (!absent.length) return null;
  return (
    <section class="card wide" aria-label="Not drawn">
      <header><h3>Not drawn</h3></header>
      <dl class="absent">{absent.map(({ title, empty }) => <div key={title}><dt>{visible(title)}</dt><dd>{visible(empty)}</dd></div>)}</dl>
    </section>
  );
}
