"""One purse for all tables: money is conserved, laid by the past alone, and a fair game leaves it at one on average."""

from __future__ import annotations

from itertools import product
from math import exp, inf, log

import numpy as np
import pytest

from tiltmeter.stats.local_level import LocalLevel
from tiltmeter.stats.wealth import STAKES, Wealth


def played(steps: list[tuple[str, tuple[float, ...]]]) -> Wealth:
    purse = Wealth()
    for step, (name, us) in enumerate(steps):
        purse.place(name, step, us)
    return purse


def money(purse: Wealth) -> float:
    return purse.cash + sum(exp(purse.log_wealth(name)) for name in purse.tables)


def test_bets_that_neither_win_nor_lose_leave_all_of_the_money() -> None:
    purse = played([("slope", (0.0, 0.0)), ("duel", ()), ("slope", ()), ("duel", (0.0,))] * 40)
    assert money(purse) == pytest.approx(1.0, abs=1e-12)
    assert purse.evidence == pytest.approx(0.0, abs=1e-12)
    assert purse.cash < 1.0


def test_evidence_is_the_cash_and_what_lies_on_the_tables_and_what_was_entrusted_is_gone_from_it() -> None:
    purse = played([("slope", (-0.5, 0.25)), ("duel", (-1.0,)), ("slope", (0.5,))])
    assert exp(purse.evidence) == pytest.approx(money(purse))
    before = money(purse)
    given = purse.allocate(0.5)
    assert money(purse) + exp(given) == pytest.approx(before)


def test_what_is_laid_on_a_step_is_the_same_whatever_the_step_shows() -> None:
    past = [("slope", (-0.7, 0.2)), ("duel", (-1.0,)), ("slope", (-0.4,)), ("duel", (1.0, -1.0))]
    bad, good = played(past), played(past)
    bad.place("slope", 9, (-1.0, -0.5))
    good.place("slope", 9, (1.0, 0.5))
    assert bad.cash == good.cash
    stakes = [
        purse.tables["slope"].wealth - np.log1p(-np.outer(us, STAKES)).sum(0)
        for purse, us in ((bad, (-1.0, -0.5)), (good, (1.0, 0.5)))
    ]
    assert stakes[0] == pytest.approx(stakes[1], abs=1e-9)
    assert bad.evidence > good.evidence


def stopped(us: tuple[float, ...], level: float) -> float:
    """Money when the evidence first reaches a level, or at the end; two tables in turn, sometimes two u a step."""
    purse, step = Wealth(), 0
    rest = list(us)
    while rest:
        take = 2 if step % 3 == 2 else 1
        purse.place("duel" if step % 2 else "slope", step, rest[:take])
        rest, step = rest[take:], step + 1
        if purse.evidence >= level:
            break
    return exp(purse.evidence)


@pytest.mark.parametrize("level", [inf, 0.003, 0.02, 0.1])
def test_over_all_outcomes_of_a_fair_game_the_money_is_one_on_average_whenever_it_is_stopped(level: float) -> None:
    means = [stopped(us, level) for us in product((-1.0, 1.0), repeat=8)]
    assert np.mean(means) == pytest.approx(1.0, abs=1e-12)
    assert max(means) > 1.01  # the bets are real


def test_in_a_game_that_favours_the_null_the_money_falls_on_average() -> None:
    chance = {-1.0: 0.4, 1.0: 0.6}
    mean = sum(stopped(us, inf) * np.prod([chance[u] for u in us]) for us in product((-1.0, 1.0), repeat=8))
    assert mean < 1.0


@pytest.mark.parametrize("u", [float("nan"), 1.5, inf, -inf])
def test_a_value_that_would_void_the_bound_is_refused_and_nothing_is_laid(u: float) -> None:
    purse = played([("slope", (0.5,))])
    before = purse.cash
    with pytest.raises(ValueError, match="voids"):
        purse.place("slope", 1, (0.0, u))
    assert purse.cash == before
    assert purse.tables["slope"].steps == [0]


def test_nothing_was_bet_yet() -> None:
    assert (Wealth().evidence, Wealth().richest, Wealth().log_wealth("slope")) == (0.0, "", -inf)


def test_a_purse_goes_on_when_all_its_cash_is_gone() -> None:
    purse = Wealth(cash=5e-324)
    for step in range(20):
        purse.place("slope", step, (-0.5, 0.4))
    assert purse.evidence < log(1e-300)
    assert purse.allocate(0.5) < log(1e-300)


def test_a_long_healthy_run_leaves_the_cash_for_its_turn() -> None:
    """A slope that is up and duels that are ties: what was laid on either when it looked bad for a while comes back."""
    rng, purse = np.random.default_rng(1), Wealth()
    for step in range(1000):
        purse.place("slope", step, np.where(rng.random(5) < 0.6, 1.0, -1.0).tolist())
        purse.place("duel", step, rng.integers(-1, 2, 1).tolist())
    assert purse.cash > 1e-6


def test_a_thousand_zeros_leave_a_belief_that_can_still_be_asked() -> None:
    drift = LocalLevel(square=0.0)
    for _ in range(1000):
        drift.forecast()
        drift.learn([0.0, 0.0])
    assert drift.noise > 0
    purse = Wealth()
    purse.place("slope", 0, ())
    purse.tables["slope"].belief = drift
    purse.place("slope", 1, (-1.0,))
    assert np.isfinite(purse.evidence)


def test_a_belief_follows_the_values_forgets_and_stays_calm_far_from_zero() -> None:
    drift = LocalLevel()
    for value in [0.5] * 200 + [-0.5] * 200:
        drift.forecast()
        drift.learn([value, value + 0.1, value - 0.1])
    assert drift.centre == pytest.approx(-0.5, abs=0.05)
    assert drift.below(0.0) > 0.99
    assert drift.depth() == pytest.approx(0.5, abs=0.05)
    healthy = LocalLevel(centre=1.0, variance=1e-4)
    assert healthy.below(0.0) == 0.0
    assert 0.0 < healthy.depth() < 0.01
    known = drift.variance
    drift.forecast()
    drift.learn([])
    assert drift.variance > known
