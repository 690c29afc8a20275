"""The local-level model: a running estimate of a mean that drifts from step to step (a scalar Kalman filter).

It decides where labels and bets go, never whether an alarm is raised: a poor estimate costs power, not validity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import erf, exp, pi, sqrt

PRIOR_SQUARE, PRIOR_COUNT = (
    0.3,
    5.0,
)  # of u before any was seen: pairs of coins that differ a little less than half the time


@dataclass
class LocalLevel:
    """A normal belief about the mean of u: a random walk seen through noise, so that old values fade.

    Source: own use of the local-level model (a scalar Kalman filter); the noise is estimated from the values.

    >>> drift = LocalLevel()
    >>> for _ in range(40):
    ...     drift.forecast()
    ...     drift.learn([-0.3, -0.1])
    >>> round(drift.centre, 1), drift.below(0.0) > 0.9, round(drift.depth(), 1)
    (-0.2, True, 0.2)
    """

    wander: float = 0.02  # standard deviation of a step of the walk
    centre: float = 0.15  # a healthy reward, before anything is known
    variance: float = 0.0625
    square: float = PRIOR_SQUARE * PRIOR_COUNT  # of the values seen, summed and slowly forgotten
    count: float = PRIOR_COUNT

    def forecast(self) -> None:
        """One step passes."""
        self.variance += self.wander**2

    def learn(self, values: Sequence[float]) -> None:
        """What the step showed."""
        n = len(values)
        if not n:
            return
        self.square = 0.99 * self.square + sum(value * value for value in values)
        self.count = 0.99 * self.count + n
        noise = self.noise / n
        gain = self.variance / (self.variance + noise)
        self.centre += gain * (sum(values) / n - self.centre)
        self.variance *= 1.0 - gain

    @property
    def noise(self) -> float:
        """Mean square of a value; never nothing, since a stretch of zeros does not make the next value a zero."""
        return max(self.square / self.count, 1e-4)

    def below(self, level: float) -> float:
        """The chance that the mean now lies below a level."""
        return _normal_cdf((level - self.centre) / sqrt(self.variance))

    def depth(self) -> float:
        """How far below 0 the mean lies, if it does: E[-mean | mean < 0]."""
        spread = sqrt(self.variance)
        at = -self.centre / spread
        if at < -6.0:
            return spread / -at  # far in the tail the conditional mean is about this, and the ratio below is 0 / 0
        return -self.centre + spread * exp(-at * at / 2.0) / sqrt(2.0 * pi) / _normal_cdf(at)


def _normal_cdf(at: float) -> float:
    return 0.5 * (1.0 + erf(at / sqrt(2.0)))
