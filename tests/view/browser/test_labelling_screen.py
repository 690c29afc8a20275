"""People at the labelling screen: blind, by keyboard alone, and what they say moves the run's own evidence."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from page_browser import NARROW, WIDE, again, findings, layout, logged_in, served, watched
from page_runs import batches, write
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens.alarms import EvidenceCurves
from tiltmeter.view.screens.run_reader import RunReader

ITEMS = 20
#: All that a rater's browser is told.
BLIND = {*("task", "kind", "prompt", "texts", "done", "left", "guide", "why", "rater", "agreement", "consistency")}


@contextmanager
def monitored(run: RunDirectory) -> Iterator[None]:
    """The monitor in a process of its own, which asks people about a tenth of the rollouts."""
    command = [
        sys.executable,
        "-m",
        "tiltmeter",
        "watch",
        str(run.path),
        "--gold",
        "people",
        "--gold-share",
        "0.1",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ})
    try:
        deadline = time.monotonic() + 60
        while not list((run.path / "gold" / "requests").glob("*.jsonl")) and time.monotonic() < deadline:
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(30)


def closed(run: RunDirectory) -> int:
    return sum(event.kind == "labels_closed" for event in read_events(run.path / "events"))


def evidence(run: RunDirectory) -> float:
    """The log odds against a healthy run, as the gold-loss test has them now."""
    book = RunReader(run)
    book.refresh()
    gold_test = book.get_fold("evidence", EvidenceCurves).gold_test
    assert gold_test is not None
    return gold_test.evidence


def worth(text: str) -> tuple[bool, int]:
    """What this rater looks for: a number, in few words."""
    return bool(re.search(r"\d", text)), -len(text)


def judge(page: Page) -> None:
    """Read what is shown and press one key."""
    texts = [part.text_content() or "" for part in page.locator(".side > .said, .side > .empty").all()]
    if len(texts) == 1:
        page.keyboard.press("5" if worth(texts[0])[0] else "1")
    else:
        first, second = map(worth, texts)
        page.keyboard.press("t" if first == second else "a" if first > second else "b")


def test_twenty_items_by_keyboard_alone_move_the_evidence(browser: Browser, tmp_path: Path) -> None:
    unlabelled = [replace(batch, gold=None, gold_chance=None) for batch in list(batches("hacked"))[50:]]
    run = write(tmp_path / "runs" / "hidden-name", [unlabelled], end=False)
    with monitored(run), served(tmp_path / "runs", tmp_path / "state", "--raters", "ann") as server:
        before = evidence(run)
        context = logged_in(browser, server.raters["ann"])
        page = context.new_page()
        trouble = watched(page, server.origin)
        replies: list[str] = []
        page.on("response", lambda reply: replies.append(reply.text()) if "/api/label" in reply.url else None)
        page.goto(f"{server.origin}/#/label")
        done = 0
        for _ in range(2 * ITEMS):  # some pairs come twice, and do not count
            page.wait_for_selector(".side")
            with page.expect_response("**/api/label"):
                judge(page)
            expect(page.locator("[aria-busy=true]")).to_have_count(0)
            done = int(re.findall(r"(\d+) done", page.locator("main").text_content() or "")[0])
            if done == ITEMS:
                break
        assert done == ITEMS
        page.keyboard.press("?")
        expect(page.locator("dialog[open]")).to_have_count(1)
        page.keyboard.press("Escape")

        told = [json.loads(reply) for reply in replies if reply.startswith("{")]
        allowed = {
            "task",
            "kind",
            "prompt",
            "texts",
            "done",
            "left",
            "guide",
            "why",
            "rater",
            "agreement",
            "consistency",
        }
        assert told and set().union(*told) <= allowed
        assert "hidden-name" not in " ".join(replies)

        deadline = time.monotonic() + 60
        while evidence(run) == before and time.monotonic() < deadline:  # what was read of labels follows their end
            time.sleep(0.2)
        assert closed(run)
        assert evidence(run) != before
        assert trouble.any == []
        context.close()


def test_the_labelling_screen_lies_well_and_has_no_barrier(browser: Browser, tmp_path: Path, axe: Path) -> None:
    unlabelled = [replace(batch, gold=None, gold_chance=None) for batch in list(batches("hacked"))[:30]]
    run = write(tmp_path / "runs" / "live", [unlabelled], end=False)
    with monitored(run), served(tmp_path / "runs", tmp_path / "state", "--raters", "ann") as server:
        first = logged_in(browser, server.raters["ann"])
        for size, scheme in ((WIDE, "light"), (NARROW, "dark")):
            context = again(browser, first, size, scheme)
            page = context.new_page()
            trouble = watched(page, server.origin)
            page.goto(f"{server.origin}/#/label")
            page.wait_for_selector(".side > .said, .side > .empty")
            assert [*layout(page), *findings(page), *trouble.any] == []
            context.close()
        first.close()
