"""Where a falling line crosses zero, and at which step the run gets there: with confidence intervals, or a refusal.

The arithmetic of every forecast: Fieller's interval for a ratio of regression coefficients, bootstraps, tests of
whether a line describes its points, and the inversion from distance to steps. Distances are d = sqrt(KL(policy ||
reference)) per sequence, in root nats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import comb, erfc, inf, isfinite, nan, sqrt

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


def in_steps(forecast: Forecast, steps: ArrayLike, d: ArrayLike, *, draws: Floats | None = None) -> Forecast:
    """A forecast in distance, as the step at which the run gets there.

    Inside what was seen the step is read off, after d is made to never fall; beyond, ln d is fitted on ln t over the
    recent half of the run and inverted. Both errors are carried: `draws` are bootstrap draws of the peak's distance (by
    default normal, from the interval), each inverted by a draw of the fitted pace. Refused where the distance no longer
    grows.

    >>> t = np.arange(1, 101)
    >>> found = in_steps(Forecast(2.0, 1.8, 2.2), t, 0.1 * np.sqrt(t) * 1.4)
    >>> round(found.peak), round(found.low), round(found.high)
    (204, 165, 247)
    """
    if not forecast.holds:
        return forecast
    clock, distance = np.asarray(steps, np.float64), isotonic_fit(np.asarray(d, np.float64))
    pace = _pace(clock, distance)
    if pace is None:
        return Forecast.refusal("the KL to the reference no longer grows: at this pace no peak is reached")
    peak, low, high = (
        float(pace(np.array([value]), None)[0]) for value in (forecast.peak, forecast.low, forecast.high)
    )
    rng = np.random.default_rng(len(clock))
    if draws is None:
        spread = (
            (forecast.high - forecast.low) / (2.0 * normal_quantile(0.8)) if isfinite(forecast.high) else forecast.peak
        )
        draws = np.maximum(forecast.peak + spread * rng.standard_normal(DRAWS), 0.0)
    arrival_steps = pace(draws, rng)
    tails = np.quantile(arrival_steps, [0.1, 0.9], method="nearest")
    return Forecast(peak, min(low, float(tails[0]), peak), max(high, float(tails[1]), peak))


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


def _pace(clock: Floats, distance: Floats) -> Callable[[Floats, np.random.Generator | None], Floats] | None:
    """From distance to step; with a generator, each distance by a bootstrap draw of the pace beyond what was seen."""
    t = clock - clock[0] + 1.0
    recent = (t >= 0.5 * t[-1]) & (distance > 0.0)
    if recent.sum() < 3:
        return None
    x, y = np.log(t[recent]), np.log(distance[recent])
    middle = x.mean()
    design = np.column_stack((np.ones(len(x)), x - middle))
    inverse = np.linalg.pinv(design.T @ design)
    line = inverse @ design.T @ y
    residuals = y - design @ line
    if not line[1] > 0.05:  # slower than t^0.05 the run has stopped moving
        return None
    farthest = float(distance.max())

    def step_at(targets: Floats, rng: np.random.Generator | None) -> Floats:
        lines = np.tile(line, (len(targets), 1))
        if rng is not None:
            lines = lines + rng.multivariate_normal(
                np.zeros(2), block_covariance(inverse @ design.T, residuals, rng), len(targets)
            )
        with np.errstate(divide="ignore", over="ignore"):
            beyond = np.exp(middle + (np.log(targets) - lines[:, 0]) / np.maximum(lines[:, 1], 0.05)) + clock[0] - 1.0
        inside = np.interp(targets, distance, clock)
        return np.where(targets <= farthest, inside, np.maximum(beyond, clock[-1]))

    return step_at


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


def isotonic_fit(distance: Floats) -> Floats:
    """The nearest sequence that never falls (pool adjacent violators): what is left of the KL estimate's noise goes."""
    value: list[float] = []
    size: list[int] = []
    for d in distance.tolist():
        value.append(d)
        size.append(1)
        while len(value) > 1 and value[-2] > value[-1]:
            last, many = value.pop(), size.pop()
            value[-1] = (value[-1] * size[-1] + last * many) / (size[-1] + many)
            size[-1] += many
    return np.repeat(np.array(value), size)


def normal_quantile(cover: float) -> float:
    """z with P(|Z| <= z) = cover for a standard normal, by bisection."""
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if erfc(middle / sqrt(2.0)) > 1.0 - cover else (low, middle)
    return 0.5 * (low + high)
