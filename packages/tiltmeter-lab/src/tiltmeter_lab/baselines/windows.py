"""Trailing windows over a series of steps, as monitoring rules use them; NaN until a window is full."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tiltmeter_lab.simulate import Ints
from tiltmeter_lab.worlds.world import Floats


def trailing(series: Floats, width: int) -> Floats:
    """For each step the last `width` values, the newest last; rows of NaN until there are so many.

    >>> trailing(np.array([1.0, 2.0, 4.0]), 2).tolist()
    [[nan, nan], [1.0, 2.0], [2.0, 4.0]]
    """
    rows = np.full((len(series), width), np.nan)
    if width <= len(series):
        rows[width - 1 :] = sliding_window_view(series, width)
    return rows


def trailing_mean(series: Floats, width: int) -> Floats:
    """Mean of the last `width` values of each step, along the first axis.

    >>> trailing_mean(np.array([1.0, 2.0, 4.0]), 2).tolist()
    [nan, 1.5, 3.0]
    """
    return np.asarray(trailing(series, width).mean(1), np.float64)


def cusum(z: Floats, slack: float) -> Floats:
    """Page's one-sided cumulative sum max(0, S + z - slack), from S = 0 at the first z that is not NaN.

    >>> cusum(np.array([np.nan, 1.0, 2.0, -5.0, 1.0]), 0.5).tolist()
    [nan, 0.5, 2.0, 0.0, 0.5]
    """
    finite = np.isfinite(z)
    path = np.cumsum(np.where(finite, z - slack, 0.0))
    # The reflected walk is the walk minus its lowest point so far, the start included.
    reflected = path - np.minimum(np.minimum.accumulate(path), 0.0)
    return np.where(np.maximum.accumulate(finite), reflected, np.nan)


def row_correlation(a: Floats, b: Floats) -> Floats:
    """Correlation of each row of `a` with the same row of `b`; NaN where either does not vary.

    >>> rows = np.array([[1.0, 2.0, 3.0], [1.0, 1.0, 1.0]])
    >>> row_correlation(rows, np.array([[2.0, 4.0, 6.0], [1.0, 2.0, 3.0]])).round(6).tolist()
    [1.0, nan]
    """
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    scale = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    varies = scale > 1e-12
    return np.where(varies, (a * b).sum(1) / np.where(varies, scale, 1.0), np.nan)


def by_step(step: Ints, values: Floats, steps: int) -> Floats:
    """Sum of the values of each step.

    >>> by_step(np.array([0, 0, 2]), np.array([1.0, 2.0, 4.0]), 3).tolist()
    [3.0, 0.0, 4.0]
    """
    return np.asarray(np.bincount(step, values, steps), np.float64)
