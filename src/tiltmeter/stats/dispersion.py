"""Whether bets of one step share something: step means that differ more than their bets explain.

A judge's mood, or one task a batch, moves all bets of a step together. A product over them then gains on average
although no bet is unfair. Neighbouring steps are compared, so a slow trend of the mean is not mistaken for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ENOUGH = 10  # pairs of neighbouring steps, before anything is concluded
LIMIT = 1.0  # standard errors by which the differences may exceed what bets explain
LARGEST = 9.0  # of one squared difference, in units of its expectation: one fall of gold is no dispersion
PRIOR_SQUARE, PRIOR_COUNT = 0.3, 5.0  # of bets around their step's mean, before any were seen


@dataclass
class StepDispersion:
    """A running test of equal means of neighbouring steps, against the variance of bets inside steps.

    With m and n bets in two steps and variance s² of a bet, the squared difference of the means is s² (1/m + 1/n) on
    average, and more if each step has an effect of its own. Pairs of steps with many bets count most.

    >>> rng, fair, moody = np.random.default_rng(0), StepDispersion(), StepDispersion()
    >>> for step in range(30):
    ...     bets = rng.choice([-1.0, 1.0], 16)
    ...     fair.learn(bets)
    ...     moody.learn((bets + rng.choice([-1.0, 1.0])) / 2.0)
    >>> fair.is_excessive, moody.is_excessive
    (False, True)
    """

    pairs: int = 0  # of neighbouring steps
    square: float = PRIOR_SQUARE * PRIOR_COUNT
    count: float = PRIOR_COUNT
    excess: float = 0.0  # sum of weighted ratios less what is expected
    weight: float = 0.0  # sum of squared weights
    _before: tuple[float, int] | None = None  # mean and number of the step before

    def learn(self, values: Floats) -> None:
        """What a step showed."""
        size = len(values)
        if not size:
            return
        mean = float(values.mean())
        self.square = 0.99 * self.square + float(np.square(values - mean).sum())
        self.count = 0.99 * self.count + size - 1
        if self._before is not None:
            spread = 1.0 / size + 1.0 / self._before[1]
            ratio = (mean - self._before[0]) ** 2 / (max(self.square / self.count, 1e-4) * spread)
            self.excess += (min(ratio, LARGEST) - 1.0) / spread
            self.weight += spread**-2
            self.pairs += 1
        self._before = mean, size

    @property
    def is_enough(self) -> bool:
        """Whether enough steps were seen to conclude anything."""
        return self.pairs >= ENOUGH

    @property
    def is_excessive(self) -> bool:
        # A squared normal has variance 2, and neighbours that share a step add half of it.
        return self.excess > LIMIT * sqrt(3.0 * self.weight)
