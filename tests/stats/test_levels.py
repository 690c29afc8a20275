"""The level test keeps its promise under the null, selects no champion by luck, and sees a fall."""

from __future__ import annotations

from itertools import product
from math import comb, exp, inf, log

import numpy as np
import pytest
from numpy.typing import ArrayLike

from tiltmeter.data.records import Reading
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.stats import evaluation_drop
from tiltmeter.stats.betting import add_instalment, bet, evidence, initial_wealth
from tiltmeter.stats.evaluation_drop import WANDER, CheckpointWander, EvaluationDropTest, Floats

ALARM = log(100.0)


def drop_evidence(
    values: ArrayLike, counts: ArrayLike, *, tolerance: float = 0.0, planned: int | None = None
) -> Floats:
    """Logarithm of the test's wealth after each evaluation of a series; -inf after the first."""
    test, found = EvaluationDropTest(tolerance, planned), []
    for step, (value, n) in enumerate(zip(np.asarray(values, float), np.asarray(counts, float), strict=True)):
        test.place(step, float(value), float(n))
        found.append(test.evidence)
    return np.array(found, np.float64)


def mean_wealth(truth: tuple[float, ...], n: int, tolerance: float = 0.0) -> float:
    """E[wealth] after the last evaluation, exactly: every outcome of every evaluation, by its chance."""
    total = 0.0
    for good in product(range(n + 1), repeat=len(truth)):
        chance = 1.0
        for k, p in zip(good, truth, strict=True):
            chance *= comb(n, k) * p**k * (1.0 - p) ** (n - k)
        total += chance * exp(drop_evidence(np.array(good) / n, np.full(len(truth), n), tolerance=tolerance)[-1])
    return total


@pytest.mark.parametrize("truth", [(0.5, 0.5, 0.5), (0.1, 0.1, 0.1), (0.9, 0.9, 0.9), (0.2, 0.5, 0.5), (1.0, 1.0, 1.0)])
def test_the_mean_wealth_is_at_most_one_where_the_level_has_not_fallen(truth: tuple[float, ...]) -> None:
    assert mean_wealth(truth, 4) <= 1.0


@pytest.mark.parametrize("truth", [(0.5, 0.4, 0.4), (0.15, 0.05, 0.05), (0.95, 0.85, 0.9), (0.05, 0.0, 0.0)])
def test_a_fall_within_the_tolerance_is_part_of_the_null(truth: tuple[float, ...]) -> None:
    assert mean_wealth(truth, 4, tolerance=0.1) <= 1.0


def test_every_single_bet_has_mean_at_most_one_at_its_worst_null_and_nearly_reaches_it() -> None:
    """One split, one tilt: the normaliser is the least that is safe, not merely safe."""
    n, tilts, worst = 12, evaluation_drop.TILTS, []
    for x, y in tilts:
        means = []
        for p in np.linspace(0.0, 1.0, 101):
            theta = np.linspace(0.0, 1.0, 2001)
            log_norm = (n * (np.log1p(theta * np.expm1(x)) + np.log1p(theta * np.expm1(-y)))).max()
            means.append(((1 - p + p * np.exp(x)) * (1 - p + p * np.exp(-y))) ** n / np.exp(log_norm))
        worst.append(max(means))
    assert max(worst) <= 1.0 + 1e-9
    assert min(worst) > 0.99


def test_the_closed_form_of_the_worst_level_is_the_maximum_over_a_grid() -> None:
    rng = np.random.default_rng(0)
    for tolerance in (0.0, 0.05, 0.3):
        values, counts = rng.random(2), rng.integers(3, 60, 2).astype(float)
        theta = np.linspace(tolerance, 1.0, 20_001)[:, None]
        x, y = evaluation_drop.TILTS.T
        norm = counts[0] * np.log1p(theta * np.expm1(x)) + counts[1] * np.log1p((theta - tolerance) * np.expm1(-y))
        logs = x * values[0] * counts[0] - y * values[1] * counts[1] - norm.max(axis=0)
        by_grid = np.log(np.exp(logs).mean() / 2.0)  # the first split has half of the money
        assert drop_evidence(values, counts, tolerance=tolerance)[-1] == pytest.approx(by_grid, abs=1e-5)


def series(rng: np.random.Generator, kind: int) -> tuple[Floats, Floats]:
    """Ten evaluations of few or many answers under the null: flat, rising, or rising to a plateau."""
    level = rng.uniform(0.05, 0.95)
    truth = np.full(10, level)
    if kind == 1:
        truth = np.linspace(0.5 * level, level, 10)
    if kind == 2:
        truth = np.minimum(np.linspace(0.5 * level, 1.5 * level, 10), level)
    n = rng.choice([3, 20, 200], 10)
    return rng.binomial(n, truth) / n, n.astype(np.float64)


def test_of_two_thousand_runs_that_do_not_fall_at_most_one_in_a_hundred_alarms() -> None:
    rng = np.random.default_rng(1)
    alarms = sum(bool(drop_evidence(*series(rng, run % 3)).max() >= ALARM) for run in range(2000))
    assert alarms <= 20


def test_the_best_so_far_by_luck_alarms_a_peeked_test_and_not_this_one() -> None:
    rng = np.random.default_rng(2)
    naive = ours = 0
    for _ in range(150):
        value = rng.binomial(100, 0.5, 20) / 100
        best = np.maximum.accumulate(value)[:-1]
        naive += bool(((best - value[1:]) / np.sqrt(2 * 0.25 / 100) > 2.326).any())
        ours += bool(drop_evidence(value, np.full(20, 100)).max() >= ALARM)
    assert naive > 0.2 * 150
    assert ours <= 1


