"""Bets on traps: fair at the declared chance, quick where traps are paid, and late hacks meet new money."""

from __future__ import annotations

from itertools import product
from math import exp, log

import numpy as np
import pytest

from tiltmeter.data.records import Reading
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.detectors.level_stakes import TRAPS
from tiltmeter.stats.trap_payments import CHANCE, SPREAD, TrapPaymentTest, instalment

Rng = np.random.Generator


def mean_wealth(chance: float, worth: float, steps: tuple[int, ...]) -> float:
    """E[wealth] after the last step, exactly: every outcome of every trap, by its chance."""
    total = 0.0
    for paid in product((0, 1), repeat=sum(steps)):
        test, start = TrapPaymentTest(), 0
        for step, count in enumerate(steps):
            test.place(step, [worth * x for x in paid[start : start + count]])
            start += count
        total += chance ** sum(paid) * (1.0 - chance) ** (len(paid) - sum(paid)) * exp(test.evidence)
    return total


@pytest.mark.parametrize(("chance", "worth"), [(CHANCE, 1.0), (0.004, 1.0), (0.05, CHANCE / 0.05), (CHANCE, 0.5)])
def test_the_mean_wealth_is_at_most_one_while_honest_work_is_paid_as_rarely_as_was_said(
    chance: float, worth: float
) -> None:
    assert mean_wealth(chance, worth, (1, 3, 2, 1)) <= 1.0 + 1e-12


def test_at_the_declared_chance_no_money_is_lost_on_average_and_above_it_some_is_made() -> None:
    assert mean_wealth(CHANCE, 1.0, (2, 2, 2)) == pytest.approx(1.0)
    assert mean_wealth(2 * CHANCE, 1.0, (2, 2, 2)) > 1.0


def test_a_larger_chance_is_the_same_bet_in_other_units() -> None:
    """A trap that honest work is paid for with chance p counts CHANCE / p: at p the wealth is a martingale again."""
    assert mean_wealth(0.2, CHANCE / 0.2, (1, 2, 2)) == pytest.approx(1.0)


def test_the_parts_of_the_money_sum_to_one() -> None:
    entered = sum(instalment(number) for number in range(1, 10_001))
    assert entered + SPREAD / (10_000 + SPREAD) == pytest.approx(1.0)


def steps_to_alarm(rate: float, honest: int, rng: Rng, traps: int = 2) -> int:
    detector = GoldLossTest()
    for step in range(honest + 400):
        chance = CHANCE if step < honest else rate
        paid = (rng.random(traps) < chance).astype(float)
        reading = Reading(0, step, TRAPS, float(paid.mean()), traps, None, tuple(paid.tolist()))
        if detector.update(reading):
            return step - honest
    return 400


def test_a_hack_is_found_soon_however_late_it_comes() -> None:
    rng = np.random.default_rng(0)
    for honest in (0, 100, 600):
        delays = [steps_to_alarm(0.5, honest, rng) for _ in range(20)]
        assert np.median(delays) <= 8


def test_null_runs_hardly_ever_alarm() -> None:
    rng = np.random.default_rng(1)
    assert sum(steps_to_alarm(CHANCE, 0, rng, traps=5) < 400 for _ in range(60)) <= 2


def test_the_alarm_says_by_what_it_judges_and_since_when() -> None:
    detector, rng = GoldLossTest(), np.random.default_rng(2)
    alarm = None
    for step in range(200):
        paid = (rng.random(3) < (0.0 if step < 80 else 0.4)).astype(float)
        alarm = alarm or detector.update(Reading(0, step, TRAPS, float(paid.mean()), 3, None, tuple(paid.tolist())))
    assert alarm is not None and alarm.name == TRAPS
    assert "judged by traps" in alarm.summary and "honest work cannot earn" in alarm.summary
    assert 75 <= alarm.onset_low <= alarm.onset <= alarm.onset_high <= alarm.step < 100
    (line,) = [line for line in detector.assumptions() if line.about == "traps"]
    assert "1%" in line.text and line.holds is None


def test_traps_take_their_stake_from_the_one_wealth_before_a_payment_counts() -> None:
    detector = GoldLossTest()
    before = detector.evidence
    detector.update(Reading(0, 0, TRAPS, 0.0, 1, None, (0.0,)))
    assert before == 0.0 and detector.evidence < 0.0
    detector = GoldLossTest()
    for step in range(3):
        detector.update(Reading(0, step, TRAPS, 1.0, 1, None, (1.0,)))
    assert detector.evidence > log(125.0), "three traps of three that are paid are enough"


def test_a_payment_that_is_no_number_is_refused() -> None:
    for payment in (float("nan"), -0.1, float("inf")):
        with pytest.raises(ValueError, match="payment"):
            TrapPaymentTest().place(0, [payment])
