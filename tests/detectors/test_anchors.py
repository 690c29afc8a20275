"""Anchors tell a loss of gold from harder prompts where every training prompt is new; and their bound holds."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
from tests.sizes import size

from tiltmeter.data.records import Alarm, Reading
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.stats.evaluation_drop import EvaluationDropTest, Floats

ANCHORS, ANSWERS, EVERY = 32, 2, 4
GROUPS, ROLLOUTS = 16, 8
NAME = "eval.anchors_12345678"


def chances(level: float, difficulty: Floats) -> Floats:
    """The chance of a right answer to each prompt, whose mean is this level."""
    low, high = -20.0, 20.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.mean(1 / (1 + np.exp(difficulty - middle))) < level else (low, middle)
    return 1 / (1 + np.exp(difficulty - middle))


def run_of(training: Floats, anchors: Floats, seed: int) -> list[Reading]:
    """New prompts at each step with this level of gold, and every few steps a round of anchors with that one."""
    rng, readings = np.random.default_rng([41, seed]), []
    difficulty = 2.0 * rng.normal(size=ANCHORS)
    for step, (level, anchored) in enumerate(zip(training, anchors, strict=True)):
        gold = rng.binomial(ROLLOUTS, level, GROUPS) / ROLLOUTS
        keys = tuple(range(GROUPS * step, GROUPS * (step + 1)))
        mean, count = float(gold.mean()), GROUPS * ROLLOUTS
        readings.append(Reading(0, step, "gold.prompts", mean, count, None, tuple(gold.tolist()), keys=keys))
        if step % EVERY == 0:
            right = rng.binomial(ANSWERS, chances(float(anchored), difficulty))
            readings.append(Reading(0, step, NAME, float(right.mean()) / ANSWERS, ANCHORS * ANSWERS))
    return readings


def alarms_of(readings: list[Reading]) -> list[Alarm]:
    detector = GoldLossTest()
    return [alarm for reading in readings if (alarm := detector.update(reading)) is not None]


FALL = np.interp(np.arange(220), [0, 100, 130], [0.5, 0.7, 0.4])  # half of it is lost at step 115


@pytest.mark.parametrize("seed", range(size(3, 12)))
def test_a_harder_curriculum_of_new_prompts_raises_no_alarm_while_anchors_stand(seed: int) -> None:
    assert alarms_of(run_of(FALL, np.full(220, 0.6), seed)) == []


@pytest.mark.parametrize("seed", range(size(3, 12)))
def test_a_fall_is_found_by_anchors_although_every_training_prompt_is_new(seed: int) -> None:
    first = alarms_of(run_of(FALL, FALL, seed))[0]
    assert (first.name, first.tier) == (NAME, "alarm")
    assert 100 < first.step <= 155, "within forty steps of its half"
    assert first.onset_low <= 130


def test_a_fall_is_found_where_an_easier_curriculum_hides_it_from_training() -> None:
    assert alarms_of(run_of(np.linspace(0.5, 0.9, 220), FALL, 1))[0].name == NAME


ALPHA, TOLERANCE = 0.1, 0.01


def edge_round(rng: np.random.Generator, number: int, difficulty: Floats) -> tuple[int, int]:
    """Right and wrong answers of a round at the edge of the null: the level stands, then lies a tolerance lower."""
    p = chances(0.6 - (TOLERANCE if number >= 8 else 0.0), difficulty)
    right = int(rng.binomial(ANSWERS, p).sum())
    return right, ANCHORS * ANSWERS - right


@pytest.mark.parametrize("missing", ["none", "wrong first", "right later"])
def test_at_the_edge_of_the_null_no_more_runs_alarm_than_alpha(missing: str) -> None:
    """Also where gold fails on wrong answers in the first rounds, or on right ones in the later, to make a fall."""
    runs, crossed, naive = size(60, 2000), 0, 0
    for seed in range(runs):
        rng = np.random.default_rng([42, seed])
        difficulty = 2.0 * rng.normal(size=ANCHORS)
        test, left_out = EvaluationDropTest(TOLERANCE), EvaluationDropTest(TOLERANCE)
        highest = careless = -np.inf
        for number in range(24):
            right, wrong = edge_round(rng, number, difficulty)
            lost_wrong = 3 * wrong // 4 if missing == "wrong first" and number < 8 else 0
            lost_right = 3 * right // 4 if missing == "right later" and number >= 8 else 0
            n = right + wrong - lost_wrong - lost_right
            value = (right - lost_right) / n
            test.place(number, value, right + wrong, (lost_wrong + lost_right) / (right + wrong))
            left_out.place(number, value, n)
            highest, careless = max(highest, test.evidence), max(careless, left_out.evidence)
        crossed += highest >= np.log(1 / ALPHA)
        naive += careless >= np.log(1 / ALPHA)
    assert crossed / runs <= ALPHA + 2 * sqrt(ALPHA / runs)
    if missing != "none":
        assert naive > 0.5 * runs, "the control: answers that are left out by what they are make a fall"


def test_answers_without_gold_never_add_evidence() -> None:
    rng = np.random.default_rng(7)
    for _ in range(30):
        whole, part = EvaluationDropTest(), EvaluationDropTest()
        for step in range(12):
            answers = rng.random(40) < (0.8 if step < 6 else 0.5)
            has_gold = rng.random(40) < np.where(answers, rng.random(), rng.random())
            has_gold[0] = True
            whole.place(step, float(answers.mean()), 40)
            part.place(step, float(answers[has_gold].mean()), 40, float(1 - has_gold.mean()))
            assert part.evidence <= whole.evidence + 1e-9
        values, counts = part.levels()
        assert len(values) == 12 and (counts <= 40 + 1e-9).all() and ((values >= 0) & (values <= 1)).all()


def test_the_alarm_counts_answers_without_gold_in_favour_of_the_run() -> None:
    """Gold that fails on half of the right answers from step 60 on is no fall; the same readings without that are."""

    def readings(unknown: int) -> list[Reading]:
        rng, made = np.random.default_rng(9), []
        for step in range(0, 200, EVERY):
            right = int(rng.binomial(64, 0.7))
            lost = right // 2 if step >= 60 else 0
            value, n = (right - lost) / (64 - lost), 64 - lost
            keys = (lost * unknown,) if lost * unknown else ()
            made.append(Reading(0, step, NAME, value, n, keys=keys))
        return made

    assert alarms_of(readings(1)) == []
    assert alarms_of(readings(0)) != []