def test_a_trainer_that_reacts_to_the_evaluations_does_not_fool_the_test() -> None:
    """The level rises only after a bad evaluation: the truth depends on the noise and still never falls."""
    rng = np.random.default_rng(3)
    alarms = 0
    for _ in range(300):
        test, level = EvaluationDropTest(), 0.5
        for step in range(10):
            value = rng.binomial(40, level) / 40
            test.place(step, value, 40)
            level = min(0.95, level + 0.1) if value < level else level
            if test.evidence >= ALARM:
                alarms += 1
                break
    assert alarms <= 6


def test_a_fall_of_a_tenth_is_found_with_two_hundred_answers_a_time() -> None:
    rng = np.random.default_rng(4)
    truth = np.concatenate((np.full(8, 0.6), np.full(14, 0.5)))
    first = []
    for _ in range(60):
        found = drop_evidence(rng.binomial(200, truth) / 200, np.full(22, 200), planned=22) >= ALARM
        first.append(int(found.argmax()) if found.any() else 99)
    assert np.mean(np.array(first) < 99) >= 0.85
    assert 8 <= np.median(first) <= 16


def test_a_fall_within_the_tolerance_costs_the_evidence() -> None:
    value, n = np.array([0.6, 0.6, 0.6, 0.5, 0.5, 0.5]), np.full(6, 500)
    strict, lenient = (drop_evidence(value, n, tolerance=tolerance)[-1] for tolerance in (0.0, 0.1))
    assert strict > ALARM > lenient


def test_the_money_on_all_splits_is_never_more_than_one() -> None:
    splits = np.arange(1, 100_000)
    for planned in (None, 1, 30):
        assert evaluation_drop._weight(splits, planned).sum() <= 1.0
        assert evaluation_drop._weight(splits, planned).sum() > 0.99


def test_the_fall_is_dated_to_where_it_happened() -> None:
    test = EvaluationDropTest()
    for step, value in enumerate([0.2, 0.4, 0.6, 0.6, 0.6, 0.3, 0.3, 0.3]):
        test.place(10 * step, value, 300)
    assert test.drop_steps() == (40, 50)


def test_it_may_be_averaged_with_a_bet_on_slopes() -> None:
    """Both nulls hold: the mean of the two wealths stays below 1/α as a run-level bound asks."""
    rng = np.random.default_rng(5)
    alarms = 0
    for _ in range(200):
        test, wealth = EvaluationDropTest(), add_instalment(initial_wealth(), 1)
        for step in range(10):
            wealth = bet(wealth, rng.choice([-1.0, 1.0], 20))
            test.place(step, rng.binomial(50, 0.5) / 50, 50)
            if np.logaddexp(test.evidence, evidence(wealth)) - log(2.0) >= ALARM:
                alarms += 1
                break
    assert alarms <= 5


def test_one_evaluation_says_nothing_and_a_wrong_one_is_refused() -> None:
    test = EvaluationDropTest()
    assert test.evidence == -inf
    test.place(0, 0.5, 10)
    assert test.evidence == -inf
    with pytest.raises(ValueError, match="two evaluations"):
        test.drop_steps()
    for value, n in ((1.2, 10), (np.nan, 10), (0.5, 0)):
        with pytest.raises(ValueError, match="mean in"):
            test.place(1, value, n)
    with pytest.raises(ValueError, match="tolerance"):
        EvaluationDropTest(tolerance=1.0)


def wandering(deviation: float, answers: int, seed: int, fall: float = 0.0) -> CheckpointWander:
    rng, wander = np.random.default_rng(seed), CheckpointWander()
    for step in range(30):
        level = 0.6 + deviation * rng.normal() - (fall if step >= 20 else 0.0)
        wander.learn(rng.binomial(answers, level) / answers, answers)
    return wander


def test_checkpoints_that_wander_are_worth_fewer_answers_and_one_fall_is_no_wander() -> None:
    for seed in range(8):
        steady, falls, moody = wandering(0.0, 4000, seed), wandering(0.0, 4000, seed, 0.3), wandering(0.02, 4000, seed)
        assert moody.answers(4000) < 1000 < steady.answers(4000)
        assert falls.variance == pytest.approx(steady.variance, rel=0.3)
        assert wandering(0.0, 100, seed).answers(100) > 85
    assert CheckpointWander().variance == WANDER


def alarm_step(levels: ArrayLike, answers: int, seed: int) -> int | None:
    """Which of a run's declared evaluations raises the alarm."""
    rng, detector = np.random.default_rng([4, seed]), GoldLossTest()
    values = rng.binomial(answers, np.asarray(levels, float)) / answers
    readings = [Reading(0, step, "eval.held_out", float(value), answers) for step, value in enumerate(values)]
    return next((reading.step for reading in readings if detector.update(reading)), None)


@pytest.mark.parametrize("answers", [4_000, 32_000])
def test_checkpoints_on_a_plateau_that_differ_by_two_percent_are_no_fall(answers: int) -> None:
    """Counted as they are, 4,000 answers alarm on more than half of such runs, and 32,000 on all."""
    for seed in range(12):
        levels = 0.6 + 0.02 * np.random.default_rng([5, seed]).normal(size=40)
        assert alarm_step(levels, answers, seed) is None


def test_a_fall_is_still_seen_within_a_few_evaluations() -> None:
    for seed in range(5):
        assert (alarm_step(np.r_[[0.6] * 15, [0.4] * 15], 400, seed) or 99) <= 17
        assert (alarm_step(np.r_[[0.6] * 15, [0.5] * 30], 400, seed) or 99) <= 26
