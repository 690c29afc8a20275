"""A test of whether a level that had fallen is back: evidence at any time, with a proof. It decides when an alarm ends.

The null, of one reference: at every step since the alarm, what is expected of a value x is at most 0. For the level of
gold x is gold less what the reference was worth, plus a tolerance: gold is still lower than that by the tolerance or
more. A reference has an error of its own: its level θ was measured, and θ - μ = D. So x is lowered by d, with
P(-D > d) <= `NOISE`, and the claim is about μ.

Several references. A level is back when it is back against *every* stretch before the alarm. The truly best of them is
a fixed index, so the claim is wrong only if the one against it is: no correction for their number is needed. The same
holds for further conditions, as that the reward points towards gold again.

The bets. With -b the least x can be and λ of a grid, wealth is multiplied by 1 + λ x / b, whose mean is at most 1 under
the null; a group of values drawn without replacement has at most the mean of one drawn with it (Maclaurin), as in
`stats.level_drop`. New money enters every `block` steps, 1 / (j (j + 1)) at the j-th time, so that a level that comes
back late meets money that has not been lost. Money beyond what is needed is thrown away, and so is all gain at a
rewind: a level that was back and fell again is soon not back. By Ville's inequality wealth ever reaches 1 / `BETS` with
a chance of at most `BETS` (`stats.betting`; throwing money away keeps a supermartingale one). Together: an alarm whose
cause went on at every step ever ends so with a chance of at most `NOISE` + `BETS`, 5 %.

Why the promise of the alarm holds: when an alarm ends depends on the past alone, and the next one spends the next part
of α on what comes afterwards.

Source: own; bets as in Waudby-Smith & Ramdas 2010.09686.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.betting import GRID, add_instalment, evidence, initial_wealth
from tiltmeter.stats.running_mean import low_end

Floats = NDArray[np.float64]

NOISE = BETS = 0.025  # chances of a wrong end: by the reference's error, and by the bets
NEEDED = log(1.0 / BETS)
KEPT = 1.0  # of evidence beyond what is needed; more is thrown away
BLOCK = 10  # steps, after which new money enters
LEAST, MOST, SHARE = 0.02, 0.05, 0.25  # a tolerance, at least and at most; at most a share of a high level


def recovery_tolerance(loss: float, level: float) -> float:
    """How much lower a level may be and count as back: half of what was lost at the alarm, or less.

    >>> [round(recovery_tolerance(loss, 0.6), 3) for loss in (0.01, 0.1, 0.5)]
    [0.02, 0.05, 0.15]
    """
    return min(max(0.5 * loss, LEAST), max(MOST, SHARE * level))


def noise_of(variance: float, chance: float = NOISE) -> float:
    """How far below its level a mean of independent values is with this chance at most (Hoeffding).

    >>> round(noise_of(1 / (4 * 2560)), 3)
    0.027
    """
    return sqrt(2.0 * variance * log(1.0 / chance))


def residual_noise(residuals: Floats, chance: float) -> float:
    """How far the mean of independent values in [-1, 1] is below what is expected of them, with this chance at most.

    >>> round(residual_noise(np.tile([-0.4, 0.6], 100), 0.0125), 2)
    0.18
    """
    halves = 0.5 - 0.5 * np.asarray(residuals, np.float64)
    count, total = float(len(halves)), float(halves.sum())
    guesses = np.concatenate([[0.5], (0.5 + np.cumsum(halves)[:-1]) / (np.arange(len(halves) - 1) + 2.0)])
    scatter = float(((halves - guesses) ** 2).sum())
    low = float(low_end(*(np.array([number]) for number in (count, total, scatter, 1.0, chance)))[0])
    return 2.0 * (total / count - low)


@dataclass
class RecoveryBets:
    """A running bet that what is expected of x is above 0, where no x is below -`least`.

    >>> bets, rng = RecoveryBets(least=1.0), np.random.default_rng(0)
    >>> for step in range(60):
    ...     bets.place(rng.binomial(8, 0.3 if step < 20 else 0.6, 16) / 8 - 0.5)
    ...     if bets.is_won: break
    >>> 20 < step < 35
    True
    """

    least: float
    block: int = BLOCK
    _wealth: Floats = field(default_factory=initial_wealth, init=False, repr=False)
    _looks: int = field(default=0, init=False, repr=False)

    def place(self, xs: Floats, counts: Floats | float = 1.0) -> None:
        """The values of a step, each as many times as `counts` says."""
        xs = np.asarray(xs, np.float64)
        if not (xs >= -self.least - 1e-9).all():
            raise ValueError(f"a value below {-self.least:g} voids the test")
        if self._looks % self.block == 0:
            self._wealth = add_instalment(self._wealth, 1 + self._looks // self.block)
        self._looks += 1
        gains = np.log1p(np.outer(np.maximum(xs / self.least, -1.0), GRID))
        self._wealth = self._wealth + (gains * np.reshape(counts, (-1, 1))).sum(0)
        self._keep(NEEDED + KEPT)

    def _keep(self, most: float) -> None:
        excess = float(evidence(self._wealth)) - most
        if excess > 0.0:
            self._wealth = self._wealth - excess

    def rewind(self) -> None:
        """The run goes back: what spoke for it may be of steps that count no more."""
        if self._looks:
            self._keep(0.0)

    @property
    def is_won(self) -> bool:
        return bool(self._looks) and float(evidence(self._wealth)) >= NEEDED
