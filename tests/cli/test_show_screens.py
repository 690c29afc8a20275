"""The five lines of `tiltmeter show` for twelve kinds of run: as the documentation has them, and what none says."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sizes import CAMPAIGN

from tiltmeter.data.records import Finding
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.message import competing_findings, message
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.verdict import judge_run

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import show_runs

WORDS = ("Since", "Why", "Do", "Look")
STATES = {
    "hacked": "ACT", "healthy": "OK", "blind": "BLIND", "short": "BLIND", "stale": "STALE", "agentic": "ACT",
    "traps": "ACT", "slice": "ACT", "level-only": "ACT", "many-components": "ACT", "people": "ACT", "damaged": "BLIND",
}  # fmt: skip


#: CI has seven of the twelve kinds, the campaign all.
SOME = ["hacked", "healthy", "blind", "short", "agentic", "slice", "damaged"]
KINDS = list(STATES) if CAMPAIGN else SOME


@pytest.fixture(scope="module")
def runs() -> Iterator[dict[str, RunDirectory]]:
    with show_runs.made(KINDS) as found:
        yield found


@pytest.fixture(scope="module")
def screens(runs: dict[str, RunDirectory]) -> dict[str, list[str]]:
    return show_runs.screens(runs)


def test_the_page_shows_what_show_prints(screens: dict[str, list[str]]) -> None:
    page, shown = show_runs.PAGE.read_text(), show_runs.page(screens)
    assert page.count("\n## ") == len(STATES) and (not CAMPAIGN or page == shown), "python benchmarks/show_runs.py"
    for part in shown.split("\n## ")[1:]:
        assert f"\n## {part.rstrip()}\n" in page, "python benchmarks/show_runs.py"


def test_every_kind_of_run_has_five_lines(screens: dict[str, list[str]]) -> None:
    assert list(screens) == KINDS
    for name, lines in screens.items():
        assert len(lines) == 5, name
        assert lines[0].startswith(f"{STATES[name]}  {name}: "), lines[0]
        assert tuple(line.split()[0] for line in lines[1:]) == WORDS, name
        assert all(len(line) <= 320 for line in lines), name


def test_no_line_has_our_inner_names_or_a_share_above_the_whole(screens: dict[str, list[str]]) -> None:
    inner = re.compile(r"\b(gold|reward|length|policy|text|eval)\.[a-z_]+|\bodds\b|_hacking|\d+ ?% sure")
    for name, lines in screens.items():
        for line in lines:
            assert not inner.search(line), (name, line)
            assert all(float(share) <= 100.0 for share in re.findall(r"(\d+(?:\.\d+)?) ?%", line)), (name, line)


def test_nothing_calm_is_said_of_a_run_in_trouble(screens: dict[str, list[str]]) -> None:
    for name, lines in screens.items():
        calm = "healthy so far" in lines[0] or "nothing needs doing" in lines[3] or "go on" in lines[3]
        assert calm is (STATES[name] == "OK"), (name, lines)


def finding(failure: str, confidence: float) -> Finding:
    return Finding(0, 9, failure, confidence, ("gold.slope",), ("reward.mean",), summary=f"{failure} was seen", fix="x")


def test_findings_compete_and_what_is_unknown_explains_nothing_beside_another() -> None:
    run_facts = RunFacts()
    assert competing_findings(run_facts) == (None, [])
    for failure, confidence in (("unknown", 0.9), ("hedging", 0.4), ("length_hacking", 0.7)):
        run_facts.findings[failure] = finding(failure, confidence)
    best, others = competing_findings(run_facts)
    assert best is not None and best.failure == "length_hacking" and [one.failure for one in others] == ["hedging"]


def test_a_warning_that_separates_nothing_is_listed_and_leaves_the_run_ok(tmp_path: Path) -> None:
    def columns(step: int, rng: object) -> dict[str, object]:
        entropy = max(0.1, 2.0 - step / 40)
        return {**show_runs.healthy_columns(step, rng), "length": [4] * 64, "entropy": [[entropy] * 4] * 64}  # type: ignore[arg-type]

    run = show_runs.measure(show_runs.write(tmp_path / "run", columns, 100))
    verdict, run_facts, _ = judge_run(run)
    assert verdict.state == "OK" and any(warning.name.startswith("policy.entropy") for warning in verdict.warnings)
    told = message(verdict, run_facts, place="run")
    assert "entropy" not in told.why and "healthy" in told.state
