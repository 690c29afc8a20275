"""Intervals of paired differences: what they promise, against exact tests and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tiltmeter_workbench.compare.measures.difference import FEWEST, means, shares
from tiltmeter_workbench.stats.paired_wins import p_value


@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.005])
@pytest.mark.parametrize("n", [20, 60, 120, 250])
def test_zero_is_left_out_about_where_mcnemars_exact_test_rejects_it(n: int, alpha: float) -> None:
    rejected = 0
    for more in range(n // 2 + 1):
        for fewer in range(min(more, 12) + 1):
            if more + fewer > n or more == fewer:
                continue
            base = np.array([0.0] * more + [1.0] * fewer + [0.0] * (n - more - fewer))
            checkpoint = np.array([1.0] * more + [0.0] * (n - more))
            if shares(base, checkpoint, alpha).low > 0.0:
                rejected += 1
                # A law for large numbers in the place of an exact one: near it, never half as strict.
                assert p_value(np.full(more + fewer, 0.5), more) <= 1.5 * alpha, (more, fewer)
    assert rejected >= n // 10


def test_changes_that_all_go_one_way_are_judged_as_by_the_exact_test() -> None:
    for n in (30, 60, 120):
        for alpha in (0.05, 0.01, 0.005):
            fewest = next(k for k in range(1, n) if 2.0 * 0.5**k <= alpha)
            for changed in range(1, n):
                found = shares([0.0] * n, [1.0] * changed + [0.0] * (n - changed), alpha)
                if found.low > 0.0:
                    assert changed >= fewest
                elif changed >= fewest + 3:
                    pytest.fail(f"{changed} of {n} changed one way and {alpha} was not reached")


@pytest.mark.parametrize(("chance", "same"), [(0.02, 0.5), (0.2, 0.0), (0.5, 0.8), (0.9, 0.0)])
def test_identical_models_are_called_different_no_more_often_than_promised(chance: float, same: float) -> None:
    rng = np.random.default_rng(7)
    alpha, runs, n = 0.05, 2000, 60
    called = 0
    for _ in range(runs):
        base, other = rng.random(n) < chance, rng.random(n) < chance
        checkpoint = np.where(rng.random(n) < same, base, other)  # items on which both do the same anyway
        found = shares(base, checkpoint, alpha)
        called += found.low > 0.0 or found.high < 0.0
    assert called / runs <= alpha + 3.0 * math.sqrt(alpha * (1 - alpha) / runs)


def test_the_interval_holds_the_true_difference_when_samples_are_clustered_by_item() -> None:
    rng = np.random.default_rng(3)
    alpha, runs, items, samples = 0.05, 1000, 80, 4
    held = 0
    for _ in range(runs):
        level = rng.beta(0.5, 1.5, items)
        base = rng.binomial(samples, level) / samples
        checkpoint = rng.binomial(samples, np.minimum(1.0, 0.7 * level + 0.1)) / samples
        true = float((np.minimum(1.0, 0.7 * level + 0.1) - level).mean())
        found = shares(base, checkpoint, alpha)
        held += found.low <= true <= found.high
    assert held / runs >= 0.94


def test_few_items_give_no_state_however_large_the_difference() -> None:
    few = FEWEST - 1
    assert shares([0.0] * few, [1.0] * few, 0.05).state(0.05, more_is_worse=True) == "cannot tell"
    assert means([0.0] * few, [9.0] * few, 0.05).state(0.05, more_is_worse=True) == "cannot tell"
    assert shares([], [], 0.05).state(0.05, more_is_worse=True) == "cannot tell"


def test_items_without_a_value_of_both_are_left_out() -> None:
    found = shares([0.0, math.nan, 1.0], [1.0, 1.0, math.nan], 0.05)
    assert (found.n, found.value) == (1, 1.0)


def test_a_difference_that_is_certain_but_small_is_neither_worse_nor_better() -> None:
    base, checkpoint = np.zeros(4000), np.zeros(4000)
    checkpoint[:120] = 1.0
    found = shares(base, checkpoint, 0.05)
    assert found.low > 0.0
    assert found.state(0.05, more_is_worse=True) == "same"
    assert found.state(0.02, more_is_worse=True) == "worse"
    assert found.state(0.02, more_is_worse=False) == "better"
