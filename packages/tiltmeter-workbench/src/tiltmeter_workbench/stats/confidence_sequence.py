"""A confidence sequence of a mean: an interval that may be looked at after every value and is valid at all of them.

Values lie in [0, 1]. For each mean m that is thought possible, somebody bets on the opposite: wealth is multiplied by
1 + λ(x - m) for a mean above m and by 1 - λ(x - m) for one below, with λ small enough that it never turns negative. If
m is the mean, wealth is a nonnegative martingale from 1, which ever reaches 1/α with chance at most α (Ville). The
means whose wealth has not reached it yet are the interval: it holds the true one at all times together with chance
1 - α (Waudby-Smith & Ramdas, JRSS B 2024, arXiv 2010.09686, with a mixture of fixed bets in place of tuned ones).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.running_mean import MeanInterval

Floats = NDArray[np.float64]

#: Bets as shares of the largest λ that is allowed, from cautious to bold, with equal money on each.
BETS = np.array([0.03, 0.06, 0.12, 0.25, 0.5, 0.9])
MEANS = 1000  # the interval is found to within 1 in so many
MOST = 1e150  # wealth that is told apart


def mean_sequence(values: Sequence[float] | Floats, alpha: float) -> Floats:
    """Mean, low and high after each value, a row each. Ends only ever come closer: what was excluded once stays so.

    >>> path = mean_sequence([1.0, 0.0, 1.0, 1.0] * 50, alpha=0.05)
    >>> path[-1].round(2).tolist(), bool((np.diff(path[:, 1]) >= 0.0).all())
    ([0.75, 0.64, 0.84], True)
    """
    x = np.asarray(values, np.float64)
    if x.ndim != 1 or not ((x >= 0.0) & (x <= 1.0)).all():
        raise ValueError("an interval that may be looked at any time needs values from 0 to 1")
    # Not the ends themselves: there the largest bet would be infinite. They are kept for as long as their neighbours.
    means = (np.arange(MEANS) + 0.5) / MEANS
    above, below = BETS[:, None] / means, BETS[:, None] / (1.0 - means)
    wealth = np.full((2, len(BETS), MEANS), 1.0 / (2.0 * len(BETS)))
    rows = np.full((len(x), 3), np.nan)
    alive = np.ones(MEANS, bool)
    half = 0.5 / MEANS
    so_far = np.cumsum(x) / np.arange(1, len(x) + 1)
    for at, value in enumerate(x):
        wealth[0] *= 1.0 + above * (value - means)
        wealth[1] *= 1.0 - below * (value - means)
        # Above the most that is told apart a mean is out for good; below the least, money is lost, which harms nobody.
        np.minimum(wealth, MOST, out=wealth)
        alive &= wealth.sum(axis=(0, 1)) < 1.0 / alpha
        indices = np.flatnonzero(alive)
        mean = float(so_far[at])
        if len(indices):
            rows[at] = mean, means[indices[0]] - half, means[indices[-1]] + half
        else:  # every mean was excluded, which has chance α: the last ends stay
            rows[at] = mean, *(rows[at - 1, 1:] if at else (0.0, 1.0))
    return rows


def mean_interval(values: Sequence[float] | Floats, alpha: float) -> MeanInterval:
    """The last row of `mean_sequence`: where it stands now, whoever looked before and however often.

    >>> [round(float(end), 2) for end in mean_interval([0.5] * 100, 0.05)]
    [0.5, 0.47, 0.53]
    """
    if not len(values):
        return MeanInterval(np.nan, 0.0, 1.0)
    mean, low, high = mean_sequence(values, alpha)[-1].tolist()
    return MeanInterval(mean, low, high)
