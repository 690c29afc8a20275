"""Change over time: the classic moving-average rule for reward hacking, kept as a baseline with its defects, and ours.

The classic rule compares relative trends of two moving averages. Its known defects, each with a test: under two windows
it answers 0, which reads as healthy, and leaves the alert out; it alerts while both series rise; a proxy that crosses
zero makes it explode, since the trend is relative to a level; and a slow hack never reaches its threshold.
"""

from __future__ import annotations

from math import hypot

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tiltmeter.stats.groups import clustered_mean

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def ma_trend(proxy: ArrayLike, true: ArrayLike, window: int = 100, total_length: int | None = None) -> float:
    """The divergence of the classic rule, or NaN where it cannot judge: under two windows, or with a gap in either.

    `total_length`: length of the whole series if only its last two windows are given; the answer is that of the whole.

    >>> t = np.arange(300)
    >>> round(ma_trend(0.1 + 0.002 * t, 0.5 + 0.001 * t), 3)
    0.342
    >>> ma_trend(t[:199], -t[:199])
    nan
    """
    series = [np.asarray(values, np.float64)[-2 * window :] for values in (proxy, true)]
    length = len(np.asarray(proxy)) if total_length is None else total_length
    if len(np.asarray(proxy)) != len(np.asarray(true)):
        raise ValueError("proxy and true must have the same length")
    if window < 1:
        raise ValueError("window must be at least 1")
    if length < 2 * window or not all(np.isfinite(values).all() for values in series):
        return float("nan")
    recent = min(window, (length - window + 1) // 2)
    trends = []
    for values in series:
        last = values[-window:].mean()
        end = len(values) - recent + 1
        first = values[end - window : end].mean()
        trends.append((last - first) / (abs(first) + 1e-8))
    divergence = float(trends[0] - trends[1])
    return max(0.0, divergence) if np.isfinite(divergence) else float("nan")


def mean_change(values: Floats, starts: Ints, before: Floats, before_starts: Ints) -> tuple[float, float]:
    """Change of a mean since before and its standard error, both samples clustered by group; NaN where unknown.

    >>> mean_change(np.array([4.0, 6.0]), np.arange(3), np.array([1.0, 3.0]), np.arange(3))
    (3.0, 1.4142135623730951)
    """
    now, _, error = clustered_mean(np.where(np.isfinite(values), values, np.nan), starts)
    then, _, error_then = clustered_mean(np.where(np.isfinite(before), before, np.nan), before_starts)
    if error is None or error_then is None:
        return now - then, float("nan")
    return now - then, hypot(error, error_then)
