"""The over-optimisation curve, the slope's crossing of zero, and that a forecast is refused where it does not hold."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from statsmodels.api import WLS
from statsmodels.sandbox.stats.runs import Runs

from tiltmeter.stats.overoptimisation import Form, fit, forecast_peak
from tiltmeter.stats.zero_crossing import (
    Floats,
    block_covariance,
    chi_square_tail,
    fieller,
    normal_quantile,
    runs_test_tail,
    slope_forecast,
)


def curve(d: Floats, alpha: float, beta: float, form: Form) -> Floats:
    return np.asarray(d * (alpha - beta * (np.log(d) if form == "rl" else d)), np.float64)


def noisy(form: Form, seed: int, peak: float, points: int = 16, noise: float = 0.004) -> tuple[Floats, Floats, Floats]:
    """A run seen from d = 0.35 to 2.2 whose curve peaks at `peak` with gain 0.25."""
    d = np.linspace(0.35, 2.2, points)
    beta = 0.25 / peak if form == "rl" else 0.25 / peak**2
    alpha = beta * (1.0 + np.log(peak)) if form == "rl" else 2.0 * beta * peak
    gain = curve(d, alpha, beta, form) + np.random.default_rng(seed).normal(0.0, noise, points)
    return d, gain, np.full(points, noise)


@pytest.mark.parametrize(("form", "peak"), [("rl", np.exp(0.5)), ("best_of_n", 0.75)])
def test_the_peak_of_an_exact_curve_is_found_where_its_derivative_is_zero(form: Form, peak: float) -> None:
    d = np.linspace(0.4, 2.0, 30)
    found = fit(d, curve(d, 0.3, 0.2, form), np.full(30, 0.01), form)
    assert [found.alpha, found.beta] == pytest.approx([0.3, 0.2])
    assert found.peak == pytest.approx(peak)
    assert found.peak_gain == pytest.approx(float(curve(np.array([peak]), 0.3, 0.2, form)[0]))
    fine = np.linspace(0.01, 4.0, 40_000)
    assert fine[np.argmax(curve(fine, found.alpha, found.beta, form))] == pytest.approx(peak, abs=1e-3)


def test_the_coefficients_are_those_of_weighted_least_squares() -> None:
    rng = np.random.default_rng(0)
    d, error = np.sort(rng.uniform(0.4, 4.0, 20)), rng.uniform(0.01, 0.05, 20)
    gain = curve(d, 0.4, 0.1, "rl") + rng.normal(0.0, error)
    found = fit(d, gain, error)
    oracle = WLS(gain / d, np.column_stack((np.ones(20), np.log(d))), weights=(d / error) ** 2).fit()
    assert [found.alpha, -found.beta] == pytest.approx(oracle.params.tolist())


def test_fieller_holds_the_true_ratio_as_often_as_it_says() -> None:
    rng = np.random.default_rng(1)
    line, spread = np.array([1.0, -0.5]), np.array([[0.02, -0.006], [-0.006, 0.005]])
    ends = [fieller(drawn, spread, normal_quantile(0.8)) for drawn in rng.multivariate_normal(line, spread, 4000)]
    assert np.mean([low <= 2.0 <= high for low, high in ends]) == pytest.approx(0.8, abs=0.02)


def test_the_interval_of_a_fit_covers_the_peak_and_widens_with_the_error_of_the_start() -> None:
    held = 0
    for seed in range(200):
        found = fit(*noisy("best_of_n", seed, 2.0), "best_of_n")
        held += found.low <= 2.0 <= found.high
    assert held >= 0.75 * 200
    narrow = fit(*noisy("best_of_n", 0, 2.0), "best_of_n")
    wide = fit(*noisy("best_of_n", 0, 2.0), "best_of_n", start_stderr=0.02)
    assert wide.high - wide.low > narrow.high - narrow.low


def test_a_fit_is_the_same_for_the_same_seed_and_its_bootstrap_depends_on_it() -> None:
    rng = np.random.default_rng(3)
    d = np.linspace(0.4, 3.0, 12)
    # Scatter above the standard errors: here the bootstrap decides the width.
    gain, error = curve(d, 0.3, 0.1, "rl") + rng.normal(0.0, 0.03, 12), np.full(12, 0.005)
    assert fit(d, gain, error, seed=1) == fit(d, gain, error, seed=1)
    assert fit(d, gain, error, seed=1).beta_stderr != fit(d, gain, error, seed=2).beta_stderr


def test_neighbouring_residuals_that_move_together_make_the_line_less_certain() -> None:
    rng = np.random.default_rng(4)
    x = np.linspace(-1.0, 1.0, 60)
    design = np.column_stack((np.ones(60), x))
    solve = np.asarray(np.linalg.pinv(design), np.float64)
    together = np.repeat(rng.normal(size=15), 4)
    apart = rng.permutation(together)
    assert block_covariance(solve, together, rng)[0, 0] > 1.5 * block_covariance(solve, apart, rng)[0, 0]


@pytest.mark.parametrize("form", ["rl", "best_of_n"])
def test_a_smooth_curve_seen_to_near_its_peak_is_forecast(form: Form) -> None:
    errors = []
    for seed in range(40):
        found = forecast_peak(*noisy(form, seed, 2.8), form, start=0.4)
        if found.holds:
            errors.append(abs(found.peak - 2.8) / 2.8)
    assert len(errors) >= 24
    assert np.median(errors) < 0.2


def test_every_reason_for_refusing_a_curve_is_given() -> None:
    d, gain, error = noisy("best_of_n", 0, 1.5)
    assert "needs 8" in forecast_peak(d[:7], gain[:7], error[:7], "best_of_n").refused
    assert "span a factor" in forecast_peak(d + 2.0, gain, error, "best_of_n").refused
    assert "gone back" in forecast_peak(np.concatenate((d[8:], d[:8])), gain, error, "best_of_n").refused
    assert "bend down" in forecast_peak(d, 0.1 * d, error, "best_of_n").refused
    assert "scatter" in forecast_peak(d, gain, error / 10.0, "best_of_n").refused
    far = curve(d, 0.3, 0.3 / 20.0, "best_of_n") + 1e-4 * np.random.default_rng(0).normal(size=16)
    assert "beyond 2.5 times" in forecast_peak(d, far, error / 10.0, "best_of_n").refused
    d = np.linspace(0.35, 2.2, 40)
    steps = np.where(d < 1.2, 0.2 * d, 0.24 - 0.05 * (d - 1.2))
    assert "keep their sign" in forecast_peak(d, steps, np.full(40, 0.05), "best_of_n").refused


def test_gold_that_only_nears_its_ceiling_is_refused_on_the_logit_scale() -> None:
    """On the logit scale these runs rise in a straight line: there is no peak, only saturation."""
    d = np.linspace(0.3, 3.0, 24)
    rng = np.random.default_rng(0)
    level = 1.0 / (1.0 + np.exp(-(-0.4 + 1.0 * d))) + rng.normal(0.0, 0.01, 24)
    start = 1.0 / (1.0 + np.exp(0.4))
    blind = forecast_peak(d, level - start, np.full(24, 0.01), "best_of_n")
    assert blind.holds
    assert "ceiling" in forecast_peak(d, level - start, np.full(24, 0.01), "best_of_n", start=start).refused


def test_unknown_points_are_left_out_and_points_near_the_start_too() -> None:
    d, gain, error = noisy("rl", 1, 1.6)
    more = forecast_peak(np.append(d, np.nan), np.append(gain, 0.1), np.append(error, 0.1))
    near = forecast_peak(np.append(0.1, d), np.append(0.4, gain), np.append(0.001, error))
    assert more == near == forecast_peak(d, gain, error)
    with pytest.raises(ValueError, match="leave other points out"):
        fit(np.append(d, 0.0), np.append(gain, 0.1), np.append(error, 0.1))


def test_a_slope_that_falls_is_forecast_and_one_that_does_not_is_refused() -> None:
    rng = np.random.default_rng(0)
    at = np.linspace(0.1, 1.5, 75)
    noise = rng.normal(0.0, 0.05, 75)
    assert slope_forecast(at, 0.3 * (1.0 - at / 2.0) + noise, np.full(75, 10)).peak == pytest.approx(2.0, rel=0.25)
    assert "does not fall" in slope_forecast(at, 0.3 + noise, np.full(75, 10)).refused
    assert "beyond 2.5 times" in slope_forecast(at, 2.0 - 0.3 * at + 0.1 * noise, np.full(75, 10)).refused
    assert "a line" in slope_forecast(at, 0.3 - 0.3 * (at > 0.8) + 0.02 * noise, np.full(75, 10)).refused
    assert "needed at 8" in slope_forecast(at[:7], -at[:7], np.full(7, 10)).refused


def test_the_slope_forecast_covers_the_crossing_as_often_as_it_says() -> None:
    rng = np.random.default_rng(2)
    at = np.linspace(0.05, 1.5, 150)
    found = [slope_forecast(at, 0.4 * (1 - at / 2) + rng.normal(0.0, 0.2, 150), np.full(150, 5)) for _ in range(300)]
    answered = [each for each in found if each.holds]
    assert len(answered) > 250
    assert np.mean([each.low <= 2.0 <= each.high for each in answered]) == pytest.approx(0.8, abs=0.07)
    assert np.median([abs(each.peak - 2.0) / 2.0 for each in answered]) < 0.2


def test_means_are_weighted_by_their_counts() -> None:
    at = np.arange(1.0, 13.0)
    level = 0.5 - 0.03 * at + np.tile([0.01, -0.01, 0.005, -0.005], 3)
    heavy = slope_forecast(np.repeat(at, 3), np.repeat(level, 3), np.ones(36))
    assert heavy.peak == pytest.approx(slope_forecast(at, level, np.full(12, 3)).peak)


def test_p_values_agree_with_scipy_and_statsmodels() -> None:
    for freedom in (3, 10, 40):
        for chance in (0.5, 0.05, 0.01):
            assert chi_square_tail(stats.chi2.isf(chance, freedom), freedom) == pytest.approx(chance, abs=0.004)
    assert normal_quantile(0.8) == pytest.approx(stats.norm.ppf(0.9))
    # By hand: of the six orders of two ups and two downs, two have as few as 2 runs and two more have 3.
    assert runs_test_tail(np.array([True, True, False, False])) == pytest.approx(2 / 6)
    assert runs_test_tail(np.array([True, False, False, True])) == pytest.approx(4 / 6)
    signs = np.random.default_rng(6).random(60) < 0.5
    z, _ = Runs(signs.astype(int)).runs_test(correction=False)
    assert runs_test_tail(signs) == pytest.approx(stats.norm.cdf(z), abs=0.08)
