"""Reports of checks as files that somebody opens: at both widths, and with nothing in them alive."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from playwright.sync_api import Browser

from page_browser import NARROW, WIDE, findings, layout, watched
from payloads import payloads
from tiltmeter.gold.people import UnjudgedError
from tiltmeter_workbench.check_report.html import render_html
from tiltmeter_workbench.check_report.report import Axis, Check, CheckGroup, Example, Report
from tiltmeter_workbench.common.label_page import PageItem, render_items
from tiltmeter_workbench.compare.people import PeopleLabels
from tiltmeter_workbench.gold_check.label_page import render_pairs
from tiltmeter_workbench.gold_check.person_labels import ScoredPair
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.preferences.render import as_report
from tiltmeter_workbench.preferences.report import check_pairs


def hostile() -> Comparisons:
    """The longer answer always wins, and every text would act if it could."""
    texts = payloads()[:150]
    names = [f"{text} rater" for text in texts[:3]]
    longer = [f"{text} {'and so on ' * (3 + at % 7)}" for at, text in enumerate(texts)]
    votes = np.random.default_rng(0).random((len(texts), 3)) < 0.9
    return Comparisons([f"{text} {at}?" for at, text in enumerate(texts)], longer, texts, votes.astype(float), names)


def hostile_columns() -> Report:
    """Two tables of checks, one with columns of its own, as a scorecard has."""
    texts = payloads()
    checks = [
        Check(text, state, text, 0.3, -0.2, 0.9, text, examples=[Example({"prompt": text, "before": text, text: text})],
              columns={"leads to": text, "of gap": 0.2}, axis=Axis(-1.0, 0.0, 1.0, (0.2,)), signed=True)
        for text, state in zip(texts[:40], cycle(("paid", "not paid", "cannot tell", "shown")), strict=False)
    ]  # fmt: skip
    groups = [CheckGroup("Attacks", checks, noun="attack"), CheckGroup("Checks", [Check("a", "passed", texts[7])])]
    return Report(texts[1], "paid", "Something is paid", texts[2], groups, texts[3], texts[:5], {"Learned": texts[5:9]})


@pytest.mark.parametrize("tool", ["preferences", "columns"])
def test_the_report_lies_well_at_both_widths_and_nothing_in_it_acts(
    browser: Browser, tmp_path: Path, axe: Path, tool: str
) -> None:
    file = tmp_path / "report.html"
    if tool == "preferences":
        report = as_report(check_pairs(hostile(), source=payloads()[0], input_notes=payloads()[:5]))
    else:
        report = hostile_columns()
    file.write_text(render_html(report), "utf-8")
    schemes: tuple[tuple[tuple[int, int], Literal["light", "dark"]], ...] = ((WIDE, "light"), (NARROW, "dark"))
    for size, scheme in schemes:
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        page = context.new_page()
        trouble = watched(page, "file://")
        page.goto(file.as_uri())
        assert page.locator("h1").count() == 1 and page.locator("svg").count() >= 2
        assert [*layout(page), *findings(page), *trouble.any] == []
        context.close()


def test_pairs_to_label_are_a_page_of_the_same_shell_and_their_texts_do_nothing(
    browser: Browser, tmp_path: Path
) -> None:
    texts = payloads()[:30:3]
    pairs = [ScoredPair(text, f"{text} first", f"{text} second", True) for text in texts]
    file = tmp_path / "pairs.html"
    file.write_text(render_pairs(pairs), "utf-8")
    context = browser.new_context(viewport={"width": NARROW[0], "height": NARROW[1]}, color_scheme="dark")
    page = context.new_page()
    trouble = watched(page, "file://")
    page.goto(file.as_uri())
    for number, text in enumerate(texts):
        assert page.locator("#count").text_content() == f"{number + 1} of {len(texts)}"
        assert (page.locator("#prompt").text_content() or "").replace("\r", "") == text.replace("\r", "")
        page.keyboard.press("a")
    assert page.locator("#count").text_content() == f"{len(texts)} of {len(texts)} labelled"
    assert [*layout(page), *trouble.any] == []
    context.close()


def test_one_answer_is_graded_in_five_steps_and_what_is_saved_says_which(browser: Browser, tmp_path: Path) -> None:
    items = [PageItem("2 + 2?", f"<b>{number}</b>") for number in range(4)]
    file = tmp_path / "people.html"
    file.write_text(render_items(items), "utf-8")
    context = browser.new_context(viewport={"width": NARROW[0], "height": NARROW[1]})
    page = context.new_page()
    trouble = watched(page, "file://")
    page.goto(file.as_uri())
    assert page.locator("#first").text_content() == "<b>0</b>" and not page.locator("#other").is_visible()
    assert page.get_by_role("button", name="A", exact=True).count() == 0
    for key in ("a", "1", "5", "4", "u", "s"):  # a is for pairs, and u takes the last one back
        page.keyboard.press(key)
    page.get_by_role("button", name="3", exact=True).click()
    assert page.locator("#count").text_content() == "4 of 4 labelled"
    with page.expect_download() as download:
        page.locator("#save").click()
    download.value.save_as(tmp_path / "labels.jsonl")
    labels = PeopleLabels(tmp_path)
    assert [labels.ask(item) for item in (items[0], items[1], items[3])] == [0.0, 1.0, 0.5]
    assert isinstance(labels.ask(items[2]), UnjudgedError)
    assert [*layout(page), *trouble.any] == []
    context.close()
