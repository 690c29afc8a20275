"""The page in a real browser: a server of its own process, Debian's Chromium, and everything that goes wrong noted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",  # a container's shared memory is often 64 MB, and the browser dies where it is full
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
AXE = Path(__file__).parent.parent / "web" / "node_modules" / "axe-core" / "axe.min.js"
WIDE, NARROW = (1440, 900), (390, 844)


@dataclass
class Served:
    """A running `tiltmeter view`."""

    process: subprocess.Popen[str]
    url: str  # with the code that works once
    raters: dict[str, str]
    control: str
    state: Path

    @property
    def origin(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc}"


@contextmanager
def served(runs: Path, state: Path, *options: str) -> Iterator[Served]:
    """The server over a folder of runs; `state` is where it keeps its tokens."""
    command = [sys.executable, "-m", "tiltmeter", "view", str(runs), "--port", "0", "--json", *options]
    environment = {**os.environ, "XDG_STATE_HOME": str(state)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server did not start: exit code {process.wait()}")
        told = json.loads(line)
        token = told.get("control_token")
        control = Path(token).read_text().strip() if token else ""
        yield Served(process, told["url"], told["raters"], control, state)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Trouble:
    """What must stay empty: dialogs, errors of the console and of scripts, and requests to anybody else."""

    dialogs: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    strangers: list[str] = field(default_factory=list)

    @property
    def any(self) -> list[str]:
        return [*self.dialogs, *self.errors, *self.strangers]


def watched(page: Page, origin: str) -> Trouble:
    """Note everything that goes wrong on a page from now on. `file:` is the report's own address."""
    trouble = Trouble()

    def asked(url: str) -> None:
        if not url.startswith((f"{origin}/", "blob:", "data:", "file:")):
            trouble.strangers.append(url)

    def dialog(shown: Any) -> None:
        trouble.dialogs.append(shown.message)
        shown.dismiss()

    def said(message: Any) -> None:
        # A connection that a test cuts on purpose is the browser's to report, and not an error of ours.
        if message.type == "error" and "ERR_CONNECTION_REFUSED" not in message.text:
            trouble.errors.append(message.text)

    page.on("dialog", dialog)
    page.on("console", said)
    page.on("pageerror", lambda error: trouble.errors.append(str(error)))
    page.on("request", lambda request: asked(request.url))
    return trouble


def logged_in(browser: Browser, url: str, size: tuple[int, int] = WIDE, scheme: Any = "light") -> BrowserContext:
    """A context that has swapped the one-time code for its token; further pages of it need none."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.goto(url)
    page.wait_for_selector("main h1, main h2, main table, main p")
    page.close()
    return context


def again(browser: Browser, first: BrowserContext, size: tuple[int, int], scheme: Any) -> BrowserContext:
    """Another window, in another size or scheme, for whoever is logged in already."""
    return window(browser, first.storage_state(), size, scheme)


def window(browser: Browser, kept: Any, size: tuple[int, int], scheme: Any = "light") -> BrowserContext:
    """A window with what another one has kept of its login."""
    return browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, storage_state=kept, reduced_motion="reduce"
    )


def runs_by_name(reader: BrowserContext, server: Served) -> dict[str, str]:
    """The page's ids of runs, as the fleet lists them."""
    page = reader.new_page()
    fleet: dict[str, Any] = {"unread": 1}
    while fleet["unread"]:  # it says how many runs it has not read yet, and goes on
        with page.expect_response("**/api/fleet*") as reply:
            page.goto(f"{server.origin}/")
        fleet = reply.value.json()
    page.close()
    return {row["name"]: row["run"] for row in fleet["runs"]}


def findings(page: Page) -> list[str]:
    """What axe-core finds serious or critical. It is put in by the debugger, past the page's policy, which stands."""
    page.evaluate(AXE.read_text() + "; undefined")
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{item['id']} ({item['impact']}): {item['nodes'][0]['html'][:200]}"
        for item in found["violations"]
        if item["impact"] in ("serious", "critical")
    ]


#: Elements whose text is wider than they are and cut off: what a reader cannot read.
CLIPPED = """() => [...document.querySelectorAll('body *')].filter(e => {
  const style = getComputedStyle(e);
  const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
  const hides = ['hidden', 'clip'].includes(style.overflowX) && style.textOverflow !== 'ellipsis';
  const seen = e.clientWidth > 1 && !e.closest('.unseen');  // text for those who hear a page is cut off on purpose
  return own && hides && seen && e.scrollWidth > e.clientWidth + 1;
}).map(e => e.outerHTML.slice(0, 150))"""
#: Text that other text lies on, by the boxes of its lines.
OVERLAPS = """() => {
  const boxes = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const parent = node.parentElement;
    if (!node.textContent.trim()) continue;
    if (!parent.checkVisibility({visibilityProperty: true, contentVisibilityAuto: true})) continue;
    if (parent.closest('svg, canvas, .uplot, select, option, [aria-hidden=true], .skip')) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    // Only what shows of a line: a box that is cut off at its ancestor's edge lies on nothing.
    let cut = {left: -1e9, top: -1e9, right: 1e9, bottom: 1e9};
    for (let up = parent; up && up !== document.body; up = up.parentElement) {
      if (getComputedStyle(up).overflow === 'visible') continue;
      const edge = up.getBoundingClientRect();
      cut = {left: Math.max(cut.left, edge.left), top: Math.max(cut.top, edge.top),
             right: Math.min(cut.right, edge.right), bottom: Math.min(cut.bottom, edge.bottom)};
    }
    for (const r of range.getClientRects()) {
      const shown = {left: Math.max(r.left, cut.left), top: Math.max(r.top, cut.top),
                     right: Math.min(r.right, cut.right), bottom: Math.min(r.bottom, cut.bottom)};
      if (shown.right - shown.left > 2 && shown.bottom - shown.top > 2) boxes.push([shown, node, parent]);
    }
  }
  const found = [];
  for (let i = 0; i < boxes.length; i++) for (let j = i + 1; j < boxes.length && j < i + 60; j++) {
    const [a, m] = boxes[i], [b, n] = boxes[j];
    if (m === n) continue;
    const w = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const h = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (w > 3 && h > 5) found.push(m.textContent.trim().slice(0, 40) + ' | ' + n.textContent.trim().slice(0, 40));
  }
  return found;
}"""


def layout(page: Page) -> list[str]:
    """What is wrong with how a screen lies: wider than its window, clipped, or text upon text."""
    wide, window = page.evaluate("() => [document.documentElement.scrollWidth, innerWidth]")
    wrong = [f"the page is {wide} px wide, the window {window}"] if wide > window else []
    wrong += [f"clipped: {text}" for text in page.evaluate(CLIPPED)]
    return wrong + [f"overlap: {text}" for text in page.evaluate(OVERLAPS)]
