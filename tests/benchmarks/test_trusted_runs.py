"""Figures about gold that says nothing, good gold and moods behind a function, at their smallest sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


def test_good_gold_passes_and_a_judge_behind_a_function_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import trusted_runs  # benchmarks are scripts, not a package

    assert trusted_runs.measure_refusals(8, 0, True)["good_gold_refused_share"] == 0.0
    judged = trusted_runs.measure_function_judge(40, 0, True)
    assert judged["function_judge_false_share_of"] == 40
    rows: Any = judged["function_judge_rows"]
    assert len(rows) == 4
