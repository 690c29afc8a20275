"""The peak of gold from a few labels over the stored past, on runs whose peak is exact."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sizes import size

from tiltmeter.stats.backfilled_onset import BackfilledOnset, Floats, Ints, backfilled_onset

PEAK, LAST, ROWS = 40, 119, 32
STEPS = np.arange(LAST + 1).repeat(ROWS)
CHANCE = np.interp(STEPS, [0, PEAK, LAST], [0.3, 0.75, 0.2])


def stored(seed: int, noise: float, labels: int) -> tuple[Floats, Ints, Floats]:
    """Gold of every answer, a feature that knows it up to noise, and the rows that are labelled."""
    rng = np.random.default_rng(seed)
    gold = rng.binomial(1, CHANCE).astype(np.float64)
    return gold, rng.integers(0, len(STEPS), labels), (gold + noise * rng.normal(size=len(gold)))[:, None]


def onset(seed: int, noise: float, labels: int = 200) -> BackfilledOnset:
    gold, rows, feature = stored(seed, noise, labels)
    return backfilled_onset(STEPS, feature, rows, gold[rows])


@pytest.mark.parametrize(("noise", "error", "width"), [(0.5, 8, 50), (1e6, 14, 90)])
def test_the_peak_is_near_and_its_interval_contains_it(noise: float, error: int, width: int) -> None:
    onsets = [onset(seed, noise) for seed in range(size(10, 20))]
    assert np.median([abs(one.peak - PEAK) for one in onsets]) <= error
    assert sum(one.low <= PEAK <= one.high for one in onsets) >= 0.8 * len(onsets)
    assert np.median([one.high - one.low for one in onsets]) <= width


def test_a_feature_that_knows_gold_is_used_and_one_that_does_not_is_left_out() -> None:
    assert onset(0, 0.5).r2 > 0.3
    gold, rows, useless = stored(0, 1e6, 200)
    without = backfilled_onset(STEPS, np.zeros((len(STEPS), 0)), rows, gold[rows])
    for features in (useless, np.full((len(STEPS), 1), 3.0)):
        result = backfilled_onset(STEPS, features, rows, gold[rows])
        assert result.r2 < 0.1
        assert (result.level == without.level).all() and result[:3] == without[:3]


def test_a_feature_that_turns_against_gold_is_corrected_by_the_labels() -> None:
    rng = np.random.default_rng(3)
    gold = rng.binomial(1, CHANCE).astype(np.float64)
    reward = np.where(STEPS < PEAK, gold, 1.0 - gold) + 3.0 * STEPS / LAST
    rows = rng.integers(0, len(STEPS), 400)
    result = backfilled_onset(STEPS, reward[:, None], rows, gold[rows])
    assert abs(result.peak - PEAK) <= 15 and result.level[-1] < 0.45


def test_prompts_of_unlike_worth_do_not_move_the_peak() -> None:
    rng = np.random.default_rng(4)
    prompt = np.where(rng.random(len(STEPS)) < STEPS / LAST, 1, 0)  # the easy one comes ever more often
    gold = np.clip(0.4 + 0.4 * prompt + np.where(STEPS < PEAK, 0.0, -0.6 * (STEPS - PEAK) / LAST), 0.0, 1.0)
    rows = rng.integers(0, len(STEPS), 200)
    result = backfilled_onset(STEPS, np.zeros((len(STEPS), 0)), rows, gold[rows], prompt)
    assert result.r2 > 0.3
    at = np.arange(LAST + 1)
    expected = 0.4 + 0.4 * at / LAST - 0.6 * np.maximum(at - PEAK, 0) / LAST
    assert expected.max() - expected[result.peak] < 0.03


def test_gaps_order_and_repeats_change_nothing_but_the_steps_names() -> None:
    gold, rows, feature = stored(1, 0.5, 200)
    plain = backfilled_onset(STEPS, feature, rows, gold[rows])
    order = np.random.default_rng(9).permutation(len(STEPS))
    back = np.argsort(order)
    apart = backfilled_onset(10 * STEPS[order] + 5, feature[order], back[rows], gold[rows])
    assert (apart.steps == 10 * plain.steps + 5).all()
    assert apart.level == pytest.approx(plain.level, abs=1e-9)
    assert abs(apart.peak - 10 * plain.peak - 5) <= 20
    assert len(np.unique(rows)) < len(rows)
    again = backfilled_onset(STEPS, feature, rows, gold[rows])
    assert again[:3] == plain[:3] and (again.fit == plain.fit).all()


def test_a_run_of_many_steps_and_prompts_is_read_in_little_memory() -> None:
    rng = np.random.default_rng(6)
    step = np.arange(6_007).repeat(4)
    gold = np.interp(step, [0, 2_000, 6_006], [0.2, 0.8, 0.1])
    rows = rng.integers(0, len(step), 300)
    result = backfilled_onset(step, np.zeros((len(step), 0)), rows, gold[rows], rng.integers(0, 10**9, len(step)))
    assert len(result.steps) <= 500 and (np.diff(result.steps) > 0).all() and result.steps[-1] <= 6_006
    assert abs(result.peak - 2_000) < 300


def test_gold_that_only_rises_peaks_at_the_end_and_one_step_is_its_own_peak() -> None:
    rng = np.random.default_rng(5)
    gold = rng.binomial(1, 0.2 + 0.6 * STEPS / LAST).astype(np.float64)
    rows = rng.integers(0, len(STEPS), 300)
    result = backfilled_onset(STEPS, gold[:, None], rows, gold[rows])
    assert result.high >= 0.97 * LAST and result.peak > 0.9 * LAST
    single = backfilled_onset(np.zeros(4, np.int64), np.zeros((4, 1)), np.array([2]), np.array([1.0]))
    assert single[:3] == (0, 0, 0)


def test_what_is_no_number_or_has_no_label_is_refused() -> None:
    step, features = np.arange(4), np.zeros((4, 1))
    with pytest.raises(ValueError, match="at least one"):
        backfilled_onset(step, features, np.zeros(0, np.int64), np.zeros(0))
    with pytest.raises(ValueError, match="at least one"):
        backfilled_onset(step, features, np.array([0, 1]), np.zeros(1))
    for broken, gold in ((features, np.array([np.nan])), (np.full((4, 1), np.inf), np.zeros(1))):
        with pytest.raises(ValueError, match="finite"):
            backfilled_onset(step, broken, np.array([0]), gold)
