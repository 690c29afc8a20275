"""Every screen of every kind of run: nothing overlaps or is cut off, no error, no request to anybody else, and no
barrier that axe-core calls serious."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from page_browser import NARROW, WIDE, Served, again, findings, layout, watched

RUNS = ("hacked", "healthy", "blind", "empty", "rewound")
SCREENS = ("", "/rollouts", "/phrases", "/pinned", "/alarms", "/actions", "/verifier", "/readings", "/health")
STATES = {"hacked": "ACT", "healthy": "OK", "blind": "BLIND", "empty": "STALE", "rewound": "OK"}


def settled(page: Page) -> None:
    """Everything that was asked for has come and is drawn."""
    expect(page.locator("[aria-busy=true]")).to_have_count(0)
    page.wait_for_timeout(150)


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("run", RUNS)
def test_every_screen_lies_well_and_has_no_barrier(
    browser: Browser,
    reader: BrowserContext,
    server: Served,
    ids: dict[str, str],
    axe: Path,
    run: str,
    size: tuple[int, int],
) -> None:
    scheme = "dark" if size == NARROW else "light"
    context = again(browser, reader, size, scheme)
    page = context.new_page()
    trouble = watched(page, server.origin)
    wrong: dict[str, list[str]] = {}
    for screen in SCREENS:
        page.goto(f"{server.origin}/#/run/{ids[run]}{screen}")
        page.wait_for_selector("#verdict")
        settled(page)
        if found := [*layout(page), *findings(page), *trouble.any]:
            wrong[screen or "/"] = found
        trouble.dialogs, trouble.errors, trouble.strangers = [], [], []
    context.close()
    assert wrong == {}


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_fleet_and_comparison_lie_well_and_have_no_barrier(
    browser: Browser, reader: BrowserContext, server: Served, ids: dict[str, str], axe: Path, size: tuple[int, int]
) -> None:
    context = again(browser, reader, size, "light")
    page = context.new_page()
    trouble = watched(page, server.origin)
    for address in ("", f"compare?run={ids['hacked']}&run={ids['healthy']}", "compare"):
        page.goto(f"{server.origin}/#/{address}")
        page.wait_for_selector("main")
        settled(page)
        assert [*layout(page), *findings(page), *trouble.any] == [], address
    context.close()


@pytest.mark.parametrize("run", RUNS)
def test_the_state_is_the_verdicts_own_in_icon_and_word(
    reader: BrowserContext, server: Served, ids: dict[str, str], run: str
) -> None:
    page = reader.new_page()
    page.goto(f"{server.origin}/#/run/{ids[run]}")
    expect(page.locator("#verdict .state")).to_have_text(re.compile(STATES[run]))
    assert page.locator("#verdict .state svg").count() == 1
    page.close()
