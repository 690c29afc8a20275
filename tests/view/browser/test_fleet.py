"""The list of runs in a browser: those that need a person first; what was not read yet is said, and it goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from many_runs import KINDS, make_many
from page_browser import Served, findings, logged_in, served, watched
from page_runs import HOSTILE_NAME
from tiltmeter.safety.safe_text import visible


@pytest.fixture(scope="module")
def models(shelf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for name in KINDS:
        shutil.copytree(shelf / name, folder / name)
    return folder


def test_a_hundred_runs_show_those_that_need_a_person_first(
    browser: Browser, models: Path, tmp_path: Path, axe: Path
) -> None:
    alarms = make_many(tmp_path / "runs", 100, models)
    with served(tmp_path / "runs", tmp_path / "state") as server:
        context = logged_in(browser, server.url)
        page = context.new_page()
        trouble = watched(page, server.origin)
        page.goto(f"{server.origin}/#/")
        expect(page.locator(".counts")).to_contain_text("100 runs")
        expect(page.locator(".counts")).to_contain_text("need you" if len(alarms) > 1 else "1 needs you")
        states = page.locator("table.fleet tbody .state").all_inner_texts()
        assert states[: len(alarms)] == ["ACT"] * len(alarms) and "ACT" not in states[len(alarms) :]
        expect(page.locator(".unread")).to_have_count(0)
        page.get_by_role("button", name="Wall").click()
        expect(page.locator(".wall .tile")).to_have_count(100)
        red = page.locator(".wall .tile.act")
        expect(red).to_have_count(len(alarms))
        assert (red.last.bounding_box() or {"y": 1e9})["y"] < 900 and not findings(page)
        page.get_by_label("Group by").select_option("beta")
        expect(page.locator("h2.group")).to_have_count(3)
        page.get_by_role("button", name="Table").click()
        page.get_by_label("Find").fill("state:act")
        page.keyboard.press("Enter")
        expect(page.locator("table.dense tbody tr")).to_have_count(len(alarms))
        assert "find=state" in page.url and not findings(page) and not trouble.any
        context.close()


def test_what_a_run_is_called_does_nothing_on_the_wall_and_in_the_table(
    reader: BrowserContext, server: Served, ids: dict[str, str], axe: Path
) -> None:
    page = reader.new_page()
    trouble = watched(page, server.origin)
    for view, row in (("wall", ".tile"), ("table", "table.dense tbody tr")):
        page.goto(f"{server.origin}/#/?view={view}")
        expect(page.locator(row)).to_have_count(len(ids))
        assert visible(HOSTILE_NAME) in (page.locator("main").text_content() or "")
        assert not findings(page)
    assert not trouble.any
    page.close()


def test_runs_without_state_files_are_counted_and_read_while_the_page_is_open(
    browser: Browser, models: Path, tmp_path: Path
) -> None:
    alarms = make_many(tmp_path / "runs", 60, models, files=False)
    with served(tmp_path / "runs", tmp_path / "state") as server:
        context = logged_in(browser, server.url)
        page = context.new_page()
        page.goto(f"{server.origin}/#/")
        expect(page.locator(".counts")).to_contain_text("60 runs")
        expect(page.locator(".counts")).to_contain_text("need you" if len(alarms) > 1 else "1 needs you")
        expect(page.locator(".unread")).to_have_count(0)
        assert page.locator("table.fleet tbody tr").count() == 60
        context.close()
