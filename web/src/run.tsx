/** One run: its head, which says the state before anything else, the tabs, and the screen below. */
import { useEffect } from "preact/hooks";
import { lazy } from "./lazy";
import { RunHead, type ScreenProps } from "./head";
import { Trouble } from "./parts";
import { link, TABS, type Route } from "./route";
import { range, useData } from "./shared";
import { markTab } from "./tab";
import type { Summary } from "./types";
import { Overview } from "./screens/overview";

const SCREENS = {
  rollouts: lazy<ScreenProps>(() => import("./screens/rollouts").then((m) => m.Rollouts)),
  phrases: lazy<ScreenProps>(() => import("./screens/phrases").then((m) => m.Phrases)),
  pinned: lazy<ScreenProps>(() => import("./screens/pinned").then((m) => m.Pinned)),
  alarms: lazy<ScreenProps>(() => import("./screens/alarms").then((m) => m.Alarms)),
  actions: lazy<ScreenProps>(() => import("./screens/actions").then((m) => m.Actions)),
  verifier: lazy<ScreenProps>(() => import("./screens/verifier").then((m) => m.Verifier)),
  readings: lazy<ScreenProps>(() => import("./screens/readings").then((m) => m.Readings)),
  health: lazy<ScreenProps>(() => import("./screens/health").then((m) => m.Health)),
};

export function RunPage({ route }: { route: Route }) {
  const { data, error } = useData<Summary>("/api/summary", { run: route.run });
  useEffect(() => {
    const [from, to] = [route.params.get("from"), route.params.get("to")].map((v) => (v === null ? NaN : Number(v)));
    range.set(Number.isFinite(from) && Number.isFinite(to) ? { from: from as number, to: to as number } : null);
  }, [route.params.toString()]);
  useEffect(() => {
    if (data) markTab({ state: data.state, name: data.name });
    return () => markTab({ state: null, name: "" });
  }, [data?.state, data?.name]);
  if (!data) return error ? <Trouble error={error} /> : <p class="waiting" aria-busy="true">…</p>;
  // The chosen steps go along to the rollouts and back.
  const steps = { from: route.params.get("from") ?? undefined, to: route.params.get("to") ?? undefined };
  const Part = route.screen in SCREENS ? SCREENS[route.screen as keyof typeof SCREENS] : null;
  return (
    <>
      <RunHead summary={data} />
      {error && <Trouble error={error} />}
      <nav class="tabs" aria-label="Screens of this run">
        {TABS.map(([screen, title]) => (
          <a key={screen} href={link(screen, route.run, screen === "overview" || screen === "rollouts" ? steps : {})} aria-current={screen === route.screen ? "page" : undefined}>{title}</a>
        ))}
      </nav>
      {Part ? <Part run={route.run} summary={data} params={route.params} /> : <Overview run={route.run} summary={data} params={route.params} />}
    </>
  );
}
