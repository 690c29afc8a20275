"""Tags, notes and saved views on the page: written with the control token alone, shown as they are, found again; and
runs compared by groups, whose settings are anybody's words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.sizes import size

from page_browser import NARROW, Served, again, logged_in, runs_by_name, served, watched
from page_runs import measure, tokens
from payloads import payloads
from tiltmeter import open_run
from tiltmeter.rundir.reading_room.notes import RunNotes, write_entry
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import visible

TEXTS = [text.strip() for text in payloads() if text.strip() and len(text) <= 2000][:: size(25, 1)]
NAMES = list(dict.fromkeys(text[:70].strip() for text in TEXTS))[:20]


HOSTILE = "<img src=x onerror=alert(1)>"


class Place(NamedTuple):
    run: RunDirectory
    server: Served
    context: BrowserContext
    ids: dict[str, str]


@pytest.fixture(scope="module")
def place(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A run on whose step 2 somebody has written every hostile text, and a run beside it."""
    folder = tmp_path_factory.mktemp("notes")
    run = tokens(folder / "runs" / "grpo")
    for number, rate in enumerate(("1e-6", "1e-5", "1e-5", "")):
        settings = {"lr": rate, HOSTILE: "zero"} if rate else {HOSTILE: HOSTILE}
        path = folder / "runs" / f"g{number} {HOSTILE}".replace("/", "|")
        with open_run(path, monitor=False, settings=settings) as small:
            for step in range(2):
                small.observe(step=step, group=[0, 0, 1, 1], reward=[number, 0, 0, 0], gold=[number / 4, 0, 0, 0])
        measure(RunDirectory(path))
    for number, text in enumerate(TEXTS):
        write_entry(run, "note", ("0-2", "0-2-1")[number % 2], text, author=text[:60])
    for name in NAMES:
        write_entry(run, "view", "", f"#/{name}", name=name)
    with served(folder / "runs", folder / "state", "--control") as server:
        context = logged_in(browser, server.url)
        yield Place(run, server, context, runs_by_name(context, server))
        context.close()


def send(page: Page, text: str = "", token: str = "") -> None:
    """Fill in the open dialog and send it."""
    if text:
        page.locator("dialog input[type=text], dialog textarea").fill(text)
    if token:
        page.locator("dialog input[type=password]").fill(token)
    page.locator("dialog button[type=submit]").click()
    expect(page.locator("dialog[open]")).to_have_count(0)


def test_a_rollout_is_tagged_found_by_its_tag_and_a_view_is_kept(place: Place) -> None:
    page = place.context.new_page()
    trouble = watched(page, place.server.origin)
    address = f"{place.server.origin}/#/run/{place.ids['grpo']}"
    page.goto(f"{address}/rollouts?id=0-1-2")
    notes = page.get_by_role("region", name="Tags and notes")
    notes.get_by_role("button", name="Tag…").click()
    page.locator("dialog input[type=text]").fill("cheats")
    page.locator("dialog input[type=password]").fill("0" * 64)
    page.locator("dialog button[type=submit]").click()
    expect(page.locator("dialog .trouble")).to_be_visible()
    page.locator("dialog button", has_text="Cancel").click()
    assert "cheats" not in read(place.run).tag_counts(), "a reader without the token writes nothing"
    trouble.errors.clear()  # the browser reports the refusal
    notes.get_by_role("button", name="Tag…").click()
    send(page, "cheats", place.server.control)
    expect(notes.locator("li.is-tag")).to_contain_text("cheats")
    notes.get_by_role("button", name="Note…").click()
    send(page, "copies\nthe <b>prompt</b>")
    expect(notes.locator(".note-text")).to_have_text("copies\nthe <b>prompt</b>")
    page.locator("#find").fill("tag:cheats")
    page.locator("#find").press("Enter")
    expect(page.locator("button.index-row")).to_have_count(1)
    expect(page.locator("button.index-row .tag")).to_have_text("cheats")
    page.get_by_role("button", name="Save view…").click()
    send(page, "copied prompts")
    page.goto(f"{address}/rollouts?layout=group&id=0-1-2")
    expect(page.locator(".column[data-rollout='0-1-2'] .tag")).to_have_text("cheats")
    page.get_by_role("button", name="Tag completion 1", exact=True).click()
    send(page, "best")
    expect(page.locator(".column").first.locator(".tag").first).to_have_text(re.compile("best|cheats"))
    page.get_by_role("link", name="copied prompts").click()
    expect(page.locator("#find")).to_have_value("tag:cheats")
    page.goto(f"{address}?step=1")
    page.get_by_role("button", name="Note on step 1…").click()
    send(page, "here it turns")
    expect(page.locator("#notes")).to_contain_text("here it turns")
    page.get_by_role("button", name="Archive…").click()
    send(page)
    expect(page.locator("#notes")).to_contain_text("Archived")
    page.goto(f"{place.server.origin}/#/")
    expect(page.locator(".hidden-runs")).to_contain_text("1 archived run is hidden")
    expect(page.locator("table.fleet tbody tr")).to_have_count(4)
    page.locator(".hidden-runs button").click()
    expect(page.locator("table.fleet tbody tr")).to_have_count(5)
    page.close()
    assert trouble.any == []
    stored = read(place.run)
    assert stored.archived and stored.tags_of("0-1-2")[0] == "cheats" and stored.note_count("0-1") == 1


