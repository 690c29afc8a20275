"""Win chances and strengths against slow references and other libraries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.special import expit

from tiltmeter_workbench.stats.bradley_terry import Floats, fit_strengths, win_chance


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
