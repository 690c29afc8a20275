"""The page's own figures, in a real browser: how soon the verdict is painted, how much there is to load, how long
rollouts take, how late a step is, and whether anything a model wrote has acted.

    python benchmarks/dashboard.py --json            # everything at full size
    python benchmarks/dashboard.py --json --quick    # smaller, for a first look

The link is emulated (1.6 Mbit/s, 150 ms), the cache cold, the run 10,000 steps of 50 readings; the server runs here and
has opened the run, as one that somebody started yesterday has. At full size the result is written down.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from playwright.sync_api import Browser, Page

import rollout_index
import text_search
from many_runs import make_many, make_models
from page_browser import NARROW, WIDE, again, chromium, findings, logged_in, runs_by_name, served, watched
from page_runs import HOSTILE_NAME, agent, batches, components, hostile, long, make, measure, short, tokens, write
from payloads import payloads
from record import ORIGIN, record, revision
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.safety.safe_text import visible

FRAME_MS = 1000.0 / 60.0
SLOW = {"offline": False, "latency": 150, "downloadThroughput": 1.6e6 / 8, "uploadThroughput": 0.75e6 / 8}
PARTS = ("hero", "paint", "live", "hostile", "query", "search", "fleet", "stale", "group")
SCREENS = ("", "/rollouts", "/phrases", "/pinned", "/alarms", "/actions", "/readings", "/health")
#: Notes when a selector is first there and the frame with it was drawn.
PAINTED = """(() => {
  window.painted = {};
  const wanted = {verdict: '#verdict .sentence', picture: '.hero .picture', plots: '[data-plot]'};
  const look = () => {
    for (const [name, selector] of Object.entries(wanted)) {
      if (!(name in window.painted) && document.querySelector(selector)) {
        requestAnimationFrame(() => requestAnimationFrame(() => { window.painted[name] ??= performance.now(); }));
      }
    }
    if (Object.keys(window.painted).length < 3) requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})()"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rollouts of the run that is queried")
    parser.add_argument("--steps", type=int, default=10_000, help="steps of the long run")
    parser.add_argument("--runs", type=int, default=5000, help="runs of the large fleet")
    parser.add_argument("--repeats", type=int, default=7, help="of each cold load and each live step")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument(
        "--only", action="append", choices=PARTS, help="measure only this; other figures stay as recorded"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is written")
    options = parser.parse_args()
    if options.quick:
        options.rows, options.steps, options.repeats, options.runs = 20_000, 1_000, 3, 200
    figures: dict[str, Any] = recorded() if options.only else {}
    figures |= sizes()
    with tempfile.TemporaryDirectory(prefix="tiltmeter-page-") as folder, chromium() as browser:
        place = Path(folder)
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "hero": lambda: hero(browser, place / "hero", options.steps),
            "paint": lambda: first_paint(browser, place / "long", options.steps, options.repeats),
            "live": lambda: live_delay(browser, place / "live", options.repeats),
            "hostile": lambda: hostile_and_barriers(browser, place / "shelf"),
            "query": lambda: rollout_query(browser, place / "many", options.rows, options.seed),
            "search": lambda: text_search_ms(place / "texts", options.rows),
            "fleet": lambda: fleet_first(browser, place / "fleet", options.runs),
            "stale": lambda: stale_after(browser, place / "stale"),
            "group": lambda: group_frames(browser, place / "group"),
        }
        for name in options.only or PARTS:
            figures |= parts[name]()
            figures["measured_at"] = {**figures.get("measured_at", {}), name: revision()}
    result = record("dashboard", figures, seed=options.seed, keep=not options.quick)
    if options.json:
        print(json.dumps(result))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value}")


def recorded() -> dict[str, Any]:
    """The figures of the record, without what says how they were made."""
    kept = json.loads((Path(__file__).parent / "results" / "dashboard.json").read_text())
    figures = {name: value for name, value in kept.items() if name not in ORIGIN}
    return {"measured_at": dict.fromkeys(PARTS, kept["revision"]), **figures}


def sizes() -> dict[str, Any]:
    """What a browser loads, compressed as the server sends it. The report's two files are not part of the page."""
    static = files("tiltmeter.view") / "static"
    packed = {
        entry.name: len(gzip.compress(entry.read_bytes(), 9))
        for entry in static.iterdir()
        if entry.name.endswith((".js", ".css")) and not entry.name.startswith("report.")
    }
    head = (static / "index.html").read_text("utf-8")  # what it names is loaded before anything is drawn
    first = sum(size for name, size in packed.items() if name in head)
    return {"js_css_gzip_kb": round(sum(packed.values()) / 1000, 1), "first_chunk_gzip_kb": round(first / 1000, 1)}