def read(run: RunDirectory) -> RunNotes:
    notes = RunNotes(run.path)
    notes.poll()
    return notes


def test_what_somebody_wrote_is_shown_letter_for_letter_and_does_nothing(
    place: Place, browser: Browser, axe: Path
) -> None:
    narrow = again(browser, place.context, NARROW, "dark")
    pages = (place.context.new_page(), narrow.new_page())
    troubles = [watched(page, place.server.origin) for page in pages]
    run = place.ids["grpo"]
    for page in pages:
        shown: list[str] = []
        for screen, where, part in (("", "#notes li", 0), ("/rollouts?id=0-2-1", ".notes li", 1)):
            page.goto(f"{place.server.origin}/#/run/{run}{screen}")
            lines = page.locator(where, has_text=re.compile("step 2 "))
            expect(lines).to_have_count(len(TEXTS[part::2]))
            shown += lines.locator(".note-text").all_text_contents()
            if part == (page is pages[0]):  # the wide rollouts, the narrow overview
                page.evaluate(axe.read_text())
                found = page.evaluate("() => axe.run('.notes, #notes, .views')")
                assert [rule["id"] for rule in found["violations"] if rule["impact"] in ("serious", "critical")] == []
            assert page.viewport_size is not None
            assert page.evaluate("() => document.documentElement.scrollWidth") <= page.viewport_size["width"]
        assert sorted(shown) == sorted(visible(text) for text in TEXTS)
        views = page.locator(".view a")
        texts, links = views.all_text_contents(), views.evaluate_all("all => all.map(a => a.getAttribute('href'))")
        assert {visible(name) for name in NAMES} <= set(texts)
        assert all(link.startswith(f"#/run/{run}/") for link in links), "an address leads nowhere else"
        views.first.click()
        expect(page.locator("#verdict")).to_be_visible()
    place_trouble = [line for trouble in troubles for line in trouble.any]
    narrow.close()
    pages[0].close()
    assert place_trouble == []


def test_groups_of_runs_are_compared_and_the_chooser_shows_names_as_they_are(
    place: Place, browser: Browser, axe: Path
) -> None:
    narrow = again(browser, place.context, NARROW, "dark")
    for page, check in ((place.context.new_page(), False), (narrow.new_page(), True)):
        trouble = watched(page, place.server.origin)
        page.goto(f"{place.server.origin}/#/compare")
        expect(page.locator(".choose label").filter(has_text=HOSTILE)).to_have_count(4)
        page.get_by_role("button", name="groups of runs").click()
        page.get_by_label("Group by").select_option("lr")
        table = page.get_by_role("table", name="Groups by lr")
        expect(table.locator("tbody tr th")).to_have_text(["1e-6", "1e-5", "not known"])
        gold = [0.0, (1 / 4 + 2 / 4) / 4 / 2]  # means over runs: g0; g1 and g2
        expect(table.locator("tbody tr").nth(1).locator("td").first).to_contain_text("2")
        shown = table.locator("tbody tr td[data-label='Gold now'] b").all_text_contents()
        assert [float(text.split(" ")[0]) for text in shown[:2]] == pytest.approx(gold, abs=0.06)
        page.get_by_label("Group by").select_option(HOSTILE)
        expect(page.get_by_role("table", name=f"Groups by {HOSTILE}").locator("tbody tr th").first).to_have_text(
            HOSTILE
        )
        if check:
            page.evaluate(axe.read_text())
            found = page.evaluate("() => axe.run()")
            assert [rule["id"] for rule in found["violations"] if rule["impact"] in ("serious", "critical")] == []
            assert page.evaluate("() => document.documentElement.scrollWidth") <= NARROW[0]
        page.close()
        assert trouble.any == []
    narrow.close()
