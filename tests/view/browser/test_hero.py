"""The first screen of a run: verdict, picture and fix above the fold on a desk and on a telephone, whatever the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from dashboard import hero_places
from page_browser import NARROW, WIDE, Served, findings, layout, logged_in, runs_by_name, served, watched, window
from page_runs import agent, components, long, short

RUNS = ("hacked", "healthy", "blind", "empty", "short", "long", "components", "agent")


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Kinds of runs that no other test needs."""
    folder = tmp_path_factory.mktemp("hero")
    short(folder / "runs" / "short")
    long(folder / "runs" / "long", 700)
    components(folder / "runs" / "components", steps=3)
    agent(folder / "runs" / "agent")
    with served(folder / "runs", folder / "state") as found:
        yield found


@pytest.fixture(scope="module")
def visitor(
    browser: Browser, server: Served, reader: BrowserContext, ids: dict[str, str], more: Served
) -> tuple[Any, dict[str, str]]:
    """What a browser keeps of both logins, and the address of each run."""
    context = logged_in(browser, more.url)
    others = runs_by_name(context, more)
    kept = {"cookies": [], "origins": [*reader.storage_state()["origins"], *context.storage_state()["origins"]]}
    context.close()
    known = ((server, ids), (more, others))
    return kept, {name: f"{at.origin}/#/run/{run}" for at, runs in known for name, run in runs.items()}


def words(page: Page) -> str:
    """Of the one picture that is shown."""
    drawn = page.locator(".hero .picture:visible")
    expect(drawn).to_have_count(1)
    return drawn.text_content() or ""


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["wide", "narrow"])
def test_verdict_picture_and_fix_are_above_the_fold(
    browser: Browser, visitor: tuple[Any, dict[str, str]], axe: Path, size: tuple[int, int]
) -> None:
    scheme = "dark" if size == NARROW else "light"
    kept, addresses = visitor
    context = window(browser, kept, size, scheme)
    below = {}
    for run in RUNS:
        page = context.new_page()
        trouble = watched(page, addresses[run].partition("/#")[0])
        top, bottom = hero_places(page, addresses[run])
        assert 0 < top < bottom
        if bottom > size[1]:
            below[run] = bottom
        assert [*layout(page), *findings(page), *trouble.any] == [], run
        page.close()
    assert below == {}
    context.close()


@pytest.mark.parametrize("size", [WIDE, (1000, 800), NARROW], ids=["wide", "middle", "narrow"])
def test_onset_alarm_and_last_good_are_on_the_plot(
    browser: Browser, visitor: tuple[Any, dict[str, str]], size: tuple[int, int]
) -> None:
    kept, addresses = visitor
    context = window(browser, kept, size)
    page = context.new_page()
    for run in ("hacked", "agent"):
        page.goto(addresses[run])
        page.wait_for_selector(".hero")
        shown = words(page)
        assert "turned: step" in shown and "alarm: step" in shown and "last good" in shown
    page.goto(addresses["blind"])
    expect(page.locator(".hero .picture:visible")).to_contain_text("no gold: BLIND")
    expect(page.locator(".todo")).to_contain_text("Name a gold source")
    context.close()


def test_a_wide_window_is_used_to_its_edges(browser: Browser, visitor: tuple[Any, dict[str, str]]) -> None:
    kept, addresses = visitor
    context = window(browser, kept, (2560, 1440))
    page = context.new_page()
    page.goto(addresses["hacked"])
    fix = page.locator(".todo").bounding_box()
    picture = page.locator(".hero .picture:visible").bounding_box()
    assert fix is not None and picture is not None
    assert fix["x"] >= picture["x"] + picture["width"] and fix["x"] + fix["width"] > 2500
    context.close()


def test_the_handle_shows_the_same_prompt_at_a_step_and_the_address_keeps_it(
    browser: Browser, visitor: tuple[Any, dict[str, str]]
) -> None:
    kept, addresses = visitor
    context = window(browser, kept, WIDE)
    page = context.new_page()
    page.goto(f"{addresses['hacked']}?step=40")
    slider = page.locator(".handle input[type=range]")
    expect(slider).to_have_value("40")
    slider.press("ArrowRight")
    expect(slider).to_have_value("41")
    assert "step=41" in page.url
    texts = page.locator(".handle .pane .text")
    expect(texts).to_have_count(2)
    expect(texts.last).to_contain_text("×3")  # a repeated passage is folded
    drawn = page.locator(".hero .picture:visible").bounding_box()
    assert drawn is not None
    page.mouse.click(drawn["x"] + drawn["width"] * 0.5, drawn["y"] + drawn["height"] / 2)
    expect(slider).not_to_have_value("41")
    page.goto(addresses["agent"])
    expect(page.locator(".handle .pane ins").first).to_be_attached()  # what changed is marked
    context.close()
