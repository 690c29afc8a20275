"""Where a falling line crosses zero: with a confidence interval, or a refusal.

The arithmetic of every forecast: Fieller's interval for a ratio of regression coefficients, bootstraps, and tests of
whether a line describes its points. Distances are d = sqrt(KL(policy || reference)) per sequence, in root nats.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, erfc, inf, nan, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

POINTS = 8  # fewer cannot tell a curve from a line
REACH = 2.5  # a peak beyond this multiple of what was seen is not forecast
UNLIKELY = 0.01  # p-value at which a form is given up
DRAWS = 400


@dataclass(frozen=True, slots=True)
class Forecast:
    """Where gold is expected to peak, with the ends of its interval; or, in `refused`, why nothing is said.

    >>> Forecast.refusal("too early").holds
    False
    """

    peak: float
    low: float
    high: float
    refused: str = ""

    @property
    def holds(self) -> bool:
        return not self.refused

    @classmethod
    def refusal(cls, reason: str) -> Forecast:
        return cls(nan, nan, nan, reason)


def slope_forecast(
    at: ArrayLike, means: ArrayLike, counts: ArrayLike, *, cover: float = 0.8, reach: float = REACH
) -> Forecast:
    """Where the mean audited slope u crosses zero, on the axis `at`: gold peaks where its slope is 0.

    Weighted regression of the means of u on `at`, the crossing -a / b with Fieller's interval. Under an exact tilt the
    slope E[A g] is linear in d to first order, so `at` should be d where a KL is known, and the step where none is.
    Refused: fewer than 8 means; a trend that is not downward with confidence; a crossing beyond `reach` times the
    largest `at`; means that scatter around the line by more than neighbours do, or keep to one side of it for too long,
    p < .01.

    >>> at = np.arange(1.0, 41.0)
    >>> noise = np.random.default_rng(0).normal(0, 0.05, 40)
    >>> found = slope_forecast(at, 0.3 - 0.005 * at + noise, np.full(40, 10))
    >>> found.low < 60 < found.high, abs(found.peak - 60) < 10
    (True, True)
    """
    place, level, weight = (np.asarray(values, np.float64) for values in (at, means, counts))
    usable = np.isfinite(place) & np.isfinite(level) & (weight > 0.0)
    line = fit_crossing(place[usable], level[usable], weight[usable], cover, reach)
    return line if isinstance(line, Forecast) else line.crossing


@dataclass(frozen=True, slots=True)
class Crossing:
    """A forecast on the axis of a line, with bootstrap draws of where it crosses zero."""

    crossing: Forecast
    draws: Floats


def fit_crossing(at: Floats, level: Floats, weight: Floats, cover: float, reach: float) -> Forecast | Crossing:
    """The crossing of zero of a weighted line through means, with bootstrap draws of it; or the refusal."""
    if len(at) < POINTS or not np.ptp(at) > 0.0:
        return Forecast.refusal(f"the slope is known at {len(at)} places and is needed at {POINTS} different ones")
    root = np.sqrt(weight)
    design = np.column_stack((np.ones(len(at)), at)) * root[:, None]
    inverse = np.linalg.pinv(design.T @ design)
    line = inverse @ design.T @ (level * root)
    residuals = level * root - design @ line
    noise = float(residuals @ residuals) / (len(at) - 2)
    spread = np.asarray(noise * inverse, np.float64)
    z = normal_quantile(cover)
    if line[1] + z * sqrt(spread[1, 1]) >= 0.0:
        return Forecast.refusal("the slope does not fall with confidence: no peak in sight")
    if reason := _misfit_reason(at, residuals, root, noise):
        return Forecast.refusal(reason)
    peak = float(-line[0] / line[1])
    if peak > reach * at.max():
        return Forecast.refusal(f"the slope crosses zero beyond {reach:g} times what was seen: no peak in sight")
    # A crossing before the first measurement is reported at that one: nothing earlier was measured.
    first = float(at.min())
    low, high = fieller(line, spread, z)
    draws = np.maximum(ratio_draws(line, spread, np.random.default_rng(len(at))), first)
    return Crossing(Forecast(max(peak, first), max(low, first), max(high, first)), draws)


def _misfit_reason(at: Floats, residuals: Floats, root: Floats, noise: float) -> str:
    """Why the residuals of a line, pooled over up to 12 stretches of the axis, speak against it; empty if they do not.

    The scatter of single means is the yardstick, so that only what neighbours share counts.
    """
    if len(at) < 24 or noise <= 1e-20:
        return ""
    parts = np.array_split(np.argsort(at, kind="stable"), min(12, len(at) // 4))
    sums = np.array([float(residuals[part] @ root[part]) for part in parts])
    weights = np.array([float(root[part] @ root[part]) for part in parts])
    if chi_square_tail(float((sums**2 / weights).sum()) / noise, len(parts) - 2) < UNLIKELY:
        return "the slope's means scatter too widely around a line"
    return "the slope's means bend away from a line" if runs_test_tail(sums > 0.0) < UNLIKELY else ""


def block_covariance(solve: Floats, residuals: Floats, rng: np.random.Generator) -> Floats:
    """Covariance of a line's two coefficients over circular blocks of its residuals; `solve` maps points to them."""
    n = len(residuals)
    width = max(1, round(n ** (1 / 3)))
    starts = rng.integers(0, n, (DRAWS, -(-n // width)))
    index = (starts[:, :, None] + np.arange(width)).reshape(DRAWS, -1)[:, :n] % n
    noise = (residuals - residuals.mean())[index] * sqrt(n / max(n - 2, 1))
    return np.asarray(np.cov(noise @ solve.T, rowvar=False), np.float64)


def fieller(line: Floats, spread: Floats, z: float) -> tuple[float, float]:
    """All θ at which a + s θ is within z standard errors of 0; (-inf, inf) where that set is not an interval."""
    a, s = line
    square = s * s - z * z * spread[1, 1]
    half = a * s - z * z * spread[0, 1]
    within = half * half - square * (a * a - z * z * spread[0, 0])
    if square <= 0.0 or within < 0.0:
        return -inf, inf
    return float((-half - sqrt(within)) / square), float((-half + sqrt(within)) / square)


def ratio_draws(line: Floats, spread: Floats, rng: np.random.Generator) -> Floats:
    """Draws of -a / s; a draw whose line does not fall has no crossing, which counts as infinitely far."""
    lines = rng.multivariate_normal(line, spread, DRAWS)
    falls = lines[:, 1] < 0.0
    return np.where(falls, -lines[:, 0] / np.where(falls, lines[:, 1], -1.0), inf)


def chi_square_tail(chi_square: float, freedom: int) -> float:
    """P(chi² as large) by Wilson and Hilferty's cube root; 1 with no degree of freedom left."""
    if freedom < 1:
        return 1.0
    part = 2.0 / (9.0 * freedom)
    return 0.5 * erfc(((chi_square / freedom) ** (1 / 3) - 1.0 + part) / sqrt(2.0 * part))


def runs_test_tail(above: NDArray[np.bool_]) -> float:
    """P(as few runs of equal signs or fewer), exact, given how many signs there are of each (Wald and Wolfowitz)."""
    ups = int(above.sum())
    downs = len(above) - ups
    if not ups or not downs:
        return 1.0
    observed = 1 + int((above[1:] != above[:-1]).sum())
    ways = 0
    for runs in range(2, observed + 1):
        k, odd = divmod(runs, 2)
        ways += (
            comb(ups - 1, k) * comb(downs - 1, k - 1) + comb(ups - 1, k - 1) * comb(downs - 1, k)
            if odd
            else 2 * comb(ups - 1, k - 1) * comb(downs - 1, k - 1)
        )
    return ways / comb(ups + downs, ups)


def falls_back(distance: Floats) -> bool:
    """Whether d, averaged over up to 20 stretches, drops below an earlier stretch by a tenth of its range."""
    level = np.array([part.mean() for part in np.array_split(distance, min(20, len(distance)))])
    return bool((np.maximum.accumulate(level) - level).max() > 0.1 * np.ptp(level))


def normal_quantile(cover: float) -> float:
    """z with P(|Z| <= z) = cover for a standard normal, by bisection."""
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if erfc(middle / sqrt(2.0)) > 1.0 - cover else (low, middle)
    return 0.5 * (low + high)
