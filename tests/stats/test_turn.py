"""When gold turned down: the interval has the truth, the checkpoint is good, and what does not fall has no turn."""

from __future__ import annotations

import time

import numpy as np
import pytest
from tests.sizes import size

from tiltmeter.stats.turn import best_checkpoint, fit_turn

STEPS = np.arange(400)
SHAPES = {
    "rise and fall": (([0, 60, 130], [0.5, 0.7, 0.3]), 60, 110),
    "cliff": (([0, 60, 68], [0.5, 0.7, 0.3]), 60, 75),
    "top": (([0, 40, 120, 200], [0.4, 0.65, 0.65, 0.3]), 120, 170),
    "recovery": (([0, 60, 130, 180, 300], [0.5, 0.7, 0.3, 0.3, 0.55]), 60, 110),
}


def drawn(rng: np.random.Generator, gold: np.ndarray, labels: int) -> np.ndarray:
    return rng.binomial(labels, gold) / labels


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("labels", [6, 48])
def test_interval_has_the_turn_and_the_top_is_high(shape: str, labels: int) -> None:
    (places, levels), turn, alarm = SHAPES[shape]
    gold, rng, runs = np.interp(STEPS, places, levels), np.random.default_rng(labels), size(8, 100)
    right, lost, widths = 0, [], []
    for _ in range(runs):
        fit = fit_turn(STEPS, drawn(rng, gold, labels), np.full(len(STEPS), labels), until=alarm)
        assert fit is not None and fit.low <= fit.step <= fit.high <= alarm
        right += fit.low - 2 <= turn <= fit.high + 2
        lost.append(gold.max() - gold[fit.top])
        widths.append(fit.high - fit.low)
    assert right >= 0.75 * runs
    assert np.median(lost) <= 0.05 and np.median(widths) < 0.6 * alarm  # and not all steps there are


def test_labels_of_the_past_narrow_the_interval() -> None:
    gold, rng = np.interp(STEPS[:111], [0, 60, 130], [0.5, 0.7, 0.3]), np.random.default_rng(3)
    widths = []
    for labels in (4, 40):
        fits = [fit_turn(STEPS[:111], drawn(rng, gold, labels), np.full(111, labels), until=110) for _ in range(8)]
        widths.append(np.mean([fit.high - fit.low for fit in fits if fit is not None]))
    assert widths[1] < 0.7 * widths[0]


def test_what_does_not_fall_has_no_turn() -> None:
    rng = np.random.default_rng(4)
    none = 0
    for _ in range(runs := size(12, 100)):
        for gold in (np.full(150, 0.6), np.linspace(0.4, 0.7, 150)):
            none += fit_turn(STEPS[:150], drawn(rng, gold, 16), np.full(150, 16)) is None
    assert none >= 0.9 * 2 * runs
    assert fit_turn(STEPS[:100], np.linspace(0.2, 0.7, 100), np.full(100, 16), until=90) is None


def test_too_few_labels_or_steps_and_missing_values_are_no_data() -> None:
    gold = np.interp(STEPS[:100], [0, 40, 80], [0.5, 0.7, 0.3])
    assert fit_turn(STEPS[:100], gold, np.zeros(100)) is None
    assert fit_turn(STEPS[:5], gold[:5], np.full(5, 100)) is None
    assert fit_turn([], [], []) is None
    whole = fit_turn(STEPS[:100], gold, np.full(100, 9))
    with_gaps = fit_turn(
        np.concatenate([STEPS[:100], [30]])[::-1], np.concatenate([gold, [np.nan]])[::-1], np.full(101, 9)
    )
    assert whole is not None and with_gaps is not None and whole.step == with_gaps.step


def test_labels_from_long_after_the_alarm_are_left_out() -> None:
    gold = np.interp(STEPS, [0, 60, 130, 200, 260, 320], [0.5, 0.7, 0.3, 0.9, 0.9, 0.1])
    short = fit_turn(STEPS[:161], gold[:161], np.full(161, 32), until=110)
    whole = fit_turn(STEPS, gold, np.full(400, 32), until=110)
    assert short is not None and whole is not None and (short.step, short.low, short.high) == whole[:3]


def test_weights_are_a_distribution_around_the_step() -> None:
    gold = drawn(np.random.default_rng(5), np.interp(STEPS, [0, 200, 300], [0.5, 0.7, 0.3]), 16)
    fit = fit_turn(STEPS, gold, np.full(400, 16))
    assert fit is not None and fit.weights.sum() == pytest.approx(1.0)
    inside = (fit.curve.steps >= fit.low) & (fit.curve.steps <= fit.high)
    assert 0.9 <= fit.weights[inside].sum() < 1.0
    assert (fit.density >= 0.0).all() and (np.diff(fit.curve.steps) > 0).all()
    assert (fit.curve.low <= fit.curve.level).all() and (fit.curve.level <= fit.curve.high).all()


def test_a_long_run_is_seen_finely_around_its_turn() -> None:
    steps = np.arange(6000)
    gold = drawn(np.random.default_rng(6), np.interp(steps, [0, 3000, 3020], [0.5, 0.7, 0.2]), 16)
    fit = fit_turn(steps, gold, np.full(6000, 16))
    assert fit is not None and fit.low <= 3000 <= fit.high and fit.high - fit.low < 60


def test_a_fit_takes_milliseconds() -> None:
    gold = drawn(np.random.default_rng(7), np.interp(np.arange(500), [0, 200, 300], [0.5, 0.7, 0.3]), 16)
    times = []
    for _ in range(5):
        began = time.process_time()
        fit_turn(np.arange(500), gold, np.full(500, 16))
        times.append(time.process_time() - began)
    assert min(times) < 0.1


def test_the_checkpoint_is_the_highest_of_those_before_the_turn() -> None:
    gold = np.interp(STEPS[:131], [0, 60, 130], [0.5, 0.7, 0.3])
    fit = fit_turn(STEPS[:131], gold, np.full(131, 64), until=120)
    assert fit is not None
    assert best_checkpoint(fit, [10, 30, 55, 90, 120]) == 55
    assert best_checkpoint(fit, [100, 120]) is None  # after the turn: there is no good one
    assert best_checkpoint(fit, []) is None
