"""Slopes inside prompt groups against statsmodels with one intercept per prompt."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm

from tiltmeter.stats.groups import clustered_mean
from tiltmeter.stats.regression import Floats, Ints, linear_weights, slopes_on, within_line, within_slope


def drawn(rng: np.random.Generator, width: int) -> tuple[Floats, Floats, Ints]:
    """y, features and starts of a few groups of two or more, with group levels that would mislead a pooled slope."""
    sizes = rng.integers(2, 7, rng.integers(2, 7))
    starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    level = np.repeat(rng.normal(0, 5, len(sizes)), sizes)
    features = rng.normal(size=(starts[-1], width)) + level[:, None]
    y = features @ rng.normal(size=width) - 9.0 * level + rng.normal(size=starts[-1]) * rng.exponential(size=starts[-1])
    return y, features, starts


def least_squares(y: Floats, x: Floats, starts: Ints) -> tuple[float, float]:
    """Slope and cluster-robust standard error of statsmodels, its factor (n - 1) / (n - k - m) taken out."""
    prompt = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    dummies = (prompt[:, None] == np.unique(prompt)).astype(float)
    design = np.column_stack((x, dummies))
    fitted = sm.OLS(y, design).fit(cov_type="cluster", cov_kwds={"groups": prompt, "use_correction": True})
    n, parameters = design.shape
    return float(fitted.params[0]), float(fitted.bse[0] / np.sqrt((n - 1) / (n - parameters)))


def test_slopes_and_standard_errors_are_those_of_least_squares_with_an_intercept_per_prompt() -> None:
    rng = np.random.default_rng(0)
    compared = 0
    while compared < 500:
        y, features, starts = drawn(rng, int(rng.integers(1, 4)))
        if len(y) <= len(starts):
            continue  # no residual degrees of freedom: statsmodels has no standard error either
        x, ys = features[:, 0], np.column_stack((y, features[:, 1:]))
        found = slopes_on(ys, x, starts)
        expected = [least_squares(each, x, starts) for each in ys.T]
        assert found.slope == pytest.approx([slope for slope, _ in expected], rel=1e-7, abs=1e-9)
        assert found.stderr == pytest.approx([stderr for _, stderr in expected], rel=1e-6, abs=1e-9)
        compared += 1


def test_the_mean_of_the_influences_is_the_slope_and_their_spread_its_standard_error() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        y, features, starts = drawn(rng, 2)
        found = slopes_on(np.column_stack((y, features[:, 1])), features[:, 0], starts)
        for k in range(2):
            mean, n, stderr = clustered_mean(found.influence[:, k], np.arange(len(starts)))
            assert mean == pytest.approx(found.slope[k], rel=1e-9, abs=1e-12)
            assert n == len(starts) - 1
            assert stderr == pytest.approx(found.stderr[k], rel=1e-9, abs=1e-12)


def test_several_y_on_one_feature_equal_one_at_a_time() -> None:
    rng = np.random.default_rng(2)
    for _ in range(500):
        y, features, starts = drawn(rng, 3)
        together = slopes_on(np.column_stack((y, features[:, 1:])), features[:, 0], starts)
        for k, each in enumerate((y, features[:, 1], features[:, 2])):
            slope, stderr, influence = within_slope(each, features[:, 0], starts)
            assert together.slope[k] == pytest.approx(slope, rel=1e-9, abs=1e-12)
            assert together.stderr[k] == pytest.approx(stderr, rel=1e-9, abs=1e-12)
            assert together.influence[:, k] == pytest.approx(influence, rel=1e-9, abs=1e-12)


def test_a_row_without_a_value_is_as_if_it_were_not_there() -> None:
    rng = np.random.default_rng(3)
    for _ in range(200):
        y, features, starts = drawn(rng, 2)
        lost = rng.random(len(y)) < 0.2
        lost[:2] = False
        holed = np.where(lost, np.nan, y)
        kept = np.concatenate(([0], np.cumsum(np.add.reduceat((~lost).astype(int), starts[:-1]))))
        filled = np.diff(kept) > 0
        short = slopes_on(y[~lost, None], features[~lost, 0], np.unique(kept))
        whole = slopes_on(holed[:, None], features[:, 0], starts)
        assert whole.slope == pytest.approx(short.slope, rel=1e-9, nan_ok=True)
        assert whole.stderr == pytest.approx(short.stderr, rel=1e-9, nan_ok=True)
        assert np.isnan(whole.influence[~filled]).all()
        assert whole.influence[filled] == pytest.approx(short.influence, rel=1e-9, nan_ok=True)


def test_a_group_of_one_has_no_say() -> None:
    rng = np.random.default_rng(8)
    y, features, starts = drawn(rng, 2)
    lonely = np.append(starts, [starts[-1] + 1, starts[-1] + 2])
    alone = slopes_on(y[:, None], features[:, 0], starts)
    found = slopes_on(np.append(y, [50.0, -50.0])[:, None], np.append(features[:, 0], [1.0, 1.0]), lonely)
    assert found.slope == pytest.approx(alone.slope, rel=1e-9)
    assert found.stderr == pytest.approx(alone.stderr, rel=1e-9)
    assert np.isnan(found.influence[-2:]).all()


def test_a_slope_that_rests_on_one_group_has_no_standard_error() -> None:
    x = np.array([0.0, 1.0, 0.1, 0.1, 0.1, 700.3, 700.3, 700.3])
    slope, stderr, influence = within_slope(np.arange(8.0), x, np.array([0, 2, 5, 8]))
    assert slope == 1.0
    assert np.isnan(stderr)
    assert np.isnan(influence).tolist() == [False, True, True]
    mean, n, error = clustered_mean(influence, np.arange(4))
    assert (mean, n, error) == (1.0, 1, None)


def test_what_does_not_vary_has_no_slope() -> None:
    starts = np.array([0, 3, 6])
    x = np.array([0.0, 1.0, 2.0, 5.0, 6.0, 9.0])
    y = 2.0 * x
    assert np.isnan(within_slope(y, np.repeat([3.0, 7.0], 3) + 0.1, starts)[0])
    assert np.isnan(within_slope(y, np.repeat([0.1, 0.3], 3), starts)[0])
    assert np.isnan(within_slope(y, x, np.arange(7))[0])
    assert np.isnan(within_slope(y[:0], x[:0], np.zeros(1, np.int64))[0])
    assert within_slope(np.full(6, 0.3), x, starts)[0] == 0.0


def test_one_group_has_a_slope_and_no_standard_error() -> None:
    slope, stderr, influence = within_slope(np.array([1.0, 3.0]), np.array([0.0, 1.0]), np.array([0, 2]))
    assert (slope, influence.tolist()) == (2.0, [2.0])
    assert np.isnan(stderr)


def test_rewards_near_the_square_root_of_the_largest_float_have_a_slope() -> None:
    rng = np.random.default_rng(4)
    y, features, starts = drawn(rng, 1)
    with np.errstate(all="raise", under="ignore"):
        large = within_slope(y * 1e200, features[:, 0], starts)[0]
    assert large == pytest.approx(within_slope(y, features[:, 0], starts)[0] * 1e200, rel=1e-9)


def test_the_line_goes_through_the_means_with_the_slope_inside_groups() -> None:
    rng = np.random.default_rng(5)
    y, features, starts = drawn(rng, 1)
    y[0] = np.nan
    line = within_line(y, features[:, 0], starts)
    assert line.slope == within_slope(y, features[:, 0], starts)[0]
    assert np.nanmean(line.residual(y, features[:, 0])) == pytest.approx(0.0, abs=1e-9)
    assert np.isnan(within_line(np.full(2, np.nan), np.ones(2), np.array([0, 2])).slope)


def test_weights_of_a_sum_are_found_exactly_also_where_parts_did_not_score() -> None:
    rng = np.random.default_rng(6)
    for _ in range(500):
        rows, width = int(rng.integers(12, 40)), int(rng.integers(1, 5))
        parts = rng.normal(rng.normal(0, 10, width), rng.exponential(size=width) + 0.1, size=(rows, width))
        parts[rng.random(parts.shape) < 0.2] = np.nan
        weights = rng.normal(size=width)
        total = np.nansum(parts * weights, axis=1) + rng.normal()
        total[0] = np.nan
        assert linear_weights(total, parts) == pytest.approx(weights, rel=1e-6, abs=1e-8)


def test_parts_that_cannot_be_told_apart_share_their_weight_and_a_constant_part_has_none() -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=20)
    found = linear_weights(3.0 * x + 1.0, np.column_stack((x, x, np.full(20, 0.1))))
    assert found == pytest.approx([1.5, 1.5, 0.0])
    assert np.isnan(linear_weights(np.array([1.0, np.nan]), np.ones((2, 2)))).all()
