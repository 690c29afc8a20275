"""The published confusion matrix: every failure was planted, and the shares are those that were asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiltmeter.diagnosis import FAILURES

RESULT = Path(__file__).parents[2] / "benchmarks" / "results" / "diagnosis.json"


def published() -> dict[str, Any]:
    return dict(json.loads(RESULT.read_text()))


def test_the_right_cause_comes_first_and_healthy_runs_stay_quiet() -> None:
    figures = published()
    assert figures["planted"] >= 100 and figures["healthy"] >= 50
    assert figures["first_right_share"] >= 0.85
    assert figures["healthy_quiet_share"] >= 0.95


def test_every_failure_is_planted_on_seeds_that_set_no_rule() -> None:
    figures = published()
    planted = {failure for row in figures["matrix"] for failure in row["planted"]}
    assert planted == set(FAILURES) - {"unknown"}  # no cause is what it says
    assert figures["seed"] >= 100
    assert sum(row["runs"] for row in figures["matrix"]) == figures["planted"]
    assert sum(row["right"] for row in figures["matrix"]) == round(figures["first_right_share"] * figures["planted"])
