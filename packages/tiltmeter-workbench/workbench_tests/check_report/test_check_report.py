"""The one report: hostile text acts on no screen, every state has a tone, and nothing is left out in silence."""

from __future__ import annotations

import io
import math
import re
from html.parser import HTMLParser
from typing import get_args

import pytest
from rich.console import Console

from tiltmeter_workbench.check_report.html import EXAMPLES, ROWS, render_html
from tiltmeter_workbench.check_report.markdown import render_markdown
from tiltmeter_workbench.check_report.report import TONES, Axis, Check, CheckGroup, Example, Report
from tiltmeter_workbench.compare.measures.measure import State as MeasureState
from tiltmeter_workbench.compare.verdict import State as VerdictState
from tiltmeter_workbench.preferences.finding import State as FindingState
from tiltmeter_workbench.probe.attack_effects import Verdict
from tiltmeter_workbench.probe.audit_session import Status
from tiltmeter_workbench.terminal.check_report import interval_picture, render_report

HOSTILE = (
    "\"'></td></main><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}{% raw %}\x1b[2J\u202e"
    "[x](http://evil.example) [bold]@everyone\n```\n# heading | cell"
)
AXIS = Axis(-1.0, 0.0, 1.0, (0.2,))


def hostile() -> Report:
    """Every text of a report that may come from a file or a model."""
    example = Example({"prompt": HOSTILE, HOSTILE: HOSTILE, "other": HOSTILE}, HOSTILE, 3)
    check = Check(
        HOSTILE, "found", HOSTILE, 0.5, 0.4, 0.6, HOSTILE, HOSTILE, {HOSTILE: HOSTILE, "list": [HOSTILE]},
        [{HOSTILE: HOSTILE, "share": 0.5}], [example], HOSTILE, {"column": HOSTILE}, AXIS, rows_in_short=True,
    )  # fmt: skip
    plain = Check(f"{HOSTILE} 2", "clear", HOSTILE)
    lines = {"Lines": [HOSTILE]}
    groups = [CheckGroup("One", [check]), CheckGroup("Two", [plain])]
    return Report(HOSTILE, "found", "Found", HOSTILE, groups, HOSTILE, [HOSTILE], lines, {"More": [HOSTILE]})


def printed(report: Report, width: int = 120) -> str:
    console = Console(file=(out := io.StringIO()), width=width, highlight=False, markup=False)
    for part in render_report(report, width):
        console.print(part)
    return out.getvalue()


class Tags(HTMLParser):
    """Every tag and attribute; a tag that is closed in another's place is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.attributes: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_hostile_text_is_inert_in_html() -> None:
    made = render_html(hostile())
    tags = Tags(made)
    assert not tags.open and not tags.seen & {"script", "img", "iframe", "form", "link", "object"}
    assert not {name for name in tags.attributes if name.startswith("on")} and "style" not in tags.attributes
    assert (
        "\x1b" not in made and "\u202e" not in made and "{{ 7 * 7 }}" in made and "49" not in made.split("</style>")[1]
    )
    assert set(re.findall(r'href="([^"]*)"', made)) <= {f"#{each}" for each in re.findall(r' id="([^"]*)"', made)}
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', made)
    assert policy and re.fullmatch(
        r"default-src 'none'; style-src 'sha256-[\w+/=]+'; base-uri 'none'; form-action 'none'; "
        r"require-trusted-types-for 'script'; trusted-types 'none'",
        policy[1],
    )


@pytest.mark.parametrize("width", [80, 120])
def test_hostile_text_is_inert_on_a_terminal(width: int) -> None:
    shown = printed(hostile(), width)
    assert "\x1b" not in shown and "\u202e" not in shown and "[bold]" in shown


def test_hostile_text_is_inert_in_markdown() -> None:
    made = render_markdown(hostile())
    assert "\x1b" not in made and "\u202e" not in made
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", made, flags=re.M | re.S)
    assert not re.search(r"(?<!\\)<|(?<!\\)\]\(|(?<!\\)@|http:", outside)


def test_every_state_that_a_tool_has_is_shown_in_a_tone() -> None:
    states = {state for kind in (MeasureState, VerdictState, FindingState, Verdict, Status) for state in get_args(kind)}
    assert states | {"some paid", "none paid", "error", "note"} <= set(TONES)
    with pytest.raises(KeyError):
        _ = Check("a", "fine, surely", "").tone


def test_what_is_not_known_is_neither_drawn_nor_called_a_number() -> None:
    unknown = Check("a", "cannot tell", "Too few.", axis=AXIS)
    assert unknown.figure() == "" and not interval_picture(unknown).plain.strip()
    report = Report("t", "cannot tell", "Cannot tell", "h", [CheckGroup("Checks", [unknown])])
    assert "Too few." in printed(report) and "Too few." in render_html(report) and "nan" not in render_markdown(report)
    endless = Check("a", "cannot tell", "", 0.5, 0.1, math.inf, axis=AXIS)
    assert endless.figure() == "0.5 [0.1, inf]" and interval_picture(endless).plain.endswith("━")


def test_what_is_left_out_is_counted() -> None:
    rows = [{"n": n} for n in range(ROWS + 4)]
    examples = [Example({"prompt": "p", "answer": "a"})] * (EXAMPLES + 3)
    check = Check("a", "found", "s", rows=rows, examples=examples, rows_in_short=True)
    report = Report("t", "found", "Found", "h", [CheckGroup("Checks", [check])])
    page, notes, shown = render_html(report), render_markdown(report), printed(report)
    assert "More rows in --json: 4." in page and "More examples in --json: 3." in page
    assert "More rows in --json: 17." in notes and "More examples in --json: 4." in notes
    assert "… 23 more" in shown and "more examples in --json: 6" in shown


def test_a_short_table_leaves_out_only_what_is_not_urgent_and_says_so() -> None:
    good = [Check(f"good {n}", "clear", "") for n in range(5)]
    urgent = [Check("bad", "found", ""), Check("open", "cannot tell", "")]
    group = CheckGroup("Checks", [*good, *urgent], most=1)
    assert group.in_short() == urgent
    assert "… 5 more: clear" in printed(Report("t", "found", "Found", "h", [group]))
