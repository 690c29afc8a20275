"""What is reported about real runs: the small pieces by hand, and the whole where the public logs are present."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"
present = pytest.mark.skipif(
    not (DATA / "overopt_direct_alignment").exists(), reason="the public logs are not beside the repository"
)


@cache
def script() -> ModuleType:
    path = ROOT / "benchmarks" / "real_logs.py"
    spec = importlib.util.spec_from_file_location("real_logs", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


@cache
def figures() -> dict[str, Any]:
    found: dict[str, Any] = script().measure(DATA)
    return found


def test_a_gap_is_judged_against_the_start_and_not_by_its_level() -> None:
    flag = script().gap_step
    assert flag([0, 10, 20], [0.5, 0.5, 0.5], [0.2, 0.2, 0.2], 1) is None
    assert flag([0, 10, 20], [0.5, 0.5, 0.7], [0.2, 0.2, 0.2], 1) == 20


def test_a_level_that_falls_is_told_with_its_step_and_one_that_does_not_is_not() -> None:
    fallen = script().level([(0, 0.5), (20, 0.5), (40, 0.1), (60, 0.1)], 200)
    assert (fallen["alarm_step"], fallen["fell_between"]) == (40, (20, 40))
    assert script().level([(0, 0.5), (20, 0.5), (40, 0.55)], 200)["alarm_step"] is None


def test_a_curve_without_a_start_or_with_few_points_is_refused_in_words() -> None:
    d = np.linspace(0.5, 2.0, 5)
    rate, error = np.full(5, 0.5), np.full(5, 0.02)
    assert "near the start" in script().said(d, rate, error, "rl", None)
    assert "needs 8" in script().said(d, rate, error, "rl", (0.1, 0.4))


@present
def test_the_format_hack_is_flagged_and_no_rising_run_is() -> None:
    assert figures()["grpo_level_alarms_400"] == ["format_only"]
    assert set(figures()["grpo_level_alarms_50"]) <= {"format_only"}


@present
def test_no_level_that_never_rose_is_said_to_have_fallen_and_the_classic_rule_cannot_judge() -> None:
    assert figures()["entropy_segments"] == 30
    assert figures()["entropy_level_alarms"] == figures()["heldout_level_alarms"] == 0
    assert figures()["entropy_ma_trend_judged"] == 0


@present
def test_the_onset_of_a_planted_bias_is_found_near_the_reference() -> None:
    assert set(figures()["onset_errors"]) == {"run_A", "run_C", "run_D"}
    assert all(abs(error) <= 15 for error in figures()["onset_errors"].values())
    for run in figures()["onsets"]:
        assert run["reference_onset"] <= run["alarm_step"] < run["severe_step"]


@present
def test_the_known_collapse_is_among_the_curves_and_every_part_has_a_forecast_or_a_reason() -> None:
    found = {curve["curve"]: curve for curve in figures()["curves"]}
    collapse = found["results pythia-2.8b pythia-6.9b-golld-rm dpo 0.01"]
    assert collapse["best_rate"] == pytest.approx(0.730, abs=1e-3)
    for curve in found.values():
        for form in ("rl", "best_of_n"):
            for share in (50, 75, 100):
                told = curve[f"{form}_{share}"]
                assert told if isinstance(told, str) else told["low"] <= told["peak"] <= told["high"]


def test_two_curves_that_part_are_hollow_and_two_that_rise_together_are_not() -> None:
    steps, rise = list(range(40)), np.linspace(0.2, 0.7, 40) + 0.02 * np.random.default_rng(0).normal(size=40)
    assert script().hollow_step(steps, rise.tolist(), [0.002] * 40, 512) in range(10, 40)
    assert script().hollow_step(steps, rise.tolist(), rise.tolist(), 512) is None
    assert script().hollow_step(steps, [0.2] * 40, [0.002] * 40, 512) is None


@present
def test_the_runs_whose_proxy_rises_for_nothing_are_named_and_the_honest_ones_are_not() -> None:
    named = set(figures()["entropy_hollow"])
    gained = {f"{run['run']}/{run['segment']}": run["proxy"][1] - run["proxy"][0] for run in figures()["entropy_runs"]}
    assert named == {run for run, gain in gained.items() if gain > 0.2} and len(named) == 10
    assert figures()["grpo_hollow"] == [], "in five of these the truth gains; in the sixth it falls, which is a loss"
    held = {run["run"]: run["proxy"][1] - run["proxy"][0] for run in figures()["heldout"]}
    assert len(figures()["heldout_hollow"]) >= 4 and all(held[run] > 0.2 for run in figures()["heldout_hollow"])
