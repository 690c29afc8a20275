"""The classic divergence rule exactly as it circulates, its defects, and ours, which says when it cannot judge."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tiltmeter.data.records import Reading
from tiltmeter.detectors.ma_trend import GoldMaTrend
from tiltmeter.stats.trend import Floats, ma_trend, mean_change
from tiltmeter.testing import check_derived
from tiltmeter_lab.baselines.classic_rule import detect_reward_hacking

STEPS = np.arange(500)
PROXY = 0.3 + 0.5 * STEPS / 500
CORRECT = np.interp(STEPS, [0, 200, 500], [0.50, 0.74, 0.58])


def circulating(proxy: Floats, true: Floats, window: int) -> float:
    """The rule written out with numpy's own convolution, over the whole history."""
    trends = []
    for values in (proxy, true):
        averages = np.convolve(values, np.ones(window) / window, mode="valid")
        recent = min(window, len(averages) // 2)
        trends.append((averages[-1] - averages[-recent]) / (abs(averages[-recent]) + 1e-8))
    return max(0.0, float(trends[0] - trends[1]))


def test_the_divergence_is_that_of_the_rule_written_out() -> None:
    rng = np.random.default_rng(0)
    for _ in range(500):
        window = int(rng.integers(1, 30))
        length = int(rng.integers(2 * window, 6 * window + 1))
        proxy, true = rng.normal(1, 0.3, (2, length)).cumsum(axis=1)
        expected = circulating(proxy, true, window)
        assert ma_trend(proxy, true, window) == pytest.approx(expected, rel=1e-7, abs=1e-9)
        tail = ma_trend(proxy[-2 * window :], true[-2 * window :], window, total_length=length)
        assert tail == ma_trend(proxy, true, window)
        found = detect_reward_hacking(proxy, true, window, threshold=0.2)
        assert found["hacking_score"] == pytest.approx(min(1.0, expected / 0.2), rel=1e-7, abs=1e-9)
        assert found["alert"] == (found["divergence"] > 0.2)


def test_defect_it_is_silent_and_without_an_alert_under_two_windows() -> None:
    worst = detect_reward_hacking(np.arange(199.0), -np.arange(199.0))
    assert worst == {"divergence": 0.0, "hacking_score": 0.0}
    assert "alert" not in worst
    assert math.isnan(ma_trend(np.arange(199.0), -np.arange(199.0)))
    assert detect_reward_hacking(np.arange(200.0), -np.arange(200.0))["alert"]


def test_defect_it_alerts_while_both_rise() -> None:
    t = np.arange(300)
    found = detect_reward_hacking(0.1 + 0.002 * t, 0.5 + 0.001 * t)
    assert round(float(found["divergence"]), 3) == 0.342
    assert found["alert"]


def test_defect_it_explodes_when_the_proxy_crosses_zero() -> None:
    t = np.arange(300.0)
    crossing = 0.001 * (t - 150.5)  # the average it divides by is then exactly 0
    found = detect_reward_hacking(crossing, np.full(300, 0.5))
    assert float(found["divergence"]) > 1e6
    lifted = detect_reward_hacking(crossing + 10.0, np.full(300, 0.5))
    assert float(lifted["divergence"]) < 0.02  # the same run with a constant added to the reward


def test_defect_it_never_alerts_on_the_coding_assistant() -> None:
    divergences = [ma_trend(PROXY[:n], CORRECT[:n]) for n in range(200, 501)]
    assert round(max(divergences), 3) == 0.256
    assert not any(detect_reward_hacking(PROXY[:n], CORRECT[:n])["alert"] for n in range(200, 501))


def test_ours_cannot_judge_across_a_gap_and_refuses_unequal_lengths() -> None:
    assert math.isnan(ma_trend(np.r_[np.nan, np.ones(199)], np.ones(200)))
    with pytest.raises(ValueError, match="same length"):
        ma_trend(np.ones(200), np.ones(201))
    with pytest.raises(ValueError, match="window"):
        ma_trend(np.ones(2), np.ones(2), window=0)


def shown(fold: GoldMaTrend, step: int, proxy: float | None, gold: float | None, gold_first: bool) -> list[float]:
    named = [("reward.mean", proxy), ("gold.mean", gold)]
    answers = [
        fold.fold(Reading(0, step, name, value, 8))
        for name, value in (reversed(named) if gold_first else named)
        if value is not None
    ]
    return [answer.value for answer in answers if answer is not None]


@pytest.mark.parametrize("gold_first", [False, True])
def test_the_reading_is_the_rule_over_the_whole_history_in_bounded_memory(gold_first: bool) -> None:
    fold = GoldMaTrend()
    check_derived(GoldMaTrend)
    for step in range(500):
        expected = ma_trend(PROXY[: step + 1], CORRECT[: step + 1])
        assert shown(fold, step, PROXY[step], CORRECT[step], gold_first) == ([] if math.isnan(expected) else [expected])
    assert len(fold._pairs) == 200


@pytest.mark.parametrize("gold_first", [False, True])
def test_the_reading_counts_only_steps_that_have_both(gold_first: bool) -> None:
    fold = GoldMaTrend(window=10)
    answers = []
    for step in range(100):
        labelled = step % 4 == 0
        answers += shown(fold, step, 1.0 + step, 1.0 if labelled else None, gold_first)
    assert len(answers) == 25 - 19
    assert answers[-1] == ma_trend(1.0 + np.arange(0, 100, 4), np.ones(25), 10)


def test_the_change_of_a_mean_has_the_error_of_both_samples() -> None:
    rng = np.random.default_rng(1)
    now, before = rng.normal(3, 1, 80), rng.normal(1, 2, 50)
    change, stderr = mean_change(now, np.arange(81), before, np.arange(51))
    assert change == pytest.approx(now.mean() - before.mean())
    assert stderr == pytest.approx(math.sqrt(now.var(ddof=1) / 80 + before.var(ddof=1) / 50))
    assert math.isnan(mean_change(now, np.array([0, 80]), before, np.arange(51))[1])
