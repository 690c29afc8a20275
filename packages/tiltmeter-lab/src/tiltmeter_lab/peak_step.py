"""At which step gold will peak, from distances, audited slopes and means of gold labels known so far."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite, sqrt

import numpy as np
from numpy.typing import ArrayLike

from tiltmeter.stats.overoptimisation import forecast_peak
from tiltmeter.stats.zero_crossing import (
    DRAWS,
    POINTS,
    REACH,
    Floats,
    Forecast,
    block_covariance,
    falls_back,
    fit_crossing,
    normal_quantile,
)

MASTERED = 0.9  # mean gold from which a slope fades because nothing is left to gain


def predict(
    steps: ArrayLike,
    root_kl: ArrayLike,
    u_steps: ArrayLike,
    u_values: ArrayLike,
    gold_steps: ArrayLike = (),
    gold_means: ArrayLike = (),
    gold_counts: ArrayLike = (),
) -> Forecast:
    """The step at which gold peaks, from all that is known now: distances, audited slopes u, and means of gold labels.

    The slope's crossing of zero on the axis d, inverted into steps. Each u is divided by the standard deviation of a
    gold label at that distance, sqrt(p (1 - p)) with p a line through the gold means: the crossing is the same, but a
    slope that fades only because a task is being mastered falls less. Where no u are known, the over-optimisation curve
    is fitted to the gold means instead; with ten labels a step that curve is too noisy to improve on the slope, so the
    two are not averaged. Refused as in `slope_forecast`, `forecast_peak` and `in_steps`, where d falls back, and where
    mean gold is at 0.9 or more.

    >>> steps = np.arange(80)
    >>> d = 0.1 * np.sqrt(steps)
    >>> noise = np.random.default_rng(0).normal(0, 0.05, 80)
    >>> found = predict(steps, d, steps, 0.4 * (1 - d) + noise)
    >>> found.refused, abs(found.peak - 100) < 20
    ('', True)
    """
    clock, distance = _in_step_order(steps, root_kl)
    if len(clock) < POINTS or not distance.max() > 0.0:
        return Forecast.refusal(f"a KL to the reference is known at {len(clock)} steps and is needed at {POINTS}")
    if falls_back(distance):
        return Forecast.refusal("the KL to the reference has gone back, so distance does not order the run")
    distance = isotonic_fit(distance)
    times, means, counts = _by_step(gold_steps, gold_means, gold_counts)
    where = np.interp(times, clock, distance)
    level = _fit_line(where, means, counts) if len(times) > 1 else None
    if level is not None and float(level(distance[-1:])[0]) >= MASTERED:
        return Forecast.refusal("gold is near its ceiling, where slopes fade without turning")
    audited, slopes, labels = _by_step(u_steps, u_values, np.ones(len(np.asarray(u_steps))))
    if not len(audited):
        return in_steps(_from_gold(where, means, counts), clock, distance)
    at = np.interp(audited, clock, distance)
    if level is not None:
        chance = np.clip(level(at), 0.03, 0.97)
        slopes = slopes / np.sqrt(chance * (1.0 - chance))
    line = fit_crossing(at, slopes, labels, 0.8, REACH)
    if isinstance(line, Forecast):
        return line
    return in_steps(line.crossing, clock, distance, draws=line.draws)


def _from_gold(where: Floats, means: Floats, counts: Floats) -> Forecast:
    """The curve through gold's means alone; the start is the first of them and those still at it, within 0.1 root nats.

    Averaging further would be steadier and wrong: gold rises steepest at the start.
    """
    if len(where) < POINTS:
        return Forecast.refusal(f"gold is known at {len(where)} steps and is needed at {POINTS}")
    early = (where <= 0.1) | (np.arange(len(where)) == 0)
    start = float(np.average(means[early], weights=counts[early]))
    variance = max(start * (1.0 - start), 0.01)
    if len(where) - early.sum() < POINTS:
        return Forecast.refusal(
            f"gold is known at {len(where) - early.sum()} steps after the start, of {POINTS} needed"
        )
    later = np.array_split(np.flatnonzero(~early), min(20, int((~early).sum())))
    size = np.array([counts[part].sum() for part in later])
    level = np.array([np.average(means[part], weights=counts[part]) for part in later])
    d = np.array([np.average(where[part], weights=counts[part]) for part in later])
    stderr = np.sqrt(np.maximum(level * (1.0 - level), 0.01) / size)
    origin = sqrt(variance / float(counts[early].sum()))
    return forecast_peak(d, level - start, stderr, start=start, start_stderr=origin)


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


def _fit_line(x: Floats, y: Floats, weight: Floats) -> Callable[[Floats], Floats]:
    middle, level = float(np.average(x, weights=weight)), float(np.average(y, weights=weight))
    square = float((weight * (x - middle) ** 2).sum())
    slope = float((weight * (x - middle) * (y - level)).sum()) / square if square > 0.0 else 0.0
    return lambda at: level + slope * (at - middle)


def _in_step_order(steps: ArrayLike, values: ArrayLike) -> tuple[Floats, Floats]:
    clock, series = np.asarray(steps, np.float64), np.asarray(values, np.float64)
    if clock.shape != series.shape:
        raise ValueError("every step needs one root KL, NaN where it is unknown")
    usable = np.flatnonzero(np.isfinite(series) & (series >= 0.0))
    order = usable[np.argsort(clock[usable], kind="stable")]
    return clock[order], series[order]


def _by_step(steps: ArrayLike, values: ArrayLike, counts: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Mean and total count of the finite values at each step that has any, in step order."""
    clock, value, weight = (np.asarray(each, np.float64) for each in (steps, values, counts))
    if not clock.shape == value.shape == weight.shape:
        raise ValueError("steps, values and counts must have the same length")
    usable = np.isfinite(value) & (weight > 0.0)
    places, index = np.unique(clock[usable], return_inverse=True)
    total = np.asarray(np.bincount(index, weight[usable], len(places)), np.float64)
    return places, np.bincount(index, weight[usable] * value[usable], len(places)) / total, total
