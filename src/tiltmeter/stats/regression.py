"""Slopes inside prompt groups, with standard errors that treat the prompt as the unit drawn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROUNDING = 1e-18  # a group's sum of squares, largest deviation 1, below which the feature is constant there
SINGULAR = 1e-10  # share of the largest singular value below which parts cannot be told apart


class Slopes(NamedTuple):
    """One slope per y, its standard error, and what each group says about it (groups x ys)."""

    slope: Floats
    stderr: Floats
    influence: Floats


class RegressionLine(NamedTuple):
    """The line through the means of x and y whose slope is the one inside groups."""

    y: float
    x: float
    slope: float

    def residual(self, y: Floats, x: Floats) -> Floats:
        """What of y the line does not explain."""
        return y - self.y - self.slope * (x - self.x)


def slopes_on(ys: Floats, x: Floats, starts: Ints) -> Slopes:
    """Least squares inside groups of several y (rows x ys), each on the one feature x, in one pass.

    Every group has its own intercept, all share the slope b = Σ_g s_g / B, with B = Σ_g S_g and S_g, s_g the sums of
    squares and of products of deviations from the group's means. The variance is the cluster sandwich
    Σ_g e_g² / B² · m / (m - 1), with e_g = s_g - S_g b and m groups; statsmodels has a further factor
    (n - 1) / (n - 1 - m), which counts the intercepts (Cameron & Miller 2015). The influence of group g is
    b + m e_g / B: its mean over groups is b exactly, and the standard error of that mean is the sandwich, so whoever
    averages influences gets both right.

    Groups in which the feature does not vary say nothing: influence NaN, not counted in m. (Counted, they would make
    the standard error of a slope that rests on one group 0.) All is NaN where the feature does not vary inside any
    group; the standard error is NaN with fewer than two groups.

    >>> ys = np.array([[1.0, 0.0], [3.0, 1.0], [5.0, 7.0]])
    >>> slopes_on(ys, np.array([0.0, 1.0, 9.0]), np.array([0, 2, 3])).influence.tolist()
    [[2.0, 1.0], [nan, nan]]
    """
    groups, width = max(len(starts) - 1, 0), ys.shape[1]
    nothing = Slopes(np.full(width, np.nan), np.full(width, np.nan), np.full((groups, width), np.nan))
    table = np.column_stack((x, ys))
    centred, scale = _centred(table, starts)
    if groups == 0 or not scale[0] > 0.0:
        return nothing
    products = np.add.reduceat(centred * centred[:, :1], starts[:-1], axis=0)
    total = products[:, 0].sum()
    slope = products[:, 1:].sum(axis=0) / total
    usable = products[:, 0] > ROUNDING
    m = int(usable.sum())
    deviations = m * (products[:, 1:] - products[:, :1] * slope) / total
    back = scale[1:] / scale[0]
    influence = np.where(usable[:, None], (slope + deviations) * back, np.nan)
    return Slopes(slope * back, _spread(deviations[usable]) * back, influence)


def within_slope(y: Floats, x: Floats, starts: Ints) -> tuple[float, float, Floats]:
    """`slopes_on` of one y: slope, standard error, influence of each group.

    >>> within_slope(np.array([1.0, 3.0, 5.0]), np.array([0.0, 1.0, 9.0]), np.array([0, 2, 3]))
    (2.0, nan, array([ 2., nan]))
    """
    slope, stderr, influence = slopes_on(y[:, None], x, starts)
    return float(slope[0]), float(stderr[0]), influence[:, 0]


def within_line(y: Floats, x: Floats, starts: Ints) -> RegressionLine:
    """The line through the means of the complete rows, with the slope inside groups; NaN where there is none.

    >>> line = within_line(np.array([1.0, 3.0, 10.0, 12.0]), np.array([0.0, 1.0, 0.0, 1.0]), np.array([0, 2, 4]))
    >>> line, line.residual(np.array([7.5]), np.array([1.5])).tolist()
    (RegressionLine(y=6.5, x=0.5, slope=2.0), [-1.0])
    """
    complete = np.isfinite(y) & np.isfinite(x)
    if not complete.any():
        return RegressionLine(np.nan, np.nan, np.nan)
    return RegressionLine(float(y[complete].mean()), float(x[complete].mean()), within_slope(y, x, starts)[0])


def linear_weights(total: Floats, parts: Floats) -> Floats:
    """Weights w with total ≈ constant + parts @ w by least squares over the rows that have a total.

    Exact when the total is such a sum. A part that did not score a row adds nothing to its total there, as trainers
    sum them. A part that never varies gets 0; parts that always move together share their weight, since nothing can
    tell them apart. NaN without two rows.

    >>> parts = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, np.nan], [0.0, 0.0]])
    >>> linear_weights(np.array([2.5, 1.0, 2.5, 0.5]), parts).round(12).tolist()
    [2.0, 0.5]
    """
    scored = np.isfinite(total)
    if scored.sum() < 2:
        return np.full(parts.shape[1], np.nan)
    x = np.where(np.isfinite(parts[scored]), parts[scored], 0.0)
    middle = x.mean(axis=0)
    x = x - middle
    y = total[scored] - total[scored].mean()
    scale = np.abs(x).max(axis=0)
    scale[scale <= 1e-12 * np.abs(middle)] = 0.0
    varies = scale > 0.0
    size = float(np.abs(y).max()) or 1.0
    weights = np.zeros(parts.shape[1])
    if varies.any():
        weights[varies] = np.linalg.lstsq(x[:, varies] / scale[varies], y / size, rcond=SINGULAR)[0]
        weights[varies] *= size / scale[varies]
    return weights


def _centred(table: Floats, starts: Ints) -> tuple[Floats, Floats]:
    """Deviations from group means over complete rows, each column divided by its largest; and the largest.

    Divided, because squares of large rewards overflow. A column that only varies by rounding has largest deviation 0.
    """
    if len(starts) < 2:
        return table, np.zeros(table.shape[1])
    complete = np.asarray(np.isfinite(table).all(axis=1))[:, None]
    rows = np.where(complete, table, 0.0)
    counts = np.add.reduceat(complete[:, 0].astype(np.int64), starts[:-1])
    mean = np.add.reduceat(rows, starts[:-1], axis=0) / np.maximum(counts, 1)[:, None]
    rows = np.where(complete, rows - np.repeat(mean, np.diff(starts), axis=0), 0.0)
    scale = np.abs(rows).max(axis=0)
    scale[scale <= 1e-12 * np.abs(mean).max(axis=0)] = 0.0
    varies = scale > 0.0
    return np.where(varies, rows / np.where(varies, scale, 1.0), 0.0), scale


def _spread(deviations: Floats) -> Floats:
    """Standard error of a mean of groups, from their deviations from it; NaN with fewer than two."""
    m = len(deviations)
    return np.sqrt(np.square(deviations).sum(axis=0) / (m * (m - 1))) if m > 1 else np.full(deviations.shape[1], np.nan)
