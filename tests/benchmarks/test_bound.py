"""The simulation of many runs at once is the shipped wealth, sampler and ceiling; and its cells can fail."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tiltmeter.gold.sampler import Sampler
from tiltmeter.stats.wealth import Wealth


@pytest.fixture
def bound(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import bound as module  # benchmarks are scripts, not a package

    yield module
    sys.modules.pop("bound", None)


@pytest.mark.parametrize("shared", [False, True])
def test_money_of_many_runs_is_the_wealth_of_each(bound: ModuleType, shared: bool) -> None:
    runs, rng = 12, np.random.default_rng(1)
    money, each = bound.Money(runs), [Wealth() for _ in range(runs)]
    for step in range(60):
        counts = rng.choice([0, 1, 5, 9, 64], runs)
        mood = rng.choice([-0.5, 0.5], runs) * (np.arange(runs) % 2)
        us = bound.coins(np.linspace(-0.3, 0.3, runs) + mood, counts, rng)
        money.place(us, counts, shared=shared)
        for wealth, values in zip(each, np.split(us, np.cumsum(counts)[:-1]), strict=True):
            if len(values):
                wealth.place("gold.slope", step, values.tolist(), shared=shared)
    assert money.evidence == pytest.approx([wealth.evidence for wealth in each], abs=1e-8)
    uneven = [wealth.tables["gold.slope"].is_uneven for wealth in each]
    assert (money.jumps > bound.wealth.FEW_JUMPS).tolist() == uneven
    assert any(uneven) and not all(uneven)


@pytest.mark.parametrize("jackpots", [0.0, 60.0])
def test_bets_and_ceilings_of_many_runs_are_those_of_the_sampler(bound: ModuleType, jackpots: float) -> None:
    rng, sampler, starts = np.random.default_rng(2), Sampler(0.1, bound.STEPS), np.arange(0, 513, 8)
    budget, ceilings = bound.Budget(1, 0.1), bound.Ceilings(1)
    for step in range(40):
        reward = rng.normal(size=(64, 8))
        reward[rng.random(64) < 0.03, 0] += jackpots
        centred = reward - reward.mean(1, keepdims=True)
        ceiling = ceilings.level[0]
        bets = sampler.draw(0, step, centred.ravel(), starts, [f"{step}-{k}" for k in range(64)], rng)
        assert len(bets) == budget.counts()[0]
        sizes = np.abs(centred).mean(1)
        assert all(bet.weight == pytest.approx(min(sizes[bet.up[2] // 8] / ceiling, 1.0)) for bet in bets)
        ceilings.learn(sizes[None])
        us = [0.5 - 0.04 * step] * len(bets)
        sampler.close(us, [])
        budget.belief.learn(np.array([sum(us)]), np.array([sum(u * u for u in us)]), np.array([len(us)]))
    assert len(bets) > 10
    assert (ceilings.raised[0] > 0.0) == (jackpots > 0.0)


def test_plain_runs_and_attacks_keep_the_bound_and_what_is_not_promised_breaks_it(
    bench: Callable[..., dict[str, Any]],
) -> None:
    figures = bench("bound", "--runs", "150", "--only", "mood of 0.2")
    assert [row["alarms"] <= 6 for row in figures["cells"]] == [True, True]
    assert all(row["alarms"] > 6 for row in figures["not_promised"])
