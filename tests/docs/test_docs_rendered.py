"""What the pages show of results is what the results say; and text that a model wrote does nothing there."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateSyntaxError, UndefinedError
from markdown import markdown  # type: ignore[import-untyped]
from tests.pages import DOCS, OPTIONS, render, render_page

from macros.registry import MACROS
from macros.tables import PENDING

FENCE = re.compile(r"^```.*?^```$", re.M | re.S)


def test_figures_come_from_the_results_and_their_absence_is_said(tmp_path: Path) -> None:
    empty = render_page("figures.md", tmp_path)
    assert "not measured yet" in empty
    result = {"kills": 1000, "lost": 0, "command": "python benchmarks/crash.py", "seed": 7, "cpu": "a | b", "new": 1.5}
    (tmp_path / "crash.json").write_text(json.dumps(result))
    (tmp_path / "later.json").write_text(json.dumps({"figure": 2, "seed": 1}))
    (tmp_path / "torn.json").write_text('{"figure": ')
    full = render_page("figures.md", tmp_path)
    assert "| `kills` | 1,000 |" in full
    assert "| `figure` | 2 |" in full
    assert "`python benchmarks/crash.py`" in full
    assert "a | b" not in full
    assert "could not be read" in full


def test_one_figure_in_a_sentence_and_the_warning_that_fails_a_strict_build(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    page = 'costs <!-- figure("overhead_trl", "cpu.ratio") --> times as much'
    assert render(page, tmp_path) == f"costs {PENDING} times as much"
    assert [(record.name, record.levelname) for record in caplog.records] == [("mkdocs.macros", "WARNING")]
    (tmp_path / "overhead_trl.json").write_text(json.dumps({"cpu": {"ratio": 1.00412}, "pairs": [0.5] * 80}))
    assert render(page, tmp_path) == "costs 1.004 times as much"
    assert "0.5" not in render('<!-- results("overhead_trl") -->', tmp_path)


HOSTILE = "</pre><script>alert(1)</script>\n```\n# head | *bold* [link](javascript:x) <!-- tiny_all() --> \x1b[2J"


def test_what_a_real_model_wrote_is_shown_and_does_nothing(tmp_path: Path) -> None:
    told = {"first": 1.25, "last": 2.0}
    found = {
        "steps": 40,
        "rollouts": 640,
        "labels": 160,
        "alarm_step": 30,
        "state": "ACT",
        "sentence": HOSTILE,
        "command": "python benchmarks/real_model.py",
        "cpu": "a | b",
        "revision": "abc",
        "completions": [{"prompt": HOSTILE, "before": HOSTILE, "after": HOSTILE}],
        "readings": {"reward.mean": told},
        "findings": [{"step": 9, "failure": "length_hacking", "confidence": 0.5, "summary": HOSTILE}],
        "screen": ["ACT  x", "reward.mean       1 ->     2", HOSTILE],
    }
    (tmp_path / "real_model.json").write_text(json.dumps(found))
    page = render_page("real-model.md", tmp_path)
    assert "not measured" not in page
    assert "| `reward.mean` | 1.25 | 2 |" in page
    assert "reward.mean       1 ->" not in page
    assert "\x1b" not in page
    fenced = re.findall(r"^(`{3,})text\n(.*?)^\1$", page, re.M | re.S)
    assert sum("<script>" in text for _, text in fenced) == 4  # sentence, before, after, screen
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", page, flags=re.M | re.S)
    assert "<script" not in outside
    assert "](javascript" not in outside


def test_watched_runs_become_tables_by_scenario(tmp_path: Path) -> None:
    def run(scenario: str, mode: str, seed: int, **changes: Any) -> dict[str, Any]:
        told: dict[str, Any] = {
            "scenario": scenario,
            "kind": "hack",
            "expected": "length_hacking",
            "seed": seed,
            "mode": mode,
            "gold_start": 0.4,
            "gold_peak": 0.5,
            "gold_end": 0.1,
            "proxy_start": 0.5,
            "proxy_end": 1.0,
            "alarm": {"step": 140},
            "warnings": [],
            "findings": [[0, 150, "length_hacking", 0.8, []]],
            "last_findings": {"length_hacking": 0.8},
            "actions": [],
            "outcomes": [],
            "advice": {"word": "stop", "best": None},
            "kept": {"advised": 0.45, "last": 0.1, "best_proxy": 0.12, "best": 0.5},
        }
        return told | changes

    quiet = {"kind": "benign", "expected": "", "alarm": None, "warnings": ["policy.kl.k3"], "findings": []}
    acted = {"gold_end": 0.48, "actions": [[0, 150, "rollback", 150.0, 60.0, "applied", ""]]}
    runs = [
        *(run("length_hacking", "advise", seed) for seed in range(3)),
        run("length_hacking", "act", 0, **acted, outcomes=[["0-150-rollback", "better", ""]]),
        run("healthy", "advise", 0, **quiet, last_findings={}),
    ]
    (tmp_path / "tiny_watched.json").write_text(json.dumps({"share": 0.1, "runs": runs}))
    names = ("scenarios", "advice", "act", "benign")
    parts = {name: render(f"<!-- watched_{name}() -->", tmp_path) for name in names}
    row = "| `length_hacking` | hack | 3 | 0.4 → 0.5 → 0.1 | 0.5 → 1 | 3, step 140 | `length_hacking` in 3 |"
    assert row in parts["scenarios"]
    assert "| an alarm | 0 | 1 |\n| a warning of `policy.kl.k3` | 1 | 1 |" in parts["benign"]
    assert "| `length_hacking` | 3 | stop 3 | 0.45 | 0.1 | 0.12 | 0.5 |" in parts["advice"]
    assert "| `length_hacking` | 0 | rollback 150 → 60 | better | 0.5 | 0.48 | 0.1 |" in parts["act"]


def test_the_suite_of_the_small_language_model_becomes_tables(tmp_path: Path) -> None:
    suite = {
        "runs": 40,
        "detection": 0.95,
        "redraws": {"draws": 10},
        "not_ahead_of": {"null": []},
        "scenarios": {"healthy": {"runs": 5, "onset": -1, "alarm_step_median": None, "drops": [0.1]}},
    }
    (tmp_path / "tiny_suite.json").write_text(json.dumps(suite))
    tables = '<!-- tiny_all() -->\n\n<!-- tiny_table("scenarios") -->'
    text = f'{tables}\n\nfound <!-- tiny_figure("detection") -->, <!-- tiny_figure("not_ahead_of.null") -->'
    made = render(text, tmp_path)
    assert "| `detection` | 0.95 |" in made
    assert "| `redraws.draws` | 10 |" in made
    assert "| `healthy` | 5 | – | – |" in made
    assert made.endswith("found 0.95, none")


def test_guarded_and_unguarded_runs_become_tables(tmp_path: Path) -> None:
    arms = {
        f"{arm}_{what}{end}": 0.5
        for arm in ("unguarded", "guarded")
        for what in ("gold", "diversity", "kl")
        for end in ("", "_low", "_high")
    }
    gain = {"gold_gain": 0.25, "gold_gain_low": 0.125, "gold_gain_high": 0.375}
    row = {"scenario": "healthy", "kind": "benign", **arms, **gain, "unguarded_words": 7.0, "guarded_words": 5.0}
    sizes = {"runs": 1, "seeds": 1, "steps": 9, "rollouts_per_step": 8}
    start = {"scenario": "healthy", "gold": 0.75, "diversity": 0.3, "words": 6.0}
    (tmp_path / "defences.json").write_text(json.dumps({**sizes, "start": [start], "scenarios": [row]}))
    side_by_side = (DOCS / "defences.md").read_text().partition("## Guarded and unguarded, side by side")[2]
    page = render(side_by_side, tmp_path)
    assert "| `healthy` | benign | 0.75 | 0.5 [0.5, 0.5] | 0.5 [0.5, 0.5] | 0.25 [0.125, 0.375] |" in page
    assert "| 7 | 5 |" in page


@pytest.mark.parametrize(
    "mark", ["figuer('crash', 'kills')", "figure('crash', 'kils')", "figure('crash')", "a comment"]
)
def test_what_no_macro_or_result_has_fails_the_build(mark: str, tmp_path: Path) -> None:
    """A misspelt call must not be an invisible comment in the page."""
    (tmp_path / "crash.json").write_text(json.dumps({"kills": 1000}))
    assert render("<!-- figure('crash', 'kills') -->", tmp_path) == "1,000"
    with pytest.raises((UndefinedError, TemplateSyntaxError, KeyError, TypeError)):
        render(f"<!-- {mark} -->", tmp_path)
    assert OPTIONS["on_error_fail"] is True
    assert OPTIONS["on_undefined"] == "strict"


def test_every_call_of_a_page_is_of_a_macro_and_every_macro_is_called() -> None:
    calls = {
        call for page in DOCS.rglob("*.md") for call in re.findall(r"<!-- (.*?)[( ]", FENCE.sub("", page.read_text()))
    }
    assert calls == set(MACROS)


def test_values_are_text_whatever_they_hold(tmp_path: Path) -> None:
    nasty = "<b>x</b> [a](javascript:b) \\\\[c\\](javascript:d) | *e*\nf {{ 7 * 7 }} <!-- figure('a', 'b') -->"
    result = {"text": nasty, "none": None, "names": ["a_b", "c"], "empty": [], "pairs": [["a", 1.5], ["b", 2]]}
    (tmp_path / "crash.json").write_text(json.dumps(result))
    page = render('<!-- results("crash") -->', tmp_path)
    (shown,) = re.findall(r"<td><code>text</code></td>\n<td>(.*)</td>", markdown(page, extensions=["tables"]))
    assert html.unescape(shown) == nasty.replace("\n", " ")
    rows = ["| `none` | – |", "| `names` | a\\_b, c |", "| `empty` | none |", "| `pairs` | a, 1.5; b, 2 |"]
    assert page.splitlines()[3:7] == rows


def test_no_figure_is_typed() -> None:
    """Outside the markers the figures page has no number that could be a result."""
    text = (DOCS / "figures.md").read_text()
    assert not re.search(r"\d[\d,.]* ?(ms|s|MB|kB|rows|files|%)\b", text)
