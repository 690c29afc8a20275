"""Agreement, win chances and strengths against slow references and other libraries."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from tiltmeter.stats.agreement import Floats, Ints, pair_agreement
from tiltmeter.stats.bradley_terry import fit_strengths, prepare_reference, win_chance, win_share


def paired(gold: Floats, reward: Floats, weights: Floats) -> float:
    """Every pair, one at a time."""
    right = total = 0.0
    for i, j in itertools.permutations(range(len(gold)), 2):
        if gold[i] > gold[j] and np.isfinite(reward[i]) and np.isfinite(reward[j]):
            total += weights[i] * weights[j]
            right += weights[i] * weights[j] * (0.5 if reward[i] == reward[j] else float(reward[i] > reward[j]))
    return right / total if total else float("nan")


def test_pair_agreement_counts_every_pair_once() -> None:
    rng = np.random.default_rng(2)
    for _ in range(300):
        sizes = rng.integers(1, 12, rng.integers(1, 5))
        starts: Ints = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
        rows = int(starts[-1])
        gold = rng.integers(0, rng.integers(1, 6), rows) / 4.0
        reward = rng.integers(-3, 4, rows).astype(float) if rng.random() < 0.5 else rng.normal(size=rows)
        gold[rng.random(rows) < 0.1] = np.nan
        reward[rng.random(rows) < 0.1] = np.nan
        weights = 1.0 / rng.uniform(0.1, 1.0, rows) if rng.random() < 0.5 else np.ones(rows)
        found = pair_agreement(gold, reward, starts, weights)
        for k, (first, stop) in enumerate(itertools.pairwise(starts)):
            expected = paired(gold[first:stop], reward[first:stop], weights[first:stop])
            assert found[k] == pytest.approx(expected, rel=1e-12, nan_ok=True)


def test_pair_agreement_does_not_grow_with_the_square_of_the_group() -> None:
    rng = np.random.default_rng(3)
    rows = 200_000  # 2 * 10^10 pairs
    gold = rng.random(rows)
    pair_agreement(gold[:10], gold[:10], np.array([0, 10]))
    began = time.process_time()
    assert pair_agreement(gold, gold, np.array([0, rows])).tolist() == [1.0]
    assert time.process_time() - began < 5.0


def test_win_chance_is_the_logistic_of_the_difference_and_knows_no_zero() -> None:
    rng = np.random.default_rng(4)
    a, b, shift = rng.normal(0, 30, (3, 500))
    assert win_chance(a, b) == pytest.approx(expit(a - b), rel=1e-12)
    assert win_chance(a, b) + win_chance(b, a) == pytest.approx(np.ones(500))
    assert win_chance(a + shift, b + shift) == pytest.approx(win_chance(a, b), rel=1e-9)
    with np.errstate(all="raise", under="ignore"):
        assert win_chance([1e308, -1e308], [0.0, 0.0]).tolist() == [1.0, 0.0]


def test_strengths_have_the_highest_likelihood_that_a_blind_search_finds() -> None:
    rng = np.random.default_rng(5)
    compared = 0
    for _ in range(700):
        n = int(rng.integers(2, 5))
        wins = rng.integers(0, 4, (n, n)).astype(float)
        np.fill_diagonal(wins, 0.0)
        parts = connected_components(csr_matrix(wins), connection="strong")[0]
        ridge = 0.1 if parts > 1 or rng.random() < 0.3 else 0.0

        def loss(s: Floats, wins: Floats = wins, ridge: float = ridge) -> float:
            gap = s[:, None] - s[None, :]
            return float((wins * np.logaddexp(0.0, -gap)).sum() + 0.5 * ridge * np.square(s).sum())

        fit = fit_strengths(wins, ridge)
        best = minimize(loss, np.zeros(n), method="BFGS", options={"gtol": 1e-9})
        assert loss(fit.strength) <= best.fun + 1e-9
        if len(set(fit.part)) == 1:
            # BFGS stops at the precision of its numerical gradient.
            assert fit.strength == pytest.approx(best.x - best.x.mean(), abs=2e-3)
            compared += 1
    assert compared > 500


def test_strengths_that_do_not_exist_are_refused_and_a_ridge_says_that_it_decided() -> None:
    rng = np.random.default_rng(6)
    for _ in range(500):
        n = int(rng.integers(2, 7))
        wins = (rng.random((n, n)) < 0.3).astype(float)
        np.fill_diagonal(wins, 0.0)
        weak, part = connected_components(csr_matrix(wins), connection="weak")
        strong = connected_components(csr_matrix(wins), connection="strong")[0]
        fit = fit_strengths(wins, ridge=0.01)
        assert len(set(zip(fit.part, part, strict=True))) == weak == len(set(fit.part))
        assert fit.unbounded == (strong > weak)
        assert np.isfinite(fit.strength).all()
        if fit.unbounded:
            with pytest.raises(ValueError, match="no finite strengths"):
                fit_strengths(wins)
        else:
            assert np.isfinite(fit_strengths(wins).strength).all()


def test_two_items_that_never_met_are_in_different_parts() -> None:
    wins = np.zeros((4, 4))
    wins[0, 1] = wins[1, 0] = 2
    wins[2, 3], wins[3, 2] = 3, 1
    fit = fit_strengths(wins)
    assert fit.part.tolist() == [0, 0, 1, 1]
    assert fit.strength == pytest.approx([0, 0, math.log(3) / 2, -math.log(3) / 2])


def test_win_share_counts_the_sample_below_and_half_of_the_ties() -> None:
    rng = np.random.default_rng(7)
    for _ in range(500):
        sample = rng.integers(0, 6, rng.integers(1, 20)).astype(float)
        values = rng.integers(-1, 7, 9).astype(float)
        weights = rng.uniform(0.5, 3.0, len(sample))
        weights[0] = 1.0
        sample[1:][rng.random(len(sample) - 1) < 0.2] = np.nan
        known = np.isfinite(sample)
        for given, weight in ((None, known.astype(float)), (weights, np.where(known, weights, 0.0))):
            beats = (values[:, None] > sample) + 0.5 * (values[:, None] == sample)
            expected = (beats * weight).sum(axis=1) / weight.sum()
            assert win_share(values, prepare_reference(sample, given)) == pytest.approx(expected, rel=1e-12)
    assert np.isnan(win_share(np.ones(2), prepare_reference(np.full(3, np.nan)))).all()
