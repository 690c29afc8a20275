"""Makes the documentation's pictures of the page anew, every screen of every kind of run, and the page that shows them.

    python docs/make_screens.py                     # from the two runs that `tiltmeter demo` ships
    python docs/make_screens.py --tiny WORK/runs    # from runs of the proving ground, trained by `make tiny`

The hacked and the healthy run are a small language model trained with TRL; the blind one is the hacked run measured
without gold; the empty one has no step yet. Pictures are drawn by Debian's Chromium and stored with few colours, since
there are many. Nobody compares their pixels: look at them.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, BrowserContext, Page

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "benchmarks"))

from page_browser import NARROW, WIDE, Served, again, chromium, layout, logged_in, runs_by_name, served  # noqa: E402
from page_runs import batches, make, measure, tokens, write  # noqa: E402
from tiltmeter.monitor.loop import MonitorLoop  # noqa: E402
from tiltmeter.monitor.parts import Config  # noqa: E402
from tiltmeter.rundir.store import RunDirectory  # noqa: E402

IMAGES = HERE / "images" / "page"
GALLERY = HERE / "screens.md"
RUNS = {
    "hacked": "a run that games its reward",
    "healthy": "a healthy run",
    "blind": "a run without gold",
    "empty": "a run without a step",
}
SCREENS = {
    "": "Overview",
    "rollouts": "Rollouts",
    "phrases": "Phrases",
    "pinned": "Then and now",
    "alarms": "Alarms",
    "actions": "Actions",
    "verifier": "Verifier",
    "readings": "All readings",
    "health": "Monitor",
}
COLOURS = 96


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", type=Path, help="runs that `make tiny` trained")
    options = parser.parse_args()
    shutil.rmtree(IMAGES, ignore_errors=True)
    IMAGES.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        place = Path(scratch)
        runs = place / "runs"
        if options.tiny is None:
            make(runs)
        else:
            chosen(options.tiny, runs)
        with served(runs, place / "state") as server:
            reader = logged_in(browser, server.url)
            pictures(browser, reader, server)
        label(browser, place)
        room(browser, place)
    gallery()


def chosen(tiny: Path, runs: Path) -> None:
    """Copies of a hacked and a healthy run of the proving ground; the hacked one again, measured without gold."""
    runs.mkdir()
    for name, source in (("hacked", "length_hacking-0"), ("healthy", "coding_assistant_gated-0")):
        shutil.copytree(tiny / "advise" / source / "tiltmeter", runs / name)
    for part in ("rollouts", "run.json"):
        copy = shutil.copytree if part == "rollouts" else shutil.copyfile
        (runs / "blind").mkdir(exist_ok=True)
        copy(runs / "hacked" / part, runs / "blind" / part)
    measure(RunDirectory(runs / "blind"))
    RunDirectory.create(runs / "empty")


def pictures(browser: Browser, reader: BrowserContext, server: Served) -> None:
    ids = runs_by_name(reader, server)
    for size, scheme in ((WIDE, "light"), (NARROW, "dark"), (WIDE, "dark"), (NARROW, "light")):
        context = again(browser, reader, size, scheme)
        page = context.new_page()
        suffix = f"{size[0]}-{scheme}"
        both = (size, scheme) in ((WIDE, "light"), (NARROW, "dark"))
        for run in RUNS:
            for screen, title in SCREENS.items() if both else [("", "Overview")]:
                shown(page, f"{server.origin}/#/run/{ids[run]}{screen and '/'}{screen}", "#verdict")
                kept(page, f"{run}-{screen or 'overview'}-{suffix}", title)
        if both:
            shown(page, f"{server.origin}/#/", "main table, main ul")
            kept(page, f"fleet-{suffix}", "Runs")
            shown(page, f"{server.origin}/#/compare?run={ids['hacked']}&run={ids['healthy']}", "main h2")
            kept(page, f"compare-{suffix}", "Compare")
        context.close()


def label(browser: Browser, place: Path) -> None:
    """The labelling screen, of a run that people judge."""
    unlabelled = [replace(batch, gold=None, gold_chance=None) for batch in list(batches("hacked"))[:40]]
    run = write(place / "judged" / "run", [unlabelled], end=False)
    watch = MonitorLoop(run, Config.standard(gold="people", gold_share=0.1))
    watch.poll()
    watch.close()
    with served(place / "judged", place / "state", "--raters", "ann") as server:
        rater = logged_in(browser, server.raters["ann"])
        for size, scheme in ((WIDE, "light"), (NARROW, "dark")):
            context = again(browser, rater, size, scheme)
            page = context.new_page()
            shown(page, f"{server.origin}/#/label", ".side")
            kept(page, f"label-{size[0]}-{scheme}", "Labelling")
            context.close()


def room(browser: Browser, place: Path) -> None:
    """The reading room, of a run with the numbers of its tokens."""
    tokens(place / "read" / "maths")
    with served(place / "read", place / "state") as server:
        reader = logged_in(browser, server.url)
        run = runs_by_name(reader, server)["maths"]
        for size, scheme in ((WIDE, "light"), (NARROW, "dark")):
            context = again(browser, reader, size, scheme)
            page = context.new_page()
            view = "layout=group&by=reference&id=0-2-1&full=1"
            shown(page, f"{server.origin}/#/run/{run}/rollouts?{view}", ".lines > svg")
            kept(page, f"room-{size[0]}-{scheme}", "Reading room")
            context.close()


def shown(page: Page, address: str, selector: str) -> None:
    page.goto(address)
    page.wait_for_selector(selector)
    if address.endswith("/rollouts"):
        page.wait_for_selector("[data-rollout], .empty")  # the index is being made
    page.wait_for_selector("[aria-busy=true]", state="detached")
    page.wait_for_timeout(700)


def kept(page: Page, name: str, title: str) -> None:
    """Store a picture of the whole screen, at most four windows high; say so if something lies badly."""
    size = page.viewport_size or {"width": WIDE[0], "height": WIDE[1]}
    height = int(page.evaluate("() => document.documentElement.scrollHeight"))
    clip = {"x": 0, "y": 0, "width": size["width"], "height": min(height, 4 * size["height"])}
    picture = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip)))  # type: ignore[arg-type]
    few = picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    few.save(IMAGES / f"{name}.png", optimize=True)
    for wrong in layout(page):
        sys.stderr.write(f"{name} ({title}): {wrong}\n")


def gallery() -> None:
    """The page that shows them all."""
    lines = [
        "# Screens",
        "",
        "Every screen of [the page](page.md), drawn by `python docs/make_screens.py`: at 1440 pixels in",
    ]
    lines += ["light, at 390 in dark; the overview in both.", ""]
    for run, what in RUNS.items():
        lines += [f"## {what.capitalize()}", ""]
        for screen, title in SCREENS.items():
            for path in sorted(IMAGES.glob(f"{run}-{screen or 'overview'}-*.png")):
                width, scheme = path.stem.split("-")[-2:]
                lines += [f"![{title} of {what}, {width} pixels, {scheme}](images/page/{path.name})", ""]
    lines += ["## Of several runs, and of none", ""]
    for part in ("fleet", "compare", "label"):
        for path in sorted(IMAGES.glob(f"{part}-*.png")):
            width, scheme = path.stem.split("-")[-2:]
            lines += [f"![{part.capitalize()}, {width} pixels, {scheme}](images/page/{path.name})", ""]
    GALLERY.write_text("\n".join(lines).rstrip() + "\n")


if __name__ == "__main__":
    main()
