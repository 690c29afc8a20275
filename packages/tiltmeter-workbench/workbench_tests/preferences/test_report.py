"""What a report on preference data comes to, and that every form of it says the same and nothing acts."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from tiltmeter_workbench.check_report.html import render_html
from tiltmeter_workbench.check_report.markdown import render_markdown
from tiltmeter_workbench.check_report.report import Check
from tiltmeter_workbench.preferences.checks.position import BOTH_ORDERS
from tiltmeter_workbench.preferences.finding import ALPHA, State, example_pair
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.preferences.reading.join_files import join_files
from tiltmeter_workbench.preferences.render import as_json, as_report, axis, fixes, headline
from tiltmeter_workbench.preferences.report import BIASES, DEFECTS, SHARE, TYPICALITY, PreferenceReport, check_pairs
from tiltmeter_workbench.terminal.check_report import interval_picture, render_report

HOSTILE = (
    "</td></main><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[2J\u202e[x](http://evil.example) @everyone\n"
    "```\n# heading | cell"
)
LENGTH = Check(
    "length", "found", "Longer answers win.", 0.6, 0.5, 0.7, "log-odds", fix="Balance them.", facts={"matters": 0.2}
)


def report(*findings: Check, raters: int = 1) -> PreferenceReport:
    return PreferenceReport("a.jsonl", 100, raters, findings)


def bias(state: State, name: str = "length") -> Check:
    return Check(name, state, f"{name} is {state}.")


def test_any_bias_or_defect_that_was_found_is_exit_code_one() -> None:
    assert report(bias("clear"), bias("found", "copies")).exit_code == 1
    assert report(bias("found"), bias("cannot tell", "form")).exit_code == 1


def test_without_a_bias_that_could_be_judged_nothing_is_cleared() -> None:
    assert report(bias("clear")).exit_code == 0
    assert report(bias("clear"), bias("cannot tell", "form")).exit_code == 0
    # Rows without copies say nothing about what labels reward.
    assert report(bias("cannot tell"), bias("clear", "copies"), bias("known", "agreement")).exit_code == 2
    assert report().exit_code == 2


def test_the_headline_tells_the_worst_and_names_the_rest() -> None:
    told = headline(report(bias("clear", "form"), LENGTH, bias("found", "position")))
    assert told == "Longer answers win. Also found: position."
    assert headline(report(bias("cannot tell"))) == "Nothing could be judged in 100 comparisons. length is cannot tell."
    open_ = headline(report(bias("clear"), bias("cannot tell", "form")))
    assert open_ == "No bias by length in 100 comparisons. Cannot tell: form."


def test_what_was_found_stands_first_and_its_fix_is_told_once() -> None:
    found = report(bias("not asked", TYPICALITY), bias("clear", "form"), LENGTH)
    assert [finding.name for finding in found.ordered] == ["length", "form", TYPICALITY]
    assert fixes(found) == ["length: Balance them."]


def test_every_check_has_a_name_of_its_own_and_its_share_of_the_error() -> None:
    names = [name for name, _ in (*BIASES, *DEFECTS)]
    assert len(set(names)) == len(names) == 10
    assert pytest.approx(ALPHA) == SHARE * (len(BIASES) + 3)  # typicality, raters, balance


def test_json_has_the_same_keys_whatever_was_found_and_no_nan() -> None:
    told = as_json(report(bias("cannot tell"), Check("raters", "known", "r", facts={"k": [math.nan, 1.0]})))
    assert list(told) == [
        *(
            "source",
            "state",
            "exit_code",
            "headline",
            "items",
            "raters",
            "left_out",
            "seed",
            "read",
            "findings",
            "fixes",
            "notes",
        )
    ]
    for each in told["findings"]:
        assert list(each) == [
            *("name", "state", "sentence", "estimate", "low", "high", "unit", "fix", "facts", "rows", "examples")
        ]
    assert told["findings"][0]["estimate"] is None and told["findings"][1]["facts"] == {"k": [None, 1.0]}
    json.dumps(told, allow_nan=False)


@pytest.mark.parametrize(
    ("finding", "left", "zero", "right"),
    [
        (Check("a", "found", "", 0.7, 0.6, 0.8, "share of labels predicted"), 0.0, 0.5, 1.0),
        (Check("a", "found", "", 0.7, 0.6, 0.8, BOTH_ORDERS), 0.0, 1.0, 1.0),
        (Check("a", "found", "", 0.7, 0.6, 0.8, "log-odds"), -1.0, 0.0, 1.0),
        (Check("a", "found", "", 0.7, -9.0, 90.0, "log-odds"), -5.0, 0.0, 5.0),
        (Check("a", "found", "", 0.7, 0.6, 0.8, "log-odds", facts={"matters": 0.2}), -0.8, 0.0, 0.8),
        (Check("a", "found", "", 0.01, 0.0, 0.02, "a nat", facts={"matters": 0.02}), -0.08, 0.0, 0.08),
        (Check("copies", "found", "", 0.3), 0.0, 0.0, 1.0),
        (Check("agreement", "known", "", 0.7, 0.6, 0.8, "alpha"), 0.0, 0.0, 1.0),
    ],
)
def test_an_interval_is_drawn_around_what_means_nothing(finding: Check, left: float, zero: float, right: float) -> None:
    drawn = axis(finding)
    assert drawn is not None
    assert (drawn.left, drawn.zero, drawn.right) == (left, zero, right)


def test_the_picture_shows_an_interval_that_holds_zero_and_one_that_does_not() -> None:
    def picture(finding: Check) -> str:
        return interval_picture(replace(finding, axis=axis(finding))).plain

    across = picture(Check("a", "cannot tell", "", 0.5, -0.5, 1.0))
    assert across == "    ━━━━┿━━━●━━━━"
    clear_of_it = picture(Check("a", "found", "", 0.5, 0.25, 0.75))
    assert clear_of_it == "        │ ━━●━━  "
    assert picture(bias("known")).strip() == ""


def hostile() -> PreferenceReport:
    rows = [{HOSTILE: HOSTILE, "share": 0.5}]
    shown = [example_pair(3, HOSTILE, HOSTILE, HOSTILE, HOSTILE)]
    finding = Check(
        "phrases", "found", f"The phrase {HOSTILE}", 0.5, 0.4, 0.6, HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, rows, shown
    )
    return PreferenceReport(HOSTILE, 5, 2, (finding, bias("clear", HOSTILE)), (HOSTILE,))


def test_what_anybody_wrote_is_inert_in_the_page() -> None:
    made = render_html(as_report(hostile()))
    body = made.partition("</head>")[2]
    assert "<script" not in made and "<img" not in made and "\x1b" not in made and "\u202e" not in made
    assert "&lt;script&gt;" in body and "default-src 'none'" in made and " style=" not in made
    # Whatever tag is in it is one of ours: a quote that got out would make another.
    assert set(re.findall(r"</?([a-z0-9]+)", body)) <= {
        *(
            "body",
            "main",
            "header",
            "p",
            "h1",
            "h2",
            "h3",
            "h4",
            "section",
            "table",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
        ),
        *(
            "span",
            "a",
            "svg",
            "line",
            "rect",
            "ol",
            "ul",
            "li",
            "dl",
            "dt",
            "dd",
            "div",
            "article",
            "html",
            "nav",
            "strong",
        ),
    }
    links = re.findall(r' href="([^"]*)"', body)
    assert links and all(re.fullmatch(r"#(phrases|to-do|(group|list)-\d+)", link) for link in links), links


def test_what_anybody_wrote_is_inert_on_a_terminal_and_in_markdown() -> None:
    out = io.StringIO()
    console = Console(file=out, width=120, highlight=False, markup=False, force_terminal=False)
    for part in render_report(as_report(hostile())):
        console.print(part)
    assert "\x1b" not in out.getvalue() and "\u202e" not in out.getvalue() and "\\u{1b}" in out.getvalue()
    told = render_markdown(as_report(hostile()))
    assert "\x1b" not in told and "\u202e" not in told
    fenced = re.sub(r"^(`{3,})text\n.*?^\1$", "", told, flags=re.M | re.S)  # what is fenced is shown as it is
    assert "````text" in told
    assert not re.search(r"(?<!\\)<|(?<!\\)\]\(|(?<!\\)@|http:", fenced)
    assert all(line.count(" | ") in (0, 3, 1) for line in fenced.splitlines() if line.startswith("|"))


def comparisons(n: int = 60, votes: float = 1.0) -> Comparisons:
    texts = [f"word {'more ' * (k % 5)}{k}" for k in range(n)]
    return Comparisons([f"q{k}?" for k in range(n)], texts, [f"other {k}" for k in range(n)], np.full((n, 1), votes))


def test_every_check_runs_and_progress_is_told() -> None:
    seen: list[tuple[str, int, int]] = []
    found = check_pairs(
        comparisons(), seed=3, progress=lambda *told: seen.append(told), source="here", input_notes=["read"]
    )
    names = [*(name for name, _ in BIASES), TYPICALITY, *(name for name, _ in DEFECTS)]
    assert [what for what, _, _ in seen] == [f"looking at {name}" for name in names]
    assert names == [finding.name for finding in found.findings]
    assert (found.source, found.input_notes, found.seed, found.items, found.raters) == ("here", ("read",), 3, 60, 1)


def test_the_same_data_and_seed_give_the_same_report() -> None:
    assert as_json(check_pairs(comparisons(), seed=1)) == as_json(check_pairs(comparisons(), seed=1))


@pytest.mark.parametrize("pairs", [comparisons(60, math.nan), comparisons(0), comparisons(1), comparisons(60, 0.5)])
def test_without_decided_votes_nothing_is_judged_and_nothing_breaks(pairs: Comparisons) -> None:
    found = check_pairs(pairs)
    assert found.state == "cannot tell" or {finding.name for finding in found.problems} <= {"copies", "balance"}
    assert all(finding.state in ("cannot tell", "not asked", "known") for finding in found.biases)
    render_html(as_report(found)), render_markdown(as_report(found)), json.dumps(as_json(found), allow_nan=False)


def test_votes_without_texts_are_judged_by_what_votes_tell() -> None:
    rng = np.random.default_rng(0)
    votes = (rng.random((200, 3)) < 0.9).astype(float)
    found = check_pairs(
        Comparisons([str(k) for k in range(200)], [""] * 200, [""] * 200, votes, ["a", "b", "c"], None, True)
    )
    states = {finding.name: finding.state for finding in found.findings}
    assert states["position"] == "found" and states["agreement"] == "known" and states[TYPICALITY] == "not asked"
    assert {states[name] for name in ("shallow", "length", "form", "phrases", "copies", "balance")} == {"cannot tell"}
    assert not any(finding.examples for finding in found.findings)


def test_a_likelihood_is_asked_for_typicality_only_where_it_is_given() -> None:
    asked = check_pairs(comparisons()).findings[len(BIASES)]
    assert (asked.name, asked.state) == (TYPICALITY, "not asked")
    given = check_pairs(comparisons(), likelihood=lambda prompts, answers: np.array([-len(a) for a in answers], float))
    assert given.findings[len(BIASES)].state != "not asked"


def test_joined_files_keep_what_only_one_of_them_knows() -> None:
    one = Comparisons(["a?"], ["b"], ["c"], np.array([[1.0, 0.0]]), ["ann", "bob"], order_known=True)
    two = Comparisons(
        ["d?", "e?"], ["f", "g"], ["h", "i"], np.array([[0.5], [1.0]]), ["bob"], np.array([[0.5], [0.0]]), True,
        np.array([[1.0, 2.0], [3.0, 4.0]]), ["x", "y"], [7, 9],
    )  # fmt: skip
    both = join_files({"train": one, "test": two})
    assert both.votes[:, 1].tolist() == [0.0, 0.5, 1.0] and math.isnan(both.votes[1, 0])
    assert both.swapped is not None and np.isnan(both.swapped[0]).all() and both.swapped[2, 1] == 0.0
    assert both.quality is not None and np.isnan(both.quality[0]).all() and both.quality[2].tolist() == [3.0, 4.0]
    assert (both.splits, both.rows, both.order_known) == (["train", "test x", "test y"], [1, 8, 10], True)
