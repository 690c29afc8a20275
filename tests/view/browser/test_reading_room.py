"""The reading room: every colour is the stored number's, what a model wrote is shown and never acts, also rendered."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from tests.sizes import size

from page_browser import NARROW, WIDE, Served, again, findings, layout, logged_in, runs_by_name, served, watched
from page_runs import HOSTILE_NAME, agent, tokens
from payloads import payloads
from tiltmeter.rundir.reading_room.pieces import read_pieces
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import visible
from tiltmeter.view.server.reading_room.scales import NUMBERS

#: Of the first tokens of each column: number, letters, and class and colour of what is painted below their middle.
PAINTED = """() => [...document.querySelectorAll('.column')].map((element) => {
  const host = element.querySelector('.column-text');
  const {column} = host;
  const found = [];
  for (let token = 0; token < 180; token++) {
    const [box] = column.boxes(token);
    if (!box || !box.width) continue;
    const [x, y] = [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
    const hit = [];
    for (const svg of host.querySelectorAll('.lines > svg')) {
      const edge = svg.getBoundingClientRect();
      if (y < edge.top || y > edge.bottom) continue;
      for (const path of svg.children)
        if (path.isPointInFill(new DOMPoint(x - edge.left, y - edge.top))) hit.push([path.getAttribute('class'), getComputedStyle(path).fill]);
    }
    const [start, stop] = column.span(token);
    found.push([token, column.text.slice(start, stop), hit]);
  }
  return [element.dataset.rollout, found];
})"""  # noqa: E501
MIDDLE = """(token) => {
  const [box] = document.querySelector(".column[data-rollout='0-0-0'] .column-text").column.boxes(token);
  return [(box.left + box.right) / 2, (box.top + box.bottom) / 2];
}"""
FORBIDDEN = "a, img, script, iframe, object, embed, form, input, style, link, base, video, audio, svg, button"


@pytest.fixture(scope="module")
def room(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrowserContext, Served, Path]]:
    folder = tmp_path_factory.mktemp("room")
    tokens(folder / "runs" / "tokens", groups=1, steps=2)
    agent(folder / "runs" / "agent", 2)
    with served(folder / "runs", folder / "state") as server:
        context = logged_in(browser, server.url)
        yield context, server, folder / "runs"
        context.close()


def open_room(page: Page, server: Served, run: str, query: str) -> None:
    page.goto(f"{server.origin}/#/run/{run}/rollouts?{query}")
    expect(page.locator(".room")).to_have_attribute("aria-busy", "false")
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


def wanted_class(value: float, name: Any) -> str | None:
    """The class of a token by its stored number; None on the edge of a level, where four digits decide."""
    number = NUMBERS[name]
    if any(abs(abs(value) - edge) < 1e-3 * edge for edge in number.levels):
        return None
    found = sum(abs(value) >= edge for edge in number.levels)
    above = value > 0
    if not found or (not number.signed and above != (number.side == "above")):
        return ""
    return f"{'up' if above or (not number.signed and number.side == 'above') else 'down'}-{found}"


def test_a_thousand_tokens_have_the_colours_of_their_stored_numbers(room: tuple[BrowserContext, Served, Path]) -> None:
    context, server, runs = room
    run = RunDirectory(runs / "tokens")
    batch = next(run.read(file)[0] for file in run.files(0) if file.step == 1)
    pieces = read_pieces(run, 0)
    assert pieces is not None and batch.tokens is not None and batch.logprob is not None
    assert batch.ref_logprob is not None and batch.entropy is not None
    page = context.new_page()
    trouble = watched(page, server.origin)
    id = runs_by_name(context, server)["tokens"]
    for name in ("reference", "entropy"):
        open_room(page, server, id, f"layout=group&by={name}&id=0-1-0")
        expect(page.locator(".column:last-child .lines > svg path").first).to_be_attached()
        page.wait_for_timeout(500)
        checked = 0
        grounds: dict[str, str] = {}
        for rollout, found in page.evaluate(PAINTED):
            row = int(rollout.split("-")[2])
            stored = np.asarray(batch.entropy[row], float)
            if name == "reference":
                stored = np.asarray(batch.logprob[row], float) - np.asarray(batch.ref_logprob[row], float)
            for token, text, painted in found:
                wanted = wanted_class(float(stored[token]), name)
                assert pieces.texts[int(np.asarray(batch.tokens[row])[token])].decode() == text
                if wanted is not None:
                    assert [one[0] for one in painted] == ([] if wanted == "" else [wanted]), (rollout, token)
                    checked += 1
                    assert all(grounds.setdefault(shown, fill) == fill for shown, fill in painted)
        assert checked >= 1000
        assert len(set(grounds.values())) == len(grounds)  # no two levels look alike
    page.close()
    assert trouble.any == []


def test_a_token_tells_its_number_to_pointer_and_arrow_keys(
    room: tuple[BrowserContext, Served, Path],
) -> None:
    context, server, runs = room
    run = RunDirectory(runs / "tokens")
    batch = next(run.read(file)[0] for file in run.files(0) if file.step == 0)
    assert batch.logprob is not None
    page = context.new_page()
    open_room(page, server, runs_by_name(context, server)["tokens"], "layout=group&by=logprob&id=0-0-0")
    column = page.locator(".column[data-rollout='0-0-0']")
    expect(column.locator(".lines > svg").first).to_be_attached()
    shown, readout = page.locator(".readout b"), page.locator(".readout")
    for _ in range(40):  # letters that load late move the lines
        page.mouse.move(*page.evaluate(MIDDLE, 4))
        page.wait_for_timeout(250)
        if "token 5" in readout.inner_text():
            break
        page.mouse.move(0, 0)
    expect(readout).to_contain_text("token 5")
    assert float(shown.inner_text()) == pytest.approx(float(np.asarray(batch.logprob[0])[4]), rel=1e-3)
    page.mouse.move(0, 0)
    expect(readout).to_contain_text("point at a token")
    column.locator(".column-text").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".readout")).to_contain_text("token 2 think")
    assert float(shown.inner_text()) == pytest.approx(float(np.asarray(batch.logprob[0])[1]), rel=1e-3)
    page.close()


@pytest.mark.parametrize("window", [WIDE, NARROW], ids=["wide", "narrow"])
def test_every_layout_lies_well_and_has_no_barrier(
    browser: Browser, room: tuple[BrowserContext, Served, Path], axe: Path, window: tuple[int, int]
) -> None:
    context, server, _ = room
    ids = runs_by_name(context, server)
    other = again(browser, context, window, "dark" if window == NARROW else "light")
    page = other.new_page()
    trouble = watched(page, server.origin)
    views = ("layout=group&by=reference&id=0-1-0", "layout=pair&id=0-1-0", "layout=group&show=rendered&full=1&id=0-1-0")
    for query in views if window == WIDE else views[:: size(2, 1)]:
        open_room(page, server, ids["tokens"], query)
        assert [*layout(page), *findings(page), *trouble.any] == [], query
    open_room(page, server, ids["agent"], "layout=group&id=0-1-0")
    expect(page.locator(".column")).to_have_count(8)
    expect(page.locator(".column").first.locator(".turns li")).to_have_count(3)
    expect(page.locator(".lacking summary")).to_contain_text("cannot be shown")
    assert [*layout(page), *findings(page), *trouble.any] == []
    other.close()


def test_hostile_texts_side_by_side_are_literal_and_rendered_ones_are_inert(
    reader: BrowserContext, server: Served, ids: dict[str, str]
) -> None:
    page = reader.new_page()
    trouble = watched(page, server.origin)
    texts = payloads()
    wrong: list[str] = []
    for first in range(0, len(texts) - 4, size(60, 4)):
        first -= first % 4
        step, row = divmod(first, 64)
        open_room(page, server, ids[HOSTILE_NAME], f"layout=group&id=0-{step}-{row}")
        for k in range(4):
            shown = page.locator(f".column[data-rollout='0-{step}-{row + k}'] [data-text=now]").text_content() or ""
            if shown != visible(texts[first + k]):
                wrong.append(f"{texts[first + k][:60]!r} is shown as {shown[:80]!r}")
        open_room(page, server, ids[HOSTILE_NAME], f"layout=group&id=0-{step}-{row}&show=rendered")
        expect(page.locator(".rendered").first).to_be_attached()
        assert page.locator(f".rendered :is({FORBIDDEN})").count() == 0
        assert page.locator(".rendered [href], .rendered [src], .rendered [style]").count() == 0
        shown = page.locator(".room").inner_text()
        assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\x1b]", shown)
    assert wrong == []
    assert page.title().endswith("tiltmeter")
    page.close()
    assert trouble.any == []
