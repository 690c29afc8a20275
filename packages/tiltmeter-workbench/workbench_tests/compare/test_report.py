"""The report on every screen: the same table, hostile text inert, no NaN in JSON."""

from __future__ import annotations

import io
import json
import math
from html.parser import HTMLParser

import pytest
from rich.console import Console

from tiltmeter_workbench.check_report.html import render_html
from tiltmeter_workbench.check_report.markdown import render_markdown
from tiltmeter_workbench.compare.measures.measure import Measure, example_answers, not_asked
from tiltmeter_workbench.compare.render import as_check, as_json, as_report
from tiltmeter_workbench.compare.report import ComparisonReport
from tiltmeter_workbench.terminal.check_report import interval_picture, render_report

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e [link](http://x) | @you"
WINS = Measure(
    "win_rate", "Wins", "worse", "It wins 40.0 % [33.0 %, 47.0 %] of 200 pairs (about this judge).", "quality",
    "share of wins", 0.5, 0.4, -0.1, -0.17, -0.03, 200, ({"wins": 80, "losses": 120}, {"wins": 1, "losses": 2}),
    (example_answers(HOSTILE, HOSTILE, HOSTILE, "the base's answer won"),), "Go back.",
)  # fmt: skip
KL = Measure("kl", "KL from base", "shown", "2 nats.", "", "nats", 0.0, 2.0, 2.0, 1.5, 2.5, 20)
UNKNOWN = Measure("length", "Length", "cannot tell", "Too few.", cost="verbosity", fix="Never shown.")
REPORT = ComparisonReport(
    "base", HOSTILE, (KL, UNKNOWN, WINS, not_asked("capability", "Capability", "Give --task.")),
    judge="the judge m at host", judged=True, input_notes=("20 prompts",),
)  # fmt: skip


def drawn(report: ComparisonReport, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    for part in render_report(as_report(report), width):
        console.print(part)
    shown = console.file
    assert isinstance(shown, io.StringIO)
    return shown.getvalue()


def test_costs_come_first_and_what_was_not_asked_stands_apart() -> None:
    assert [measure.name for measure in REPORT.ordered] == ["win_rate", "length", "kl"]
    assert [measure.name for measure in REPORT.not_asked] == ["capability"]
    assert (REPORT.verdict.state, REPORT.exit_code) == ("costs", 1)


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_shows_every_measure_whole_and_no_escape(width: int) -> None:
    shown = drawn(REPORT, width)
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert shown.startswith("COSTS quality.")
    row = next(line for line in shown.splitlines() if line.startswith("Wins"))
    assert all(part in row for part in ("0.5", "0.4", "-0.1 [-0.17, -0.03]", "worse"))
    assert "Give --task." in shown
    assert "Go back." in shown
    assert "Never shown." not in shown  # a cure for what nobody found
    assert max(map(len, shown.splitlines())) <= width


def test_html_is_inert_and_names_the_judge() -> None:
    made = render_html(as_report(REPORT))
    assert "<script" not in made
    assert "\x1b" not in made
    assert "\\u{1b}[2J" in made
    assert "the judge m at host" in made
    assert made.count("<svg") == 2  # an interval for each measure that has a difference

    class Tags(HTMLParser):
        def __init__(self) -> None:
            super().__init__()
            self.open: list[str] = []
            self.seen: set[str] = set()

        def handle_starttag(self, tag: str, attrs: object) -> None:
            self.seen.add(tag)
            if tag != "meta":
                self.open.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert self.open.pop() == tag

    reader = Tags()
    reader.feed(made)
    assert not reader.open
    assert not reader.seen & {"script", "img", "iframe", "form", "link"}


def test_markdown_keeps_foreign_text_in_fences_and_the_table_in_shape() -> None:
    made = render_markdown(as_report(REPORT))
    table = [line for line in made.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in table[:5]} == {7}
    assert "\x1b" not in made
    head, *rest = made.split("```")
    assert "<script>" not in head
    assert any("script" in part for part in rest[::2])
    assert "Give --task" in made


def test_json_has_everything_and_no_nan() -> None:
    told = as_json(REPORT)
    text = json.dumps(told, allow_nan=False)
    assert json.loads(text) == told
    assert (told["verdict"], told["costs"], told["exit_code"]) == ("costs", ["quality"], 1)
    by_name = {measure["name"]: measure for measure in told["measures"]}
    assert by_name["length"]["difference"] is None
    assert by_name["win_rate"]["examples"][0]["prompt"] == HOSTILE
    assert told["not_asked"] == ["Capability: Give --task."]
    assert any("about this judge" in note for note in told["notes"])


def test_the_picture_of_an_interval_is_on_the_side_of_its_difference() -> None:
    below, above = interval_picture(as_check(WINS)).plain, interval_picture(as_check(KL)).plain
    assert below.index("●") < len(below) // 2 < above.index("●")
    assert "┿" not in below
    assert interval_picture(as_check(UNKNOWN)).plain.strip() == ""
    around = Measure("a", "A", "cannot tell", "", difference=0.1, low=-0.2, high=0.4)
    assert "┿" in interval_picture(as_check(around)).plain
    alone = Measure("a", "A", "shown", "", difference=0.1, low=math.nan, high=math.nan)
    assert interval_picture(as_check(alone)).plain.count("●") == 1
