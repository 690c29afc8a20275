"""Bets of a step that may share an effect of that step count as one, which is fair under every symmetric effect."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import exp, log

import numpy as np
import pytest

from tiltmeter.stats import wealth as wealth_module
from tiltmeter.stats.wealth import BLOCKS, BetTable, Wealth


def money(wealth: Wealth) -> float:
    return wealth.cash + sum(exp(wealth.log_wealth(name)) for name in wealth.tables)


@pytest.mark.parametrize(("shared", "fair"), [(True, True), (False, False)])
def test_a_mood_of_the_step_is_fair_only_where_its_bets_count_as_one(shared: bool, fair: bool) -> None:
    means = []
    for moods in product((-0.6, 0.6), repeat=8):
        wealth = Wealth()
        for step, mood in enumerate(moods):
            wealth.place("gold.slope", step, (mood,) * 8, shared=shared)
        means.append(money(wealth))
    assert max(means) > 1.01
    if fair:
        assert np.mean(means) == pytest.approx(1.0, abs=1e-12)
    else:
        assert np.mean(means) > 1.01


def count_all_bets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wealth as the product over all bets of every step, whatever the steps look like."""
    monkeypatch.setattr(wealth_module, "FEW_JUMPS", np.inf)
    monkeypatch.setattr(wealth_module, "COMPARED", 0)


def reach(effect: float, bets: int, shared: bool, runs: int, level: float) -> int:
    """Runs of 60 steps whose bets are coins with an effect of the step, of mean zero, that reach a level of wealth."""
    count = 0
    for seed in range(runs):
        rng, wealth = np.random.default_rng([bets, seed]), Wealth()
        for step in range(60):
            mood = effect * rng.choice([-1.0, 1.0])
            us = np.where(rng.random(bets) < (1 + mood) / 2, 1.0, -1.0)
            wealth.place("gold.slope", step, us.tolist(), shared=shared)
            if wealth.evidence >= log(level):
                count += 1
                break
    return count


def test_a_judges_mood_raises_no_more_alarms_than_promised_where_its_bets_count_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert reach(0.3, 64, True, 60, 20.0) <= 8  # 3 on average are allowed
    assert reach(0.0, 64, False, 60, 20.0) <= 8
    count_all_bets(monkeypatch)
    assert reach(0.3, 64, False, 60, 20.0) >= 30


def test_how_a_step_counts_depends_on_the_past_alone() -> None:
    table = BetTable(compared=100)
    assert table.form(32, shared=False) == (32, 1.0)
    count, clip = table.form(32, shared=True)
    assert count == 1
    assert 0.0 < clip < 0.5


def alarm_step(levels: Sequence[float], bets: int, seed: int) -> int | None:
    """The step at which coins whose mean follows these levels reach 125 to 1."""
    rng, wealth = np.random.default_rng([bets, seed]), Wealth()
    for step, level in enumerate(levels):
        wealth.place("gold.slope", step, np.where(rng.random(bets) < (1 + level) / 2, 1.0, -1.0).tolist())
        if wealth.evidence >= log(125.0):
            return step
    return None


def task_alarms(runs: int) -> int:
    """Runs with one task a batch, 64 bets each: seven tasks in ten gain by the reward, the others lose as much."""
    levels = [np.random.default_rng([1, seed]).choice([0.3, -0.3], 80, p=[0.7, 0.3]).tolist() for seed in range(runs)]
    return sum(alarm_step(level, 64, seed) is not None for seed, level in enumerate(levels))


def test_one_task_a_batch_raises_no_more_alarms_than_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    assert task_alarms(60) <= 2
    count_all_bets(monkeypatch)
    assert task_alarms(60) >= 8


@pytest.mark.parametrize("bets", [4, 16, 64])
def test_a_slope_that_reverses_in_one_step_is_an_alarm_as_soon_as_before(
    bets: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = [0.3] * 40 + [-0.3] * 60
    now = [alarm_step(turns, bets, seed) or 100 for seed in range(12)]
    count_all_bets(monkeypatch)
    before = [alarm_step(turns, bets, seed) or 100 for seed in range(12)]
    assert np.median(now) <= np.median(before)
    assert max(now) <= max(before) + 2


def test_steps_are_uneven_after_three_jumps_and_even_again_after_a_while() -> None:
    table = BetTable()
    for level in (0.5, 0.5, -0.5, -0.5, 0.5):
        table.learn((level,) * 64)
    assert not table.is_uneven
    table.learn((-0.5,) * 64)
    assert table.is_uneven
    assert table.form(64, shared=False)[0] == 1
    for _ in range(60):
        table.learn((-0.5,) * 64)
    assert not table.is_uneven
    assert table.form(64, shared=False) == (64, 1.0)


def test_until_enough_steps_were_compared_a_step_is_a_few_means_of_neighbouring_bets() -> None:
    assert BetTable().form(64, shared=False) == (BLOCKS, 1.0)
    assert BetTable().form(5, shared=False) == (5, 1.0)
    halves, whole = Wealth(), Wealth()
    halves.place("gold.slope", 0, [0.5, -0.5] * 32)
    whole.place("gold.slope", 0, [0.0] * BLOCKS)
    assert money(halves) == pytest.approx(money(whole))
