"""The report on preference data as a file that somebody opens: at both widths, and with nothing in it alive."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
from playwright.sync_api import Browser

from page_browser import NARROW, WIDE, findings, layout, watched
from payloads import payloads
from tiltmeter.view.check_report.html import render_html
from tiltmeter.workbench.preferences.reading.comparisons import Comparisons
from tiltmeter.workbench.preferences.render import as_report
from tiltmeter.workbench.preferences.report import check_pairs


def hostile() -> Comparisons:
    """The longer answer always wins, and every text would act if it could."""
    texts = payloads()[:150]
    names = [f"{text} rater" for text in texts[:3]]
    longer = [f"{text} {'and so on ' * (3 + at % 7)}" for at, text in enumerate(texts)]
    votes = np.random.default_rng(0).random((len(texts), 3)) < 0.9
    return Comparisons([f"{text} {at}?" for at, text in enumerate(texts)], longer, texts, votes.astype(float), names)


def test_the_report_lies_well_at_both_widths_and_nothing_in_it_acts(
    browser: Browser, tmp_path: Path, axe: Path
) -> None:
    file = tmp_path / "report.html"
    file.write_text(
        render_html(as_report(check_pairs(hostile(), source=payloads()[0], input_notes=payloads()[:5]))), "utf-8"
    )
    schemes: tuple[tuple[tuple[int, int], Literal["light", "dark"]], ...] = ((WIDE, "light"), (NARROW, "dark"))
    for size, scheme in schemes:
        context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        page = context.new_page()
        trouble = watched(page, "file://")
        page.goto(file.as_uri())
        assert page.locator("h1").count() == 1 and page.locator("svg").count() >= 2
        assert [*layout(page), *findings(page), *trouble.any] == []
        context.close()