def first_paint(browser: Browser, place: Path, steps: int, repeats: int) -> dict[str, Any]:
    """Milliseconds from navigation to a painted verdict, and to drawn plots, on the slow link with nothing cached."""
    long(place / "runs" / "long", steps)
    with served(place / "runs", place / "state") as server:
        reader = logged_in(browser, server.url)
        run = runs_by_name(reader, server)["long"]
        times: dict[str, list[float]] = {"verdict": [], "picture": [], "plots": []}
        for _ in range(repeats):
            context = again(browser, reader, WIDE, "light")
            page = context.new_page()
            page.add_init_script(PAINTED)
            link = context.new_cdp_session(page)
            link.send("Network.enable")
            link.send("Network.setCacheDisabled", {"cacheDisabled": True})
            link.send("Network.emulateNetworkConditions", SLOW)
            page.goto(f"{server.origin}/#/run/{run}")
            page.wait_for_selector("[data-plot]")
            page.wait_for_timeout(500)
            for name, found in page.evaluate("() => window.painted").items():
                times[name].append(found)
            context.close()
        reader.close()
    return {
        "first_paint_ms": round(statistics.median(times["verdict"])),
        "first_paint_worst_ms": round(max(times["verdict"])),
        "picture_painted_ms": round(statistics.median(times["picture"])),
        "plots_drawn_ms": round(statistics.median(times["plots"])) if times["plots"] else None,
        "long_run_steps": steps,
    }


#: The kinds of runs whose first screen is measured.
HERO = ("hacked", "healthy", "blind", "short", "long", "components", "agent")
#: Verdict, picture and fix: top of the picture, and bottom of the lowest of the three.
PLACES = """() => {
  const boxes = (selector) => [...document.querySelectorAll(selector)].map(e => e.getBoundingClientRect());
  const box = (selector) => boxes(selector).find(b => b.height > 0);
  const [verdict, picture, fix] = [box('#verdict'), box('.hero .picture'), box('.hero .todo')];
  return [picture.top, Math.max(verdict.bottom, picture.bottom, fix.bottom)];
}"""


def hero(browser: Browser, place: Path, steps: int) -> dict[str, Any]:
    """Pixels from the top of the window to the picture and to the lower end of verdict, picture and fix; the worst of
    seven kinds of runs."""
    runs = place / "runs"
    make(runs)
    long(runs / "long", steps)
    for name, kind in (("short", short), ("components", components), ("agent", agent)):
        kind(runs / name)
    figures: dict[str, Any] = {}
    with served(runs, place / "state") as server:
        reader = logged_in(browser, server.url)
        ids = runs_by_name(reader, server)
        for size in (WIDE, NARROW):
            context = again(browser, reader, size, "light")
            page = context.new_page()
            found = {name: hero_places(page, f"{server.origin}/#/run/{ids[name]}") for name in HERO}
            context.close()
            figures[f"hero_top_px_{size[0]}"] = max(top for top, _ in found.values())
            figures[f"hero_bottom_px_{size[0]}"] = max(bottom for _, bottom in found.values())
            figures[f"hero_bottom_px_{size[0]}_by_run"] = {name: bottom for name, (_, bottom) in found.items()}
        reader.close()
    return figures


def hero_places(page: Page, address: str) -> tuple[int, int]:
    """Top of the picture, bottom of verdict, picture and fix."""
    _open(page, address)
    page.evaluate("scrollTo(0, 0)")
    top, bottom = page.evaluate(PLACES)
    return round(top), round(bottom)


def live_delay(browser: Browser, place: Path, repeats: int) -> dict[str, Any]:
    """Seconds from the moment a step's events are on disk to the moment its number is on the page."""
    steps = list(batches("honest"))
    run = write(place / "runs" / "live", [steps[:40]], end=False)
    watch = MonitorLoop(run, Config.standard())
    watch.poll()
    delays = []
    with served(place / "runs", place / "state") as server:
        reader = logged_in(browser, server.url)
        page = reader.new_page()
        page.goto(f"{server.origin}/#/run/{runs_by_name(reader, server)['live']}")
        page.wait_for_selector("#verdict:has-text('step 39,')")
        time.sleep(1.0)
        for batch in steps[40 : 40 + repeats]:
            counters = {"seen": batch.step + 1, "written": batch.step + 1}
            run.write(batch, 0, {"counters": counters, "time": time.time()})
            while not watch.poll():
                pass
            done = time.monotonic()
            page.wait_for_selector(f"#verdict:has-text('step {batch.step},')")
            delays.append(time.monotonic() - done)
        reader.close()
    watch.close()
    return {"live_delay_s": round(statistics.median(delays), 2), "live_delay_worst_s": round(max(delays), 2)}


