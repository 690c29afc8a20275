"""Intervals of an average that moves: they hold at every step, and windows begin where they should."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sizes import size

from tiltmeter.stats.curve_gain import curve_gain
from tiltmeter.stats.running_mean import ALL_SHARES, MeanWindow, MeanWindows, low_end
from tiltmeter_workbench.stats.confidence_sequence import mean_sequence

STEPS, VALUES = 120, 4


def moving(rng: np.random.Generator) -> np.ndarray:
    """A mean that turns in the middle of the run."""
    return np.repeat(np.where(np.arange(STEPS) < 60, rng.uniform(0.7, 0.9), rng.uniform(0.1, 0.3)), VALUES)


def missed(seed: int, alpha: float, draws: int) -> tuple[bool, bool]:
    """Whether the interval of a whole run misses the running average at any step; and whether a fixed one does."""
    rng = np.random.default_rng(seed)
    truth = moving(rng)
    x = rng.binomial(draws, truth) / draws
    guess = np.concatenate([[0.5], np.cumsum(x)[:-1] / np.arange(1, len(x))])
    count = np.arange(1.0, len(x) + 1)
    total, scatter, average = np.cumsum(x), np.cumsum((x - guess) ** 2), np.cumsum(truth) / count
    part = np.full(len(x), 0.5 * alpha)
    low = low_end(count, total, scatter, np.full(len(x), float(draws)), part)
    high = 1.0 - low_end(count, count - total, scatter, np.full(len(x), float(draws)), part)
    path = mean_sequence(x, alpha)
    fixed = (average < path[:, 1]) | (average > path[:, 2])
    return bool(((average < low) | (average > high)).any()), bool(fixed.any())


@pytest.mark.parametrize("draws", [1, 8])
def test_a_moving_average_is_held_at_every_step_and_an_interval_for_a_fixed_mean_loses_it(draws: int) -> None:
    runs = [missed(seed, 0.1, draws) for seed in range(size(25, 300))]
    assert np.mean([lost for lost, _ in runs]) <= 0.1
    assert np.mean([lost for _, lost in runs]) > 0.9, "the check would see an interval that does not hold"


def test_the_shares_of_all_windows_together_are_at_most_one() -> None:
    number = np.arange(1.0, 10**6)
    assert (number**-1.5).sum() + 2.0 / np.sqrt(10**6) <= ALL_SHARES + 2e-3
    windows = MeanWindows(0.01)
    for step in range(200):
        windows.place(step, 0.5, 10, 2.5)
    shares = [window.share for window, _ in windows.earlier] + [window.share for window in windows.windows]
    assert sorted(shares, reverse=True) == shares and sum(shares) < 1.0


def test_windows_begin_after_enough_steps_and_values_and_the_current_one_is_never_empty() -> None:
    windows = MeanWindows(0.01)
    began = [step for step in range(100) if windows.place(step, 0.5, 4, 1.0)]
    assert began == [0, 20, 40, 60, 80]
    assert (windows.current.first, windows.current.last, windows.current.count) == (60, 99, 160)
    assert windows.beginning is not None and (windows.beginning.last, windows.beginning.count) == (19, 80)
    few = MeanWindows(0.01)
    assert [step for step in range(100) if few.place(step, 0.5, 1, 0.0)] == [0, 60]
    many = MeanWindows(0.01)
    assert [step for step in range(4) if many.place(step, 0.5, 500, 125.0)] == [0, 1, 2, 3]


def test_a_run_that_goes_back_forgets_what_came_later_and_keeps_its_beginning() -> None:
    windows = MeanWindows(0.01)
    for step in range(100):
        windows.place(step, 0.5, 8, 2.0)
    windows.restart(70)
    assert [(window.first, window.last) for window, _ in windows.earlier] == [(0, 39), (20, 59)]
    assert windows.beginning is not None and not windows.windows
    windows.restart(10)
    assert windows.beginning is None and not windows.earlier


def test_a_value_that_never_came_counts_for_neither_end() -> None:
    sure = MeanWindow(1.0, 0, 9, 40.0, 30.0, 8.0, 1.0).interval(0.01)
    unsure = MeanWindow(1.0, 0, 9, 40.0, 30.0, 8.0, 1.0, unknown=10.0).interval(0.01)
    assert unsure.low < sure.low - 0.1 and unsure.high == sure.high
    with pytest.raises(ValueError, match="from 0 to 1"):
        MeanWindows(0.01).place(0, 1.2, 4, 0.0)


def test_more_draws_behind_a_value_bring_the_ends_closer() -> None:
    one, eight = (MeanWindow(1.0, 0, 9, 160.0, 3.2, 3.0, draws).interval(0.01) for draws in (1.0, 8.0))
    assert one.low < eight.low < eight.high < one.high - 0.03


def test_a_curve_gains_only_what_its_own_noise_and_its_smoothing_allow() -> None:
    rng = np.random.default_rng(0)
    false = 0
    for _ in range(200):
        flat = 0.4 + 0.05 * rng.normal(size=60)
        smooth = np.convolve(flat, np.full(5, 0.2), "valid")
        for curve in (flat, smooth):
            gain = curve_gain(curve.tolist(), curve[:8].tolist(), curve[-8:].tolist())
            assert gain is not None
            false += gain[1] > 0.0
    assert false <= 2
    rise = np.linspace(0.2, 0.7, 35) + 0.02 * rng.normal(size=35)
    gain = curve_gain(rise.tolist(), rise[:4].tolist(), rise[-6:].tolist())
    assert gain is not None and gain[1] > 0.25
    assert curve_gain([0.1, 0.9], [0.1], [0.9]) is None
