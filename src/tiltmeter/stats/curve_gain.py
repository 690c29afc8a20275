"""What a logged curve has gained at least between two stretches of a run, when nothing but its points is known.

Assumed, and not provable from the curve: around its course a point scatters alike everywhere, and points further
apart than five scatter independently. The noise of a point is the largest of those seen in second differences of
points 1, 2 and 5 apart, so that a smoothed curve does not look certain; five neighbours count as one point. The gain
is taken four standard errors low: about one in 30,000 at one look, which is meant to cover the looks of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

import numpy as np

LAGS = (1, 2, 5)
NEIGHBOURS = 5  # points that count as one
ERRORS = 4.0
LEAST_POINTS = 8
UNIT = 0.2  # what a sure gain counts for on a scale that is not [0, 1], where no size can be known


def curve_gain(curve: Sequence[float], before: Sequence[float], after: Sequence[float]) -> tuple[float, float] | None:
    """The gain from `before` to `after`, and its low end; None with too few points. In [0, 1] in the curve's own unit;
    elsewhere a gain that is sure counts 0.2, and one that is not 0.

    >>> rise = [0.2 + 0.01 * t + 0.01 * (-1) ** t for t in range(40)]
    >>> [round(end, 2) for end in curve_gain(rise, rise[:5], rise[-5:])]
    [0.35, 0.25]
    >>> [round(end, 2) for end in curve_gain([100 * y for y in rise], [20.0] * 5, [55.0] * 5)]
    [0.2, 0.2]
    """
    values = np.asarray(curve, np.float64)
    if len(values) < LEAST_POINTS or not before or not after:
        return None
    # Second differences: a course that rises, however fast, is no noise, and one that bends hardly.
    bends = [values[2 * lag :] - 2.0 * values[lag:-lag] + values[: -2 * lag] for lag in LAGS if 2 * lag < len(values)]
    noise = max(sqrt(float(np.mean(bend**2)) / 6.0) for bend in bends)
    parts = [max(len(part) / NEIGHBOURS, 1.0) for part in (before, after)]
    gained = float(np.mean(after) - np.mean(before))
    low = gained - ERRORS * noise * sqrt(sum(1.0 / part for part in parts))
    if ((values >= 0.0) & (values <= 1.0)).all():
        return gained, low
    return (UNIT, UNIT) if low > 0.0 else (0.0, 0.0)
