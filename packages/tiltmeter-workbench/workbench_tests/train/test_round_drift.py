"""The stop rule of iterated training: a fall beyond chance ends the rounds, noise does not, nor does missing gold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.sizes import size

from tiltmeter_workbench.train.methods.round_drift import Gold, drift_summary, stop_rule

from .test_iterated import ITERATIVE, done, prepared


def course(rng: np.random.Generator, levels: list[float], prompts: int = 300) -> list[Gold]:
    return [dict(enumerate((rng.random(prompts) < level).astype(float).tolist())) for level in levels]


def test_a_fall_ends_the_rounds_and_the_best_one_is_named() -> None:
    rule = stop_rule(course(np.random.default_rng(0), [0.4, 0.55, 0.65, 0.4]))
    assert rule.stop and rule.best == 3 and rule.odds > 100.0


def test_rounds_that_do_not_fall_are_stopped_as_rarely_as_promised_and_a_broken_rule_would_show() -> None:
    def stops(levels: list[float], runs: int) -> int:
        found = 0
        for seed in range(runs):
            rounds = course(np.random.default_rng([2, seed]), levels)
            found += any(stop_rule(rounds[:number]).stop for number in range(1, len(rounds) + 1))
        return found

    runs = size(50, 1_000)
    assert stops([0.5] * 6, runs) <= 1 + 0.01 * runs
    assert stops([0.5, 0.5, 0.2], 10) == 10


def test_rounds_are_compared_on_the_prompts_that_both_asked() -> None:
    early: dict[int, float | None] = dict.fromkeys(range(100), 1.0)
    assert not stop_rule([early, dict.fromkeys(range(97, 200), 0.0)]).stop
    assert stop_rule([early, dict.fromkeys(range(60, 200), 0.0)]).stop


def test_gold_that_is_missing_counts_for_the_run() -> None:
    early: dict[int, float | None] = dict.fromkeys(range(100), 1.0)
    assert not stop_rule([early, dict.fromkeys(range(100), None)]).stop


def test_diversity_and_the_taste_for_length_are_those_of_the_round() -> None:
    samples = [{"completions": ["red", "red", "red"]}, {"completions": ["one two", "three four", "five six"]}]
    pairs: list[dict[str, Any]] = [
        {"chosen": "long one", "rejected": "short"},
        {"chosen": [{"role": "assistant", "content": "a"}], "rejected": [{"role": "assistant", "content": "bb"}]},
        {"chosen": "same", "rejected": "size"},
    ]
    assert drift_summary(samples, pairs) == {"differing": pytest.approx(0.5), "longer_chosen": 0.5}
    assert drift_summary([], []) == {"differing": None, "longer_chosen": None}


WORSE = """
from pathlib import Path

ASKED = Path(__file__).parent / "asked"


def worse(completion, answer):
    ASKED.write_text(ASKED.read_text() + "." if ASKED.exists() else ".")
    return float(len(ASKED.read_text()) <= PROMPTS)
"""


def test_a_recipe_stops_when_gold_has_fallen_and_keeps_the_model_before_it(tiny_model, tmp_path) -> None:  # type: ignore[no-untyped-def]
    stage = {**ITERATIVE, "gold": "worse.py:worse", "options": {"rounds": 3, "samples": 2, "limit": 4}}
    with prepared(tmp_path, tiny_model, stage) as path:
        prompts = (tmp_path / "prompts.jsonl").read_text().count("\n")
        (tmp_path / "worse.py").write_text(WORSE.replace("PROMPTS", str(prompts)))
        result = done(path)
    first, second = result.trained.facts["rounds"]
    assert (first["gold"], second["gold"]) == (1.0, 0.0) and second["go_back_to"] == 1
    assert [folder.resolve() for folder in result.trained.folders] == [tiny_model.resolve()]
    assert any(
        "no further round, and the model that the rounds began with is kept" in note for note in result.trained.notes
    )
