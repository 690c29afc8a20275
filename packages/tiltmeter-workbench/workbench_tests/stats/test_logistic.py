"""Logistic regression and tests of pairs, against closed forms, other people's code and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import statsmodels.api as other
from scipy.optimize import minimize
from scipy.stats import binom, binomtest

from tiltmeter_workbench.stats.logistic import fit_logistic, out_of_fold, sigmoid
from tiltmeter_workbench.stats.paired_wins import fewest_pairs, p_value, shift, win_tails


def simulated(seed: int, n: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.column_stack((rng.normal(size=n), rng.normal(size=n) * 50.0, np.ones(n)))
    clusters = rng.integers(0, n // 4, n)
    logit = x @ [0.8, -0.02, 0.3] + rng.normal(size=n)[clusters]
    return x, (rng.random(n) < sigmoid(logit)).astype(np.float64), clusters


def test_two_by_two_gives_the_logs_of_the_odds() -> None:
    """30 of 40 won with the feature, 12 of 36 without: ln 3 and ln 1/2."""
    x = np.column_stack((np.repeat([1.0, 0.0], [40, 36]), np.repeat([0.0, 1.0], [40, 36])))
    y = np.concatenate((np.repeat([1.0, 0.0], [30, 10]), np.repeat([1.0, 0.0], [12, 24])))
    fit = fit_logistic(x, y)
    assert fit.coefficients == pytest.approx([math.log(3.0), math.log(0.5)], abs=1e-9)
    assert np.diag(fit.covariance) == pytest.approx([1 / 30 + 1 / 10, 1 / 12 + 1 / 24], rel=1e-9)
    assert not fit.separated


def test_agrees_with_statsmodels_by_hessian_and_by_clusters() -> None:
    x, y, clusters = simulated(1)
    ours = fit_logistic(x, y, clusters=clusters)
    model = other.Logit(y, x)
    plain = model.fit(disp=0)
    theirs = model.fit(disp=0, cov_type="cluster", cov_kwds={"groups": clusters})
    assert ours.coefficients == pytest.approx(plain.params, rel=1e-7)
    assert ours.covariance == pytest.approx(plain.cov_params(), rel=1e-6)
    assert ours.likelihood == pytest.approx(plain.llf, rel=1e-10)
    groups, n = ours.clusters, len(y)
    assert groups == len(set(clusters.tolist()))
    further = (n - 1) / (n - x.shape[1])  # statsmodels counts the columns too
    assert ours.robust * further == pytest.approx(theirs.cov_params(), rel=1e-6)


def test_the_ridge_is_that_of_a_direct_search_in_scaled_columns() -> None:
    x, y, _ = simulated(2, 60)
    scale = np.sqrt((x**2).mean(0))

    def loss(b: np.ndarray) -> float:
        logit = (x / scale) @ b
        return float(np.logaddexp(0.0, -logit)[y == 1].sum() + np.logaddexp(0.0, logit)[y == 0].sum() + 1.5 * b @ b)

    best = minimize(loss, np.zeros(3), tol=1e-12).x / scale
    assert fit_logistic(x, y, ridge=3.0).coefficients == pytest.approx(best, rel=1e-4)


def test_turning_comparisons_round_changes_nothing() -> None:
    x, y, clusters = simulated(3)
    turned = np.random.default_rng(0).random(len(y)) < 0.5
    sign = np.where(turned, -1.0, 1.0)
    straight = fit_logistic(x[:, :2], y, clusters=clusters)
    mixed = fit_logistic(x[:, :2] * sign[:, None], np.where(turned, 1.0 - y, y), clusters=clusters)
    all_won = fit_logistic(x[:, :2] * np.where(y == 1.0, 1.0, -1.0)[:, None], np.ones(len(y)), clusters=clusters)
    for one in (mixed, all_won):
        assert one.coefficients == pytest.approx(straight.coefficients, rel=1e-9)
        assert one.robust == pytest.approx(straight.robust, rel=1e-9)


def test_separation_is_noticed_and_nothing_is_infinite() -> None:
    x = np.random.default_rng(4).normal(size=(50, 2))
    apart = fit_logistic(x, (x[:, 0] > 0).astype(float))
    assert apart.separated
    assert np.isfinite(apart.coefficients).all() and np.isfinite(apart.robust).all()
    assert 0.5 < apart.coefficients[0] < 10.0
    # Only one column separates, on the few rows that have it.
    rare = np.zeros((50, 1))
    rare[:4] = 1.0
    y = (np.random.default_rng(5).random(50) < 0.5).astype(float)
    y[:4] = 1.0
    partly = fit_logistic(np.column_stack((x[:, :1], rare)), y)
    assert partly.separated and abs(partly.coefficients[1]) < 10.0
    assert not fit_logistic(x, y).separated


def test_columns_that_do_not_vary_or_vary_together_give_no_number() -> None:
    x, y, _ = simulated(6)
    for bad in (np.zeros((len(y), 1)), np.column_stack((x[:, 0], 3.0 * x[:, 0]))):
        assert np.isnan(fit_logistic(bad, y).coefficients).all()
    with pytest.raises(ValueError, match="finite"):
        fit_logistic(np.full((3, 1), np.nan), np.ones(3))


def test_intervals_by_clusters_cover_where_rows_repeat() -> None:
    """Every comparison stands in the file four times: the Hessian believes in four times the data, clusters do not."""
    inside = {"hessian": 0, "clusters": 0}
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(120, 1))
        y = (rng.random(120) < sigmoid(0.5 * x[:, 0])).astype(float)
        fit = fit_logistic(np.repeat(x, 4, axis=0), np.repeat(y, 4), clusters=np.repeat(np.arange(120), 4))
        for name, variance in (("hessian", fit.covariance[0, 0]), ("clusters", fit.robust[0, 0])):
            inside[name] += abs(float(fit.coefficients[0]) - 0.5) < 1.96 * math.sqrt(variance)
    assert inside["clusters"] >= 180
    assert inside["hessian"] < 150


def test_folds_never_share_a_prompt() -> None:
    """Labels belong to the prompt and columns name the prompt: whoever has seen it is always right, others never."""
    prompt = np.repeat(np.arange(40), 5)
    y = np.repeat(np.random.default_rng(7).integers(0, 2, 40), 5).astype(float)
    names = np.eye(40)[prompt] * 1.0
    held = out_of_fold(names, y, prompt, folds=8, ridge=0.1, seed=0)
    assert (held == 0.5).all()
    mixed = out_of_fold(names, y, np.arange(200), folds=8, ridge=0.1, seed=0)
    assert ((mixed > 0.5) == (y == 1.0)).mean() > 0.95
    with pytest.raises(ValueError, match="hold out"):
        out_of_fold(names, y, np.zeros(200, np.int64), folds=8, ridge=0.1, seed=0)


def test_tails_of_even_pairs_are_binomial() -> None:
    for n, wins in ((9, 3), (60, 41), (500, 230)):
        low, high = win_tails(np.full(n, 0.5), wins)
        assert low == pytest.approx(binom.cdf(wins, n, 0.5), rel=1e-9)
        assert high == pytest.approx(binom.sf(wins - 1, n, 0.5), rel=1e-9)
    many = win_tails(np.full(5_000, 0.3), 1_560)  # beyond the exact sizes
    assert many[1] == pytest.approx(binom.sf(1_559, 5_000, 0.3), rel=0.02)


def test_tails_of_uneven_pairs_are_those_of_drawing_them() -> None:
    chance = np.random.default_rng(8).random(15)
    drawn = (np.random.default_rng(9).random((200_000, 15)) < chance).sum(1)
    for wins in (4, 8, 11):
        low, high = win_tails(chance, wins)
        assert low == pytest.approx((drawn <= wins).mean(), abs=0.005)
        assert high == pytest.approx((drawn >= wins).mean(), abs=0.005)


def test_a_shift_of_even_odds_is_the_interval_of_clopper_and_pearson() -> None:
    theirs = binomtest(15, 20).proportion_ci(0.95, "exact")
    assert sigmoid(np.array(shift(np.zeros(20), 15, 0.05))) == pytest.approx([0.75, theirs.low, theirs.high], abs=1e-6)
    assert shift(np.zeros(9), 9, 0.05).high == 8.0
    assert shift(np.full(50, 1.0), 30, 0.05).estimate == pytest.approx(math.log(1.5) - 1.0, abs=1e-6)


def test_a_shift_covers_what_was_added_to_uneven_odds() -> None:
    rng, inside = np.random.default_rng(10), 0
    for _ in range(200):
        offset = rng.normal(size=40)
        wins = int((rng.random(40) < sigmoid(offset + 0.7)).sum())
        found = shift(offset, wins, 0.1)
        inside += found.low <= 0.7 <= found.high
    assert inside >= 174  # 180 expected at least; exact intervals are wider


def test_rare_things_need_no_part_of_alpha_and_the_rest_err_together_at_most_alpha() -> None:
    counts = np.array([3] * 500 + [12, 20, 40])
    fewest = fewest_pairs(counts, 0.05)
    assert 3 < fewest <= 12
    tested = counts[counts >= fewest]
    rng, errors = np.random.default_rng(11), 0
    for _ in range(400):
        wins = rng.binomial(tested, 0.5)
        ps = [p_value(np.full(n, 0.5), int(w)) for n, w in zip(tested.tolist(), wins.tolist(), strict=True)]
        errors += min(ps) <= 0.05 / len(tested)
    assert errors <= 30  # 20 expected at most
