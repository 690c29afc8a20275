"""Bets of a step that may share an effect of that step count as one, which is fair under every symmetric effect."""

from __future__ import annotations

from itertools import product
from math import exp, log

import numpy as np
import pytest

from tiltmeter.stats.wealth import BetTable, Wealth


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


def test_a_judges_mood_raises_no_more_alarms_than_promised_where_its_bets_count_as_one() -> None:
    assert reach(0.3, 64, True, 60, 20.0) <= 8  # 3 on average are allowed
    assert reach(0.3, 64, False, 60, 20.0) >= 30  # what the product did
    assert reach(0.0, 64, False, 60, 20.0) <= 8


def test_how_a_step_counts_depends_on_the_past_alone() -> None:
    table = BetTable()
    assert table.form(32, shared=False) == (32, 1.0)
    count, clip = table.form(32, shared=True)
    assert count == 1
    assert 0.0 < clip < 0.5
