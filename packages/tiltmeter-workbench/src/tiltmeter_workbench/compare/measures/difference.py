"""A difference between two models, paired by item: its interval, and whether it is a cost."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tiltmeter.stats.intervals import student_t_quantile
from tiltmeter_workbench.compare.measures.measure import State

Floats = NDArray[np.float64]

FEWEST = 8  # items; with fewer, no state is given: one odd item would decide


class Difference(NamedTuple):
    """Checkpoint minus base, averaged over the items that have a value of both."""

    base: float
    checkpoint: float
    value: float
    low: float
    high: float
    n: int

    def state(self, margin: float, *, more_is_worse: bool) -> State:
        """Worse or better if the interval leaves out 0 and the difference is beyond the margin; the same if the whole
        interval lies within it.

        >>> shares([0.0] * 60, [1.0] * 30 + [0.0] * 30, 0.05).state(0.05, more_is_worse=True)
        'worse'
        >>> shares([0.0] * 100, [0.0] * 100, 0.05).state(0.05, more_is_worse=True)
        'same'
        >>> shares([0.0] * 10, [0.0] * 10, 0.05).state(0.05, more_is_worse=True)
        'cannot tell'
        """
        if self.n < FEWEST or not math.isfinite(self.low):
            return "cannot tell"
        if self.low > 0.0 and self.value > margin:
            return "worse" if more_is_worse else "better"
        if self.high < 0.0 and self.value < -margin:
            return "better" if more_is_worse else "worse"
        return "same" if -margin <= self.low and self.high <= margin else "cannot tell"


def shares(base: ArrayLike, checkpoint: ArrayLike, alpha: float) -> Difference:
    """The difference of values between 0 and 1, one per item and model: yes or no, or the share of several samples.

    Two items are added, one that changed each way, before the mean and its standard error are taken: the adjusted
    interval of Bonett and Price for paired shares (J. Educ. Behav. Stat. 37, 2012), with several samples clustered by
    item. Where nothing changed it is not a point, and where all changes go one way it leaves out 0 exactly where
    McNemar's exact test does, or later (asserted in the tests).

    >>> found = shares([0, 0, 0, 1] * 15, [1, 1, 0, 1] * 15, 0.05)
    >>> [round(end, 2) for end in found]
    [0.25, 0.75, 0.5, 0.35, 0.62, 60]
    """
    a, b = _paired(base, checkpoint)
    n, d = len(a), b - a
    if n < 2:
        return Difference(_mean(a), _mean(b), _mean(d), math.nan, math.nan, n)
    middle = float(d.sum()) / (n + 2)
    spread = max((float(np.square(d).sum()) + 2.0) / (n + 2) - middle**2, 0.0)
    reach = student_t_quantile(n + 1, 1.0 - alpha) * math.sqrt(spread / (n + 2))
    return Difference(_mean(a), _mean(b), _mean(d), max(-1.0, middle - reach), min(1.0, middle + reach), n)


def means(base: ArrayLike, checkpoint: ArrayLike, alpha: float) -> Difference:
    """The difference of values of any size: Student's interval over items.

    >>> found = means([1.0, 2.0, 3.0], [2.0, 3.5, 4.5], 0.05)
    >>> round(found.value, 3), round(found.low, 2), round(found.high, 2)
    (1.333, 0.62, 2.05)
    """
    a, b = _paired(base, checkpoint)
    n, d = len(a), b - a
    if n < 2:
        return Difference(_mean(a), _mean(b), _mean(d), math.nan, math.nan, n)
    reach = student_t_quantile(n - 1, 1.0 - alpha) * float(d.std(ddof=1)) / math.sqrt(n)
    return Difference(_mean(a), _mean(b), _mean(d), float(d.mean()) - reach, float(d.mean()) + reach, n)


def percent(share: float) -> str:
    """A share in percent.

    >>> percent(0.125), percent(-0.04), percent(math.nan)
    ('12.5 %', '-4.0 %', 'unknown')
    """
    return f"{100.0 * share:.1f} %" if math.isfinite(share) else "unknown"


def _paired(base: ArrayLike, checkpoint: ArrayLike) -> tuple[Floats, Floats]:
    a, b = np.asarray(base, np.float64), np.asarray(checkpoint, np.float64)
    both = np.isfinite(a) & np.isfinite(b)
    return a[both], b[both]


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else math.nan
