"""Statistics against independent oracles and numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiltmeter.stats import betting
from tiltmeter.stats.changepoint import change_point
from tiltmeter.stats.groups import clustered_mean, group_sums, standardise

numbers = st.floats(-1e6, 1e6) | st.just(float("nan"))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.lists(numbers, min_size=1, max_size=6), max_size=6))
def test_group_statistics_equal_a_loop(groups: list[list[float]]) -> None:
    values = np.array([value for group in groups for value in group], float)
    starts = np.concatenate(([0], np.cumsum([len(group) for group in groups]))).astype(np.int64)
    sums, counts = group_sums(values, starts)
    z, sd, mean = standardise(values, starts)
    for k, group in enumerate(groups):
        known = [value for value in group if math.isfinite(value)]
        assert counts[k] == len(known)
        assert sums[k] == pytest.approx(math.fsum(known), abs=1e-6)
        if len(known) < 2:
            assert math.isnan(sd[k])
            assert np.isnan(z[starts[k] : starts[k + 1]]).all()
        else:
            spread = float(np.std(known))
            flat = spread < 1e-9 * (1 + abs(np.mean(known)))
            assert sd[k] == pytest.approx(0.0 if flat else spread, rel=1e-6, abs=1e-6)
            assert mean[k] == pytest.approx(float(np.mean(known)), abs=1e-6)


def test_the_standard_error_of_independent_groups_is_the_textbook_one() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=200)
    mean, n, stderr = clustered_mean(values, np.arange(201))
    assert mean == pytest.approx(values.mean())
    assert n == 200
    assert stderr == pytest.approx(values.std(ddof=1) / math.sqrt(200))


def test_the_clustered_standard_error_covers_and_the_naive_one_does_not() -> None:
    rng = np.random.default_rng(1)
    starts = np.arange(0, 321, 8)
    hits = naive = 0
    for _ in range(400):
        values = np.repeat(rng.normal(size=40), 8) + 0.1 * rng.normal(size=320)
        mean, n, stderr = clustered_mean(values, starts)
        assert stderr is not None
        hits += abs(mean) < 2 * stderr
        naive += abs(mean) < 2 * values.std() / math.sqrt(n)
    assert hits > 360
    assert naive < 250


def test_inverse_chance_weights_undo_unequal_sampling() -> None:
    values = np.array([1.0, 0.0, 0.0, 0.0])
    mean, _, _ = clustered_mean(values, np.arange(5), weights=np.array([1.0, 3.0, 3.0, 3.0]))
    assert mean == pytest.approx(0.1)


def test_evidence_equals_an_exact_product() -> None:
    us = [0.3, -0.7, -1.0, 0.9, -0.2]
    expected = sum(math.prod(1 - lam * u for u in us) for lam in betting.GRID) / (2 * len(betting.GRID))
    wealth = betting.bet(betting.add_instalment(betting.initial_wealth(), 1), us)
    assert math.exp(betting.evidence(wealth)) == pytest.approx(expected)


def test_no_bet_is_no_evidence() -> None:
    assert betting.evidence(betting.initial_wealth()) == -np.inf


def test_instalments_and_armings_never_spend_more_than_one() -> None:
    assert sum(1 / (j * (j + 1)) for j in range(1, 10_000)) < 1
    assert sum(betting.alpha_share(1.0, k) for k in range(1, 60)) <= 1


@pytest.mark.parametrize("mean", [0.0, 0.2])
def test_under_the_null_wealth_reaches_its_bound_no_more_often_than_promised(mean: float) -> None:
    alpha, false = 0.1, 0
    for seed in range(500):
        rng = np.random.default_rng(seed)
        wealth = betting.initial_wealth()
        for step in range(120):
            if step % 20 == 0:
                wealth = betting.add_instalment(wealth, 1 + step // 20)
            wealth = betting.bet(wealth, np.where(rng.random(4) < (1 + mean) / 2, 1.0, -1.0))
            if betting.evidence(wealth) >= math.log(1 / alpha):
                false += 1
                break
    assert false <= 66  # 50 expected at most; above 66 has a chance below 1 in 100


def test_the_turn_is_found_and_its_interval_covers_it() -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(60):
        values = np.concatenate([rng.normal(0.2, 0.5, 60), rng.normal(-0.3, 0.5, 40)])
        found, low, high = change_point(values)
        assert low <= found <= high
        covered += low - 1 <= 60 <= high + 1
    assert covered >= 40
