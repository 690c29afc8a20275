/** The page: who is here, where they are, and the screen for it. The verdict's chunk holds no charts, so it is first. */
import { render } from "preact";
import { useEffect, useState } from "preact/hooks";
import "./style.css";
import { lazy } from "./lazy";
import { parse, link, type Route } from "./route";
import { KeysSwitch } from "./parts";
import { me, news, SourceContext, useShared } from "./shared";
import { HttpSource, type Link } from "./source";
import { markTab } from "./tab";
import type { Login, Me } from "./types";
import { Fleet } from "./screens/fleet";
import { RunPage } from "./run";

const view = new HttpSource("view");
const label = new HttpSource("label");

const Compare = lazy(() => import("./screens/compare").then((m) => m.Compare));
const Label = lazy(() => import("./screens/label").then((m) => m.Label));

function App() {
  const [route, setRoute] = useState<Route>(() => parse(location.hash));
  useEffect(() => {
    let here = `${route.screen} ${route.run}`;
    const moved = () => {
      const next = parse(location.hash);
      setRoute(next);
      // Another screen is read from its top; a zoom or a filter leaves the reader where they are.
      const there = `${next.screen} ${next.run}`;
      if (there !== here) document.querySelector("main")?.focus({ preventScroll: true });
      here = there;
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  const labelling = route.screen === "label";
  return (
    <SourceContext.Provider value={labelling ? label : view}>
      <a class="skip" href="#content" onClick={(e) => { e.preventDefault(); document.querySelector("main")?.focus(); }}>Skip to content</a>
      {!labelling && <Top route={route} />}
      <main id="content" tabIndex={-1}>
        {route.screen === "label" ? <Label />
          : route.screen === "compare" ? <Compare params={route.params} />
          : route.screen === "fleet" ? <Fleet params={route.params} />
          : <RunPage key={route.run} route={route} />}
      </main>
      {!labelling && <Foot />}
    </SourceContext.Provider>
  );
}

function Top({ route }: { route: Route }) {
  const [lost, setLost] = useState(0);
  const [seconds, setSeconds] = useState(0);
  const person = useShared(me);
  useEffect(
    () =>
      view.follow(
        route.run,
        (pushed) => {
          if (pushed.kind === "state") markTab({ state: pushed.state });
          if (pushed.kind !== "state" || !route.run) throttled(); // of the fleet nothing else is sent
        },
        (state: Link) => {
          if (state === "lost") markTab({ state: "LOST" });
          setLost((since) => (state === "connected" ? 0 : since || Date.now()));
        },
      ),
    [route.run],
  );
  useEffect(() => {
    document.body.classList.toggle("disconnected", lost > 0);
    if (!lost) return;
    const timer = setInterval(() => setSeconds(Math.round((Date.now() - lost) / 1000)), 1000);
    return () => clearInterval(timer);
  }, [lost]);
  return (
    <>
      <nav class="top" aria-label="Tiltmeter">
        <a class="brand" href={link("fleet")}>tiltmeter</a>
        <a href={link("fleet")} aria-current={route.screen === "fleet" ? "page" : undefined}>Runs</a>
        <a href={link("compare", "", { run: route.run })} aria-current={route.screen === "compare" ? "page" : undefined}>Compare</a>
        {person.roles.includes("label") && <a href={link("label")}>Label</a>}
        {person.name && <span class="faint">{person.name}</span>}
      </nav>
      {lost > 0 && <p class="lost" role="status">Disconnected for {seconds} s: what is shown is old. Trying again.</p>}
    </>
  );
}

let due = 0;
let told = 0;
/** Screens ask again at most once a second, however fast steps come; a step after a pause is asked for at once. */
function throttled() {
  due ||= window.setTimeout(
    () => {
      due = 0;
      told = Date.now();
      news.set(news.value + 1);
    },
    Math.max(50, told + 1000 - Date.now()),
  );
}

function Foot() {
  return <footer class="foot"><KeysSwitch /></footer>;
}


/** Swap a one-time code for a token, and take it out of the address before anything else looks at that. */
async function admitted(): Promise<string> {
  const code = /[#&?]code=([^&]+)/.exec(location.hash)?.[1];
  if (!code) return "";
  history.replaceState(null, "", location.pathname);
  try {
    const { token, roles } = await view.post<Login>("/api/login", { code: decodeURIComponent(code) });
    for (const role of roles) if (role !== "control") localStorage.setItem(`tiltmeter.${role}`, token);
    if (!roles.includes("view")) location.hash = link("label");
    return "";
  } catch (error) {
    return (error as Error).message;
  }
}

/** Who the server takes this page for; asked beside the first screen, unless nothing else says that somebody is here. */
const introduced = () => view.get<Me>("/api/me").then((answer) => me.set(answer)).catch(() => undefined);

void admitted().then(async (trouble) => {
  const root = document.getElementById("page");
  if (!root) return;
  const known = localStorage.getItem("tiltmeter.view") || localStorage.getItem("tiltmeter.label");
  const asked = introduced();
  if (!known && !trouble) await asked; // a proxy may have signed this person in
  if (!known && me.value.roles.length && !me.value.roles.includes("view")) location.hash = link("label");
  if (trouble || !(known || me.value.roles.length)) {
    const why = trouble || (me.value.name ? `${me.value.name} has no account here, or no longer.` : "This page opens with the address that `tiltmeter view` prints, or with the link of an invitation.");
    render(<main class="closed"><h1>tiltmeter</h1><p role="alert">{why}</p><p>In the terminal: <code>tiltmeter view RUNS</code></p></main>, root);
  } else {
    render(<App />, root);
  }
});
