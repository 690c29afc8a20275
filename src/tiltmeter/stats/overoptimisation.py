"""Where will gold peak? The over-optimisation curve, the slope's crossing of zero, and a refusal where neither holds.

A forecast carries no guarantee: it extrapolates. It says how far the reward can still be trusted if what was seen goes
on, and it refuses rather than guess. Distances are d = sqrt(KL(policy || reference)) per sequence, in root nats.

Gao, Schulman and Hilton (2022, arXiv 2210.10760) fit gold's gain over the start as R = d (α - β ln d) under
reinforcement learning and R = d (α - β d) under best-of-n. They fitted reward model scores, which are unbounded, on
whole curves; here the fit is made before the peak is reached, on means of few labels, so most of the work is refusing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, sqrt
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from tiltmeter.stats.zero_crossing import (
    POINTS,
    REACH,
    UNLIKELY,
    Floats,
    Forecast,
    block_covariance,
    chi_square_tail,
    falls_back,
    fieller,
    normal_quantile,
    ratio_draws,
    runs_test_tail,
)

Form = Literal["rl", "best_of_n"]

NEAREST = 0.3  # root nats: the RL form has infinite slope at 0 and says nothing nearer
RATIO = 3.0  # largest over smallest distance, below which curvature is all extrapolation


@dataclass(frozen=True, slots=True)
class PeakFit:
    """One over-optimisation curve: R = d (α - β ln d) or d (α - β d), its peak, and how well it describes the points.

    `low` and `high` enclose the peak's distance at the asked cover; `high` is infinite where no peak is excluded.
    `lack_of_fit` and `runs` are p-values: of the points' scatter beyond their standard errors, and of as few sign
    changes among the residuals as were found.
    """

    form: Form
    alpha: float
    beta: float
    alpha_stderr: float
    beta_stderr: float
    peak: float
    peak_gain: float
    low: float
    high: float
    lack_of_fit: float
    runs: float


def fit(
    d: ArrayLike,
    gain: ArrayLike,
    stderr: ArrayLike,
    form: Form = "rl",
    *,
    start_stderr: float = 0.0,
    cover: float = 0.8,
    seed: int = 0,
) -> PeakFit:
    """The curve through gold's gains over the start, at distances d in the order in which they were measured.

    Linear weighted least squares of y = R / d = α - β x, x = ln d or d, with weights d² / stderr². The covariance comes
    from a bootstrap of blocks of neighbouring residuals, since points of one run move together, and is never taken
    smaller than the standard errors imply. `start_stderr` is the error of the start's own level, shared by all gains.
    The peak's interval is Fieller's for θ = α / β, or that of a parametric bootstrap, whichever is wider; mapped to
    d* = exp(θ - 1) or θ / 2. Best-of-n distances: `tilting.best_of_n_kl`.

    >>> d = np.linspace(0.5, 4.0, 12)
    >>> found = fit(d, d * (0.3 - 0.1 * np.log(d)), np.full(12, 0.01))
    >>> round(found.alpha, 6), round(found.beta, 6), round(found.peak, 4), round(found.peak_gain, 4)
    (0.3, 0.1, 7.3891, 0.7389)
    """
    distance, gains, errors = (np.asarray(values, np.float64) for values in (d, gain, stderr))
    if not (distance.shape == gains.shape == errors.shape and distance.ndim == 1 and len(distance) >= 3):
        raise ValueError("a curve needs at least three points, each with a distance, a gain and a standard error")
    if not ((distance > 0.0).all() and (errors > 0.0).all() and np.isfinite(gains).all()):
        raise ValueError("distances and standard errors must be above 0 and gains finite; leave other points out")
    weight = distance / errors  # square root of the weights
    x = np.log(distance) if form == "rl" else distance
    design = np.column_stack((np.ones(len(x)), x)) * weight[:, None]
    inverse = np.asarray(np.linalg.pinv(design.T @ design), np.float64)
    line = inverse @ design.T @ (gains / errors)
    residuals = gains / errors - design @ line
    rng = np.random.default_rng(seed)
    spread = _widest(line, inverse, block_covariance(inverse @ design.T, residuals, rng))
    shared = inverse @ design.T @ (1.0 / errors)
    spread = spread + start_stderr**2 * np.outer(shared, shared)
    z = normal_quantile(cover)
    low, high = _wider(fieller(line, spread, z), _draw_interval(line, spread, cover, rng))
    theta = float(-line[0] / line[1]) if line[1] != 0.0 else inf
    alpha, beta = float(line[0]), float(-line[1])
    peak = _distance(theta, form) if beta > 0.0 else inf
    return PeakFit(
        form=form,
        alpha=alpha,
        beta=beta,
        alpha_stderr=sqrt(spread[0, 0]),
        beta_stderr=sqrt(spread[1, 1]),
        peak=peak,
        peak_gain=beta * peak if form == "rl" else alpha * alpha / (4.0 * beta) if beta > 0.0 else inf,
        low=_distance(low, form),
        high=_distance(high, form),
        lack_of_fit=chi_square_tail(float(residuals @ residuals), len(x) - 2),
        runs=runs_test_tail(residuals > 0.0),
    )


def forecast_peak(
    d: ArrayLike,
    gain: ArrayLike,
    stderr: ArrayLike,
    form: Form = "rl",
    *,
    start: float | None = None,
    start_stderr: float = 0.0,
    cover: float = 0.8,
    seed: int = 0,
) -> Forecast:
    """The distance at which gold peaks by the fitted curve, or the reason why none is given.

    Refused: fewer than 8 points; largest over smallest d below 3; d that falls back as the run goes on; β's interval
    reaching 0; a peak beyond 2.5 times the largest d; residuals in too few runs or scattered too widely, p < .01; and,
    where `start` gives gold's level on [0, 1] at d = 0, a fit on the logit scale whose peak lies outside the interval:
    win rates and accuracies are bounded, so a curve that merely nears its ceiling bends on the one scale and not on the
    other. Under the RL form points nearer than 0.3 are left out.

    >>> d = np.linspace(0.4, 3.0, 14)
    >>> noise = np.random.default_rng(0).normal(0, 0.01, 14)
    >>> found = forecast_peak(d, d * (0.3 - 0.15 * d) + noise, np.full(14, 0.01), "best_of_n")
    >>> round(found.peak, 1), found.refused
    (1.0, '')
    >>> forecast_peak(d[:5], d[:5], d[:5]).refused
    'the curve has 5 points and needs 8'
    """
    distance, gains, errors = (np.asarray(values, np.float64) for values in (d, gain, stderr))
    usable = np.isfinite(distance) & np.isfinite(gains) & (errors > 0.0) & (distance > 0.0)
    if form == "rl":
        usable &= distance >= NEAREST
    distance, gains, errors = distance[usable], gains[usable], errors[usable]
    if len(distance) < POINTS:
        return Forecast.refusal(f"the curve has {len(distance)} points and needs {POINTS}")
    if distance.max() < RATIO * distance.min():
        return Forecast.refusal(f"distances span a factor of {distance.max() / distance.min():.2g}, below {RATIO:g}")
    if falls_back(distance):
        return Forecast.refusal("the KL to the reference has gone back, so distance does not order the run")
    curve = fit(distance, gains, errors, form, start_stderr=start_stderr, cover=cover, seed=seed)
    if curve.beta - normal_quantile(cover) * curve.beta_stderr <= 0.0:
        return Forecast.refusal("gold's curve does not bend down with confidence: no peak in sight")
    if curve.runs < UNLIKELY:
        return Forecast.refusal(f"residuals keep their sign for too long to fit this form (p = {curve.runs:.2g})")
    if curve.lack_of_fit < UNLIKELY:
        return Forecast.refusal(f"points scatter too widely around this form (p = {curve.lack_of_fit:.2g})")
    if curve.peak > REACH * distance.max():
        return Forecast.refusal(f"the peak would lie beyond {REACH:g} times the largest distance seen")
    if start is not None:
        level = np.clip(start + gains, 0.005, 0.995)
        first = float(np.clip(start, 0.005, 0.995))
        steep = level * (1.0 - level)
        bent = fit(distance, _logit(level) - float(_logit(np.array(first))), errors / steep, form, seed=seed)
        if not curve.low <= bent.peak <= curve.high:
            return Forecast.refusal("on the logit scale the peak lies elsewhere: gold may only be nearing its ceiling")
    return Forecast(curve.peak, curve.low, curve.high)


def _widest(line: Floats, first: Floats, second: Floats) -> Floats:
    """Of two covariances the one under which the ratio of the coefficients is less certain, to first order."""
    lever = np.array([1.0, -line[0] / line[1] if line[1] != 0.0 else 0.0])
    return first if lever @ first @ lever >= lever @ second @ lever else second


def _draw_interval(line: Floats, spread: Floats, cover: float, rng: np.random.Generator) -> tuple[float, float]:
    ends = np.quantile(ratio_draws(line, spread, rng), [(1 - cover) / 2, (1 + cover) / 2], method="nearest")
    return float(ends[0]), float(ends[1])


def _wider(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """The wider of two intervals."""
    return first if not first[1] - first[0] < second[1] - second[0] else second


def _distance(theta: float, form: Form) -> float:
    if form == "best_of_n":
        return max(0.0, 0.5 * theta)
    return float(np.exp(min(theta - 1.0, 700.0))) if theta < inf else inf


def _logit(chance: Floats) -> Floats:
    return np.asarray(np.log(chance / (1.0 - chance)), np.float64)
