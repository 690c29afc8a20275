"""The list of runs in a browser: those that need a person first; what was not read yet is said, and it goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from many_runs import KINDS, make_many
from page_browser import findings, logged_in, served, watched


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
        assert not findings(page) and not trouble.any
        context.close()


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
