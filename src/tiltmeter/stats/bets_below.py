"""Bets that gold is below a level that is itself only known with an error, which is priced in.

Given are a level θ with an unknown error D, and a promise about it: a mixture over total stakes L_i with costs C_i so
that E Σ_i w_i exp(L_i D - C_i) <= 1. Each later group gives u with E[u] >= -δ - D while the null holds, u <= top. With
stakes λ fixed before a step, M = Π (1 - λ (u + δ)) and Λ = Σ λ, the wealth is

    Z = M min over D of Σ_i w_i exp((L_i - Λ) D - C_i).

Who uses it proves the promise and E[u]: `stats.level_drop` where everything is labelled, `stats.sampled_level` where
a part is. Source: own; bets as in Waudby-Smith & Ramdas 2010.09686, mixtures over stakes as in Robbins 1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GRID = np.linspace(0.0, 4.0, 33)  # total stakes, in units of SCALE / standard deviation of D
SCALE = 2.0
PRIOR = 0.08  # standard deviation of a fall, before any was seen
DECAY = 0.93  # per step, of what was seen of the gap
LEAST_VARIANCE = 0.005  # of a group's mean gold around its reference
MAX_STAKE = 0.9  # of the stake at which one group could take everything


@dataclass
class BetsBelow:
    """The wealth of bets against one level."""

    unit: float  # total stakes are counted in it
    costs: Floats  # C_i of each total stake of the grid; infinite: not allowed
    reluctance: float = 0.0  # of gold: smaller gaps are not worth a stake of which there is little
    log_money: float = 0.0
    staked: float = 0.0  # Λ
    evidence: float = -np.inf  # log Z; without a bet there is none
    _error: float = 0.0  # the D at which Z is smallest: what the next unit of stake costs
    _count: float = 0.0  # of groups seen, decayed
    _gap: float = 0.0  # sum of -u, decayed
    _square: float = 0.0  # sum of u², decayed

    @classmethod
    def against_noise(cls, variance: float) -> BetsBelow:
        """Where D is a sum of independent centred variables with this variance bound (Hoeffding): C = L² v / 2."""
        return cls(SCALE / sqrt(variance), 0.5 * (GRID * SCALE) ** 2)

    @property
    def gap(self) -> float:
        """How far gold was below the level of late; a belief."""
        return self._gap / self._count if self._count > 0.0 else 0.0

    def bet(self, us: Floats, top: float, tolerance: float) -> None:
        """Bet on the groups of a step with a stake that earlier steps decide; then learn from them."""
        if not len(us):
            return
        stake = self._stake(len(us), top, tolerance)
        if stake > 0.0:
            self.log_money += float(np.log1p(-stake * (us + tolerance)).sum())
            self.staked += stake * len(us)
            self._price()
        self._count = DECAY * self._count + len(us)
        self._gap = DECAY * self._gap - float(us.sum())
        self._square = DECAY * self._square + float((us**2).sum())

    def _stake(self, groups: int, top: float, tolerance: float) -> float:
        """What would grow fastest, by what was seen of the gap so far, and at what more stake costs."""
        if self._count <= 0.0:
            return 0.0
        mean = self._gap / self._count
        variance = max(self._square / self._count - mean**2, LEAST_VARIANCE)
        gap = mean / (1.0 + variance / (self._count * PRIOR**2))
        gain = gap - tolerance - max(self._error, 0.0) - self.reluctance
        most = MAX_STAKE / (top + tolerance)
        room = 0.9 * (GRID[np.isfinite(self.costs)][-1] * self.unit) - self.staked
        return float(max(min(gain / variance, most, room / groups), 0.0))

    def _price(self) -> None:
        """The wealth at the error of the level that is worst for it: it is convex in the error."""
        weights = -0.5 * GRID**2
        weights[0] -= log(2.0)
        base = weights - np.logaddexp.reduce(weights) - self.costs
        slope = GRID - self.staked / self.unit  # in units of 1 / unit of the error
        low, high = -40.0, 40.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            terms = base + slope * middle
            if float((slope * np.exp(terms - terms.max())).sum()) > 0.0:
                high = middle
            else:
                low = middle
        terms = base + slope * middle
        self._error = middle / self.unit
        self.evidence = self.log_money + float(np.logaddexp.reduce(terms)) - 1e-9