def hostile_and_barriers(browser: Browser, place: Path) -> dict[str, Any]:
    """Every payload opened as a rollout, and every screen looked at: what acted, and what axe-core calls serious."""
    texts = payloads()
    runs = place / "runs"
    make(runs)
    hostile(runs / HOSTILE_NAME, texts)
    executed, misread, serious = 0, 0, 0
    with served(runs, place / "state") as server:
        reader = logged_in(browser, server.url)
        ids = runs_by_name(reader, server)
        page = reader.new_page()
        trouble = watched(page, server.origin)
        for number, text in enumerate(texts):
            step, row = divmod(number, 64)
            id = f"0-{step}-{row}"
            page.goto(f"{server.origin}/#/run/{ids[HOSTILE_NAME]}/rollouts?id={id}")
            page.wait_for_selector(f"[data-rollout='{id}']")
            misread += page.locator(f"[data-rollout='{id}'] [data-text=now]").text_content() != visible(text)
            executed += not page.title().endswith("tiltmeter")
        for size in (WIDE, NARROW):
            context = again(browser, reader, size, "light")
            shown = context.new_page()
            noted = watched(shown, server.origin)
            for run in ids.values():
                for screen in SCREENS:
                    _open(shown, f"{server.origin}/#/run/{run}{screen}")
                    serious += len(findings(shown))
                    executed += not shown.title().endswith("tiltmeter")
            executed += len(noted.dialogs) + len(noted.strangers)
            context.close()
        executed += len(trouble.dialogs) + len(trouble.strangers)
        reader.close()
    return {
        "xss_payloads": len(texts),
        "xss_executed": executed,
        "xss_misread": misread,
        "axe_screens": 2 * len(SCREENS) * len(ids),
        "axe_serious": serious,
    }


