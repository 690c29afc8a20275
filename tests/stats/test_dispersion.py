"""Bets of a step that share something count as one: decided by the past, fair under every symmetric effect."""

from __future__ import annotations

from itertools import product
from math import exp, log

import numpy as np
import pytest

from tiltmeter.stats.dispersion import ENOUGH, StepDispersion
from tiltmeter.stats.wealth import EARLY_BLOCKS, BetTable, Wealth


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
    if fair:
        assert np.mean(means) == pytest.approx(1.0, abs=1e-12)
        assert max(means) > 1.01
    else:
        assert np.mean(means) > 1.01


def ever_reaches(effect: float, bets: int, shared: bool, runs: int, level: float) -> int:
    """Runs of 60 steps whose bets are coins with an effect of the step, of mean zero, that reach a level of wealth."""
    found = 0
    for seed in range(runs):
        rng, wealth = np.random.default_rng([bets, seed]), Wealth()
        for step in range(60):
            mood = effect * rng.choice([-1.0, 1.0])
            us = np.where(rng.random(bets) < (1 + mood) / 2, 1.0, -1.0)
            wealth.place("gold.slope", step, us.tolist(), shared=shared)
            if wealth.evidence >= log(level):
                found += 1
                break
    return found


def test_a_declared_mood_raises_no_more_alarms_than_promised_and_the_product_did() -> None:
    assert ever_reaches(0.3, 64, True, 60, 20.0) <= 8  # 3 on average are allowed
    assert ever_reaches(0.0, 64, False, 60, 20.0) <= 8


def test_a_step_effect_is_noticed_and_a_trend_or_one_fall_hardly_is() -> None:
    counts = np.zeros(3)
    for seed in range(30):
        rng = np.random.default_rng([3, seed])
        moody, trend, fall = StepDispersion(), StepDispersion(), StepDispersion()
        for step in range(100):
            noise = rng.choice([-0.4, 0.4], 32)
            moody.learn(noise + 0.3 * rng.choice([-1.0, 1.0]))
            trend.learn(noise + 0.3 - 0.006 * step)
            fall.learn(noise + (0.3 if step < 60 else -0.5))
        counts += [moody.is_excessive, trend.is_excessive, fall.is_excessive]
    assert counts[0] == 30
    assert counts[1] <= 12  # one standard error: a sixth of such runs are taken for moody, which costs them power alone
    assert counts[2] <= 18


def test_many_bets_of_a_step_count_apart_only_after_steps_were_compared() -> None:
    rng, table = np.random.default_rng(1), BetTable()
    assert table.form(32, shared=False) == (EARLY_BLOCKS, 1.0)
    assert table.form(2, shared=False) == (2, 1.0)
    for _ in range(ENOUGH + 1):
        table.dispersion.learn(rng.permutation(np.repeat([-0.5, 0.5], 16)))
    assert table.form(32, shared=False) == (32, 1.0)
    blocks, clip = table.form(32, shared=True)
    assert blocks == 1
    assert clip < 0.3


def test_what_a_step_shows_does_not_change_how_its_own_bets_count() -> None:
    calm, moody = BetTable(), BetTable()
    for _ in range(ENOUGH + 1):
        for table in (calm, moody):
            table.dispersion.learn(np.array([-0.5, 0.5, 0.25, -0.25] * 8))
    before = calm.form(32, shared=False)
    assert before == moody.form(32, shared=False) == (32, 1.0)
    for _ in range(6):
        moody.dispersion.learn(np.full(32, 0.9))
        moody.dispersion.learn(np.full(32, -0.9))
    assert moody.form(32, shared=False)[0] == 1
