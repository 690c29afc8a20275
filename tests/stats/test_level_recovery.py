"""The end of an alarm: a level that is still low ends it no more often than promised, one that is back does, soon."""

from __future__ import annotations

import numpy as np
import pytest
from tests.sizes import size

from tiltmeter.stats.level_drop import LevelDropTest
from tiltmeter.stats.level_recovery import NEEDED, RecoveryBets, noise_of, residual_noise

PROMPTS, GROUPS, ANSWERS = 60, 8, 8
TOLERANCE, BEST = 0.05, 0.6


def step_of_end(seed: int, level: float, *, steps: int = 150, windows: int = 3) -> int | None:
    """When a level after the alarm counts as back against every window before it; None: not within `steps`."""
    rng = np.random.default_rng([12, seed])
    offset = rng.normal(0.0, 0.15, PROMPTS)
    offset = (offset - offset.mean()).clip(-0.35, 0.35)

    def step_gold(mean: float) -> tuple[np.ndarray, np.ndarray]:
        prompts = rng.permutation(PROMPTS)[:GROUPS]
        return prompts, rng.binomial(ANSWERS, np.clip(mean + offset[prompts], 0.0, 1.0)) / ANSWERS

    test = LevelDropTest()
    for step in range(20 * windows):
        test.place(step, *step_gold(BEST), ANSWERS)
    bets = []
    for one in test.references:
        lowered = noise_of(one.noise) - TOLERANCE
        bets.append((one, lowered, RecoveryBets(one.highest + lowered)))
    for step in range(steps):
        prompts, gold = step_gold(level)
        for reference, lowered, each in bets:
            rises = reference.rises(prompts, gold)
            if len(rises):
                each.place(rises - lowered)
        if all(each.is_won for _, _, each in bets):
            return step
    return None


def test_a_level_that_is_still_low_ends_an_alarm_no_more_often_than_promised() -> None:
    runs = size(60, 2000)
    ends = [step_of_end(seed, BEST - TOLERANCE) is not None for seed in range(runs)]
    assert np.mean(ends) <= 0.05 + 2.0 * np.sqrt(0.05 / runs)


def test_a_level_that_is_back_ends_it() -> None:
    ends = [step_of_end(seed, BEST + 0.05) for seed in range(6)]
    assert all(end is not None and end < 100 for end in ends)


def test_bets_at_the_edge_of_the_null_are_won_no_more_often_than_promised() -> None:
    runs, won = size(200, 10_000), 0
    for seed in range(runs):
        rng, bets = np.random.default_rng([13, seed]), RecoveryBets(0.5)
        for _ in range(200):
            bets.place(rng.binomial(4, 0.5, 4) / 4 - 0.5)
            if bets.is_won:
                won += 1
                break
    assert won / runs <= 0.025 + 2.0 * np.sqrt(0.025 / runs)


def test_bets_without_the_price_of_new_money_would_be_won_too_often() -> None:
    """The check can fail: the best start of many, taken at its word, is won in far more than a twentieth of runs."""
    won = 0
    for seed in range(60):
        rng = np.random.default_rng([13, seed])
        x = (rng.binomial(4, 0.5, (200, 4)) / 4 - 0.5) / 0.5
        path = np.concatenate([[0.0], np.cumsum(np.log1p(0.2 * x).sum(1))])
        won += bool((path - np.minimum.accumulate(path)).max() >= NEEDED)
    assert won / 60 > 0.1


def test_a_level_that_was_back_and_fell_again_is_soon_not_back() -> None:
    bets = RecoveryBets(1.0)
    for _ in range(200):
        bets.place(np.full(8, 0.4))
    assert bets.is_won
    bets.place(np.full(8, -0.4))
    assert not bets.is_won


def test_a_rewind_takes_back_what_spoke_for_the_run() -> None:
    bets = RecoveryBets(1.0)
    for _ in range(20):
        bets.place(np.full(8, 0.4))
    assert bets.is_won
    bets.rewind()
    assert not bets.is_won


@pytest.mark.parametrize("chance", [0.1, 0.5])
def test_the_noise_of_labels_is_covered(chance: float) -> None:
    rng, runs = np.random.default_rng(5), size(400, 20_000)
    draws = rng.binomial(1, chance, (runs, 120)) - 0.5
    short = [chance - 0.5 - one.mean() > residual_noise(one, 0.0125) for one in draws]
    assert np.mean(short) <= 0.0125 + 2.0 * np.sqrt(0.0125 / runs)


def test_a_value_below_what_was_promised_voids_the_test() -> None:
    with pytest.raises(ValueError, match="voids"):
        RecoveryBets(0.5).place(np.array([-0.6]))