def rollout_query(browser: Browser, place: Path, rows: int, seed: int) -> dict[str, Any]:
    """The page's questions about rollouts, asked of the server over HTTP: the 95th percentile of its time."""
    rng = np.random.default_rng(seed)
    rollout_index.make(place / "runs" / "many", rng, rows, 1000, 200)
    with served(place / "runs", place / "state") as server:
        reader = logged_in(browser, server.url)
        run = runs_by_name(reader, server)["many"]
        token = reader.storage_state()["origins"][0]["localStorage"][0]["value"]
        reader.close()
        headers = {"Authorization": f"Bearer {token}"}
        with httpx.Client(base_url=server.origin, headers=headers, timeout=120) as client:
            began = time.monotonic()
            while client.get("/api/rollouts", params={"run": run, "limit": 1}).json()["ready"] < 1.0:
                time.sleep(0.5)
            built = time.monotonic() - began
            times = []
            for question in QUESTIONS:
                for _ in range(15):
                    low = int(rng.integers(0, max(1, rows // 1000 - 200)))
                    asked = {"run": run, "limit": 50, **question}
                    asked |= {"from": low, "to": low + 200} if "reward_min" in question else {}
                    times.append(client.get("/api/rollouts", params=asked).json()["ms"])
    return {
        "rollout_query_ms": round(float(np.percentile(times, 95)), 1),
        "rollout_query_median_ms": round(float(np.median(times)), 1),
        "rollouts_indexed": rows,
        "rollout_index_built_s": round(built, 1),
    }


def text_search_ms(place: Path, rows: int) -> dict[str, Any]:
    """The server's time to find a text in ten of so many rollouts of 2 KB, with the filter made; the slowest of a
    literal, one without case, a regular expression and one that is nowhere."""
    told = text_search.search_figures(text_search.make(place / "run", rows))
    slowest = max(value for name, value in told.items() if name.startswith("search_") and not name.endswith("_cpu_ms"))
    indexed = {"texts_indexed_s": told["texts_indexed_s"], "text_filter_mb": told["filter_mb"]}
    return {f"search_ms_{'1e6' if rows == 1_000_000 else rows}": slowest, **indexed}


def fleet_first(browser: Browser, place: Path, runs: int) -> dict[str, Any]:
    """Seconds from opening the page of a server that has just started to the runs that need a person, all counted,
    on the first screen; for a hundred runs and for many."""
    models = make_models(place / "models")
    figures: dict[str, Any] = {}
    for count in (100, runs):
        alarms = make_many(place / str(count), count, models)
        word = "1 needs you" if len(alarms) == 1 else f"{len(alarms)} need you"
        with served(place / str(count), place / "state") as server:
            context = browser.new_context(viewport={"width": WIDE[0], "height": WIDE[1]})
            page = context.new_page()
            began, before = time.monotonic(), cpu_seconds(server.process.pid)
            page.goto(server.url)
            page.wait_for_selector(f".counts:has-text('{word}')")
            figures[f"fleet_{count}_first_s"] = round(time.monotonic() - began, 2)
            figures[f"fleet_{count}_server_cpu_s"] = round(cpu_seconds(server.process.pid) - before, 2)
            first = page.locator("table.fleet tbody tr").first
            box = first.bounding_box()
            assert first.locator(".state").inner_text() == "ACT" and box is not None and box["y"] < WIDE[1]
            context.close()
    return figures


def stale_after(browser: Browser, place: Path) -> dict[str, Any]:
    """Seconds from the moment a server hangs, its connections open, to the moment the page has lost its green."""
    measure(write(place / "runs" / "live", [list(batches("honest"))]))
    with served(place / "runs", place / "state") as server:
        context = logged_in(browser, server.url)
        page = context.new_page()
        page.goto(f"{server.origin}/#/run/{runs_by_name(context, server)['live']}")
        page.wait_for_selector("#verdict .state.ok")
        page.wait_for_timeout(6000)  # past the first heartbeat
        processes = family(server.process.pid)
        began = time.monotonic()
        for one in processes:
            os.kill(one, signal.SIGSTOP)
        try:
            page.wait_for_selector("body.disconnected")
            waited = time.monotonic() - began
        finally:
            for one in processes:
                os.kill(one, signal.SIGCONT)
        context.close()
    return {"stale_after_s": round(waited, 1)}


#: Scrolls the reading room from top to bottom as a wheel does, a step a frame, and notes how long each frame took.
SCROLL = """() => new Promise((done) => {
  const box = document.querySelector('.room-columns');
  const times = [];
  let last = 0;
  const step = (now) => {
    if (last) times.push(now - last);
    last = now;
    if (box.scrollTop + box.clientHeight >= box.scrollHeight - 2 || times.length > 3000) return done(times);
    box.scrollTop += 60;
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""


def group_frames(browser: Browser, place: Path, length: int = 8000) -> dict[str, Any]:
    """Milliseconds of a frame while eight coloured completions of 8,000 tokens each, side by side, are scrolled from
    end to end at 3,600 pixels a second; and how long the group takes to appear with its colours."""
    tokens(place / "runs" / "tokens", length, groups=1, steps=1)
    with served(place / "runs", place / "state") as server:
        context = logged_in(browser, server.url)
        run = runs_by_name(context, server)["tokens"]
        page = context.new_page()
        began = time.monotonic()
        page.goto(f"{server.origin}/#/run/{run}/rollouts?layout=group&by=reference&id=0-0-0&full=1")
        page.wait_for_selector(".lines > svg", state="attached")
        opened = time.monotonic() - began
        page.wait_for_selector("[aria-busy=true]", state="detached")
        page.wait_for_timeout(5000)  # somebody reads the first screen
        times = page.evaluate(SCROLL)
        context.close()
    late = [value for value in times if value > 1.5 * FRAME_MS]
    return {
        "group_frame_ms_p95": round(float(np.percentile(times, 95)), 1),
        "group_frame_ms_p99": round(float(np.percentile(times, 99)), 1),
        "group_frames": len(times),
        "group_frames_late": len(late),
        "group_opened_s": round(opened, 2),
    }


def cpu_seconds(process: int) -> float:
    """CPU time of a process and all below it: what a machine with other users does not inflate as much."""
    ticks = os.sysconf("SC_CLK_TCK")
    facts = [Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split() for one in family(process)]
    return sum(int(one[11]) + int(one[12]) for one in facts) / ticks


def family(process: int) -> list[int]:
    """A process and all below it."""
    children = subprocess.run(["pgrep", "-P", str(process)], capture_output=True, text=True, check=False).stdout.split()
    return [process, *(one for child in children for one in family(int(child)))]


QUESTIONS: tuple[dict[str, Any], ...] = (
    {"sort": "reward", "order": "up"},
    {"sort": "gap", "order": "down"},
    {"sort": "gap", "order": "down", "reward_min": 0.2, "length_min": 1},
    {"sort": "length", "order": "down", "labelled": 1},
    {"sort": "gold", "order": "up", "labelled": 1},
)


def _open(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("#verdict")
    page.wait_for_selector("[aria-busy=true]", state="detached")
    page.wait_for_timeout(100)


if __name__ == "__main__":
    main()
