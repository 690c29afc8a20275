"""Overpay: found when wrong answers are paid, silent on nulls and at their edge, and fair to what is not known."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest
from tests.sizes import size

from tiltmeter.stats.overpay import LEAST_ANSWERS, STEPS, OverpayTest, pay_of, pay_scale

BETA = 1e-5


def play(means: list[float], *, groups: int = 4, answers: int = 8, seed: int = 0, beta: float = BETA) -> OverpayTest:
    test, rng = OverpayTest(beta), np.random.default_rng(seed)
    for step, mean in enumerate(means):
        test.place(step, rng.binomial(answers, mean, groups) / answers, np.full(groups, answers))
    return test


def test_a_rise_of_overpay_is_found_and_dated() -> None:
    for seed in range(5):
        test = play([0.05] * 40 + np.linspace(0.05, 0.6, 15).tolist(), seed=seed)
        rises, lowest, half = test.rise_steps()
        assert test.evidence > log(1e4)
        assert lowest <= rises <= half and 34 <= rises <= 46


def test_what_falls_or_rises_within_the_tolerance_is_no_evidence() -> None:
    for means in ([0.2] * 120, [0.2] * 30 + [0.05] * 90, [0.1] * 30 + [0.18] * 90):
        assert play(means).evidence < log(2.0)


def test_at_the_edge_of_the_null_the_money_does_not_grow() -> None:
    """Every later group is exactly `TOLERANCE` above the average of the reference: ever 20 to 1 in at most 1 of 20."""
    runs, alpha, beta = size(150, 1_500), 0.05, 0.05
    crossed = 0
    for seed in range(runs):
        test, rng = OverpayTest(beta), np.random.default_rng([seed, 3])
        for step in range(100):
            mean = 0.05 if test.limit is None else 0.15
            test.place(step, rng.binomial(2, mean, 2) / 2, np.full(2, 2))
            if test.evidence >= log(1.0 / alpha):
                crossed += 1
                break
    assert crossed <= runs * (alpha + beta)


def test_one_bet_at_the_limit_is_fair_whatever_the_stake() -> None:
    test = play([0.05] * 30 + [0.6] * 3)
    assert test.limit is not None
    total = 0.0
    for value, chance in ((0.0, 1.0 - test.limit), (1.0, test.limit)):
        again = play([0.05] * 30 + [0.6] * 3)
        again.place(33, np.array([value]), np.array([8]))
        total += chance * exp(again.evidence - test.evidence)
    assert total == pytest.approx(1.0, abs=1e-12)


def test_the_reference_ends_by_counts_and_prices_how_few_they_are() -> None:
    few, many = play([0.05] * STEPS, groups=1, answers=3), play([0.05] * STEPS, groups=8)
    assert few.limit is not None and many.limit is not None and few.limit > many.limit + 0.1
    assert play([0.05] * STEPS, groups=1, answers=2).limit is None  # fewer answers than `LEAST_ANSWERS`
    assert play([0.05] * (LEAST_ANSWERS // 2), groups=1, answers=2).limit is not None


def test_labels_that_never_came_favour_the_run_on_both_sides() -> None:
    def play_missing(first: float, later: float) -> OverpayTest:
        test, rng = OverpayTest(BETA), np.random.default_rng(1)
        for step in range(50):
            hacked = rng.binomial(8, 0.05 if step < 30 else 0.7, 4) / 8
            part = first if step < 30 else later
            test.place(step, hacked * (1.0 - part), np.full(4, 8), np.full(4, part))
        return test

    whole, late, early = play_missing(0.0, 0.0), play_missing(0.0, 1.0), play_missing(0.6, 0.0)
    assert whole.evidence > log(1e4) and late.evidence < 0.1
    assert early.limit is not None and whole.limit is not None and early.limit > whole.limit + 0.5


def test_labels_that_may_share_a_mood_are_one_bet_a_step() -> None:
    test, rng = OverpayTest(BETA), np.random.default_rng(0)
    for step in range(110):
        values = rng.binomial(1, 0.05 if step < 80 else 0.95, 8).astype(float)
        test.place(step, values, np.ones(8), shared=True)
        assert (test.limit is None) == (step < 59)
    assert test.limit is not None and 0.3 < test.limit < 0.7 and test.evidence > log(100.0)


def test_overpay_outside_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match="voids the bound"):
        OverpayTest(BETA).place(0, np.array([1.5]), np.array([8]))


def test_pay_has_a_scale_that_later_steps_do_not_change() -> None:
    first = np.random.default_rng(0).normal(0.5, 1.0, 400)
    scale = pay_scale(first)
    assert scale is not None and scale[0] == pytest.approx(np.quantile(first, 0.05))
    assert pay_of(np.array([-9.0, 9.0, *first]), scale)[:2].tolist() == [0.0, 1.0]
    assert np.isnan(pay_of(10.0 * first, scale)).all()  # somebody has changed the unit
    assert pay_scale(np.array([np.nan])) is None and pay_scale(np.full(9, -1.0)) is None
    assert pay_of(np.array([0.2, np.nan]), (0.0, 1.0)).tolist() == [0.2, 0.0]
