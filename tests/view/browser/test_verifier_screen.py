"""The verifier's screen: what forgeries were paid, which worker mis-scored a canary and since when."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from page_browser import NARROW, WIDE, Served, findings, layout, logged_in, runs_by_name, served, watched
from page_runs import fooled


@pytest.fixture(scope="module")
def fooled_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("fooled") / "runs"
    folder.mkdir()
    fooled(folder / "fooled")
    with served(folder, tmp_path_factory.mktemp("state")) as found:
        yield found


@pytest.fixture(scope="module")
def visitor(browser: Browser, fooled_server: Served) -> Iterator[BrowserContext]:
    context = logged_in(browser, fooled_server.url)
    yield context
    context.close()


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_worker_that_was_taken_over_is_named_with_its_first_step(
    visitor: BrowserContext, fooled_server: Served, axe: Path, size: tuple[int, int]
) -> None:
    run = runs_by_name(visitor, fooled_server)["fooled"]
    page = visitor.new_page()
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme="dark" if size == NARROW else "light")
    trouble = watched(page, fooled_server.origin)
    page.goto(f"{fooled_server.origin}/#/run/{run}/verifier")
    expect(page.locator(".workers li")).to_have_count(4)
    expect(page.locator(".workers li").first).to_have_text(re.compile("worker 1.*28 of 180 wrong, first at step 62"))
    expect(page.locator("#verdict")).to_have_text(
        re.compile("known-wrong answer was paid in worker 1, first at step 62")
    )
    expect(page.get_by_text("sys.exit(0)").first).to_be_visible()
    expect(page.get_by_text("paid, 9 of 12").first).to_be_visible()
    expect(page.get_by_text("Could not be graded (kept as missing)")).to_be_visible()
    for summary in page.locator("details summary").all():
        summary.click()
    expect(page.get_by_text("print('PASSED')").first).to_be_visible()
    assert [*layout(page), *findings(page), *trouble.any] == []
    page.close()


def test_the_alarm_is_told_as_a_fact_and_not_as_odds(visitor: BrowserContext, fooled_server: Served) -> None:
    run = runs_by_name(visitor, fooled_server)["fooled"]
    page = visitor.new_page()
    page.goto(f"{fooled_server.origin}/#/run/{run}/alarms")
    expect(page.get_by_text("no statistical test")).to_be_visible()
    expect(page.get_by_text("log evidence")).to_have_count(0)
    page.close()
