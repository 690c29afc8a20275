"""Diversity, length and hedging: planted losses are found, each alone, and equal models are left alone."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tiltmeter_workbench.compare.measures.measure import Measure
from tiltmeter_workbench.compare.measures.texture import measure
from tiltmeter_workbench.compare.suite import Suite, SuitePrompt, read_suite
from workbench_tests.compare.scripted import Says, material, unkept

WORDS = [f"{a}{b}{c}" for a in "bdklmnprst" for b in "aeiou" for c in ("", "n", "r", "st")]
HEDGES = ("perhaps", "maybe", "possibly", "probably")


def essay(sentences: int, hedge: bool = False) -> Says:
    """Random sentences of ten words; a hedge begins each, if it must."""

    def says(prompt: str, rng: random.Random) -> str:
        told = []
        for _ in range(rng.randint(sentences - 1, sentences + 1)):
            words = rng.choices(WORDS, k=10)
            told.append(" ".join([rng.choice(HEDGES), *words[1:]] if hedge else words).capitalize() + ".")
        return " ".join(told)

    return says


def collapsed(prompt: str, rng: random.Random) -> str:
    return essay(4)(prompt, random.Random(prompt))


def compared(folder: Path, base: Says, checkpoint: Says, **settings: int) -> dict[str, Measure]:
    found = measure(material(folder, base, checkpoint, **settings), most=24, alpha=0.01)
    return {one.name: one for one in found}


def test_a_verbose_checkpoint_is_named_and_nothing_else_is(tmp_path: Path) -> None:
    found = compared(tmp_path, essay(4), essay(8))
    assert {one.name for one in found.values() if one.is_cost} == {"length"}
    told = found["length"]
    assert told.cost == "verbosity"
    assert told.checkpoint == pytest.approx(2.0, abs=0.25)
    assert told.difference == pytest.approx(told.checkpoint - 1.0)
    assert told.low <= told.difference <= told.high
    assert len(told.examples[0].texts["checkpoint"]) > len(told.examples[0].texts["base"])


def test_a_checkpoint_that_says_one_thing_is_named_and_nothing_else_is(tmp_path: Path) -> None:
    found = compared(tmp_path, essay(4), collapsed)
    assert {one.name for one in found.values() if one.is_cost} == {"diversity"}
    told = found["diversity"]
    assert (told.cost, told.checkpoint, told.high < 0.0) == ("diversity_lost", 0.0, True)
    classes = next(row for row in told.rows if "different answers" in row["what"])
    assert classes["checkpoint"] == 1.0 < classes["base"]


def test_a_hedging_checkpoint_is_named_and_nothing_else_is(tmp_path: Path) -> None:
    found = compared(tmp_path, essay(4), essay(4, hedge=True))
    assert {one.name for one in found.values() if one.is_cost} == {"hedging"}
    assert found["hedging"].checkpoint == pytest.approx(1.0, abs=0.01) and found["hedging"].base == 0.0


def test_shorter_answers_are_shown_and_not_praised(tmp_path: Path) -> None:
    assert compared(tmp_path, essay(8), essay(4))["length"].state == "shown"


def test_two_draws_of_one_model_are_alike(tmp_path: Path) -> None:
    found = measure(material(tmp_path, essay(4), essay(4)), alpha=0.01)
    assert {one.name: one.state for one in found} == {"diversity": "same", "length": "same", "hedging": "same"}
    assert all(one.n == len(read_suite("general").prompts) for one in found)


def test_lengths_at_the_limit_are_not_called_the_same(tmp_path: Path) -> None:
    told = compared(tmp_path, essay(8), essay(16), limit=20)["length"]
    assert told.state == "cannot tell"
    assert "The limit cut off 100.0 %" in told.sentence


def test_one_answer_a_prompt_has_no_diversity(tmp_path: Path) -> None:
    told = compared(tmp_path, essay(4), essay(4), samples=1)["diversity"]
    assert (told.n, told.state) == (0, "cannot tell")
    assert "two answers" in told.sentence


def test_equal_models_are_hardly_ever_called_worse() -> None:
    suite = Suite("some", tuple(SuitePrompt(str(n), f"prompt {n}") for n in range(12)))
    runs, alpha, called = 200, 0.15, 0
    for seed in range(runs):
        found = measure(unkept(essay(3), essay(3), seed, samples=2), suite, alpha=alpha)
        # What decides, without the margins: how often an interval on the bad side leaves out 0.
        called += found[0].high < 0.0 or found[1].low > 0.0 or found[2].low > 0.0
        assert not any(one.is_cost for one in found)
    assert called / runs <= alpha / 2 + 3 * (alpha / 2 / runs) ** 0.5
