"""Bets that gold is below a level that is itself only known with an error, which is priced in.

Given are a level θ with an unknown error D, and a promise about it: a mixture over total stakes L_i with costs C_i so
that E Σ_i w_i exp(L_i D - C_i) <= 1. Each later group gives u with E[u] >= -δ - D while the null holds, u <= top. The
money is divided into parts c of weights v_c that sum to 1 at most. With stakes λ of a part fixed before a step, M_c =
Π (1 - λ (u + δ)) and Λ_c = Σ λ, the wealth is

    Z = min over D of Σ_c v_c M_c exp(-Λ_c D) Σ_i w_i exp(L_i D - C_i).

For one part that is what `stats.level_drop` proves to be below a supermartingale from 1, and a sum with weights that
are fixed beforehand is one too: the true D is the same in all of it. Half of the money is staked by what was seen of
the gap, which lags behind a fall. The rest expects one: parts (k, s) that gold falls by s with every step since step k.
They begin anew every few steps, by a rule that counts steps alone; what later ones will have counts as 0 until then.

Who uses it proves the promise and E[u]: `stats.level_drop` where everything is labelled, `stats.sampled_level` where
a part is. Source: own; bets as in Waudby-Smith & Ramdas 2010.09686, mixtures over stakes as in Robbins 1970 and over
times of a change as in Shin, Ramdas & Rinaldo 2203.03532.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

GRID = np.linspace(0.0, 4.0, 33)  # total stakes, in units of SCALE / standard deviation of D
SCALE = 2.0
PRICES = -0.5 * GRID**2 - log(2.0) * (GRID == 0.0)
PRICES = PRICES - np.logaddexp.reduce(PRICES)  # log w_i
POWERS = np.array([np.ones_like(GRID), GRID, GRID**2])
FARTHEST, NEAR = 40.0, 1e-3  # of the error that is looked for, in units of 1 / unit: how far, and how near
MOST_CURVE = 16.0  # more than how much the price bends: a variance of stakes in [0, 4], and one of what is staked
PRIOR = 0.08  # standard deviation of a fall, before any was seen
DECAY = 0.93  # per step, of what was seen of the gap
LEAST_VARIANCE = 0.005  # of a group's mean gold around its reference
LEAST_RAMP, FIRST_VARIANCE = 0.01, 0.04  # the same for ramps, and before any group was seen
MAX_STAKE = 0.9  # of the stake at which one group could take everything
RAMPS = np.array([0.0015, 0.003, 0.006, 0.012, 0.03])  # of gold lost with every step since a start
EVERY, LATER = 10, 0.15  # steps from one start to the next, at least, and as a part of the steps so far
ADAPTIVE = 0.5  # of the money, staked by what was seen of the gap


@dataclass
class BetsBelow:
    """The wealth of bets against one level."""

    unit: float  # total stakes are counted in it
    costs: Floats  # C_i of each total stake of the grid; infinite: not allowed
    reluctance: float = 0.0  # of gold: smaller gaps are not worth a stake of which there is little
    log_money: Floats = field(default_factory=lambda: np.log([ADAPTIVE]))  # of each part with its weight, log w M
    staked: Floats = field(default_factory=lambda: np.zeros(1))  # Λ of each part
    evidence: float = -np.inf  # log Z; without a bet there is none
    _starts: list[int] = field(default_factory=list)  # steps at which ramps began
    _steps: int = 0  # with groups
    _error: float = 0.0  # the D at which Z is smallest: what the next unit of stake costs
    _count: float = 0.0  # of groups seen, decayed
    _gap: float = 0.0  # sum of -u, decayed
    _square: float = 0.0  # sum of u², decayed
    _sums: Floats = field(default_factory=lambda: np.zeros(3))  # groups, sum of u, of u²

    @classmethod
    def against_noise(cls, variance: float) -> BetsBelow:
        """Where D is a sum of independent centred variables with this variance bound (Hoeffding): C = L² v / 2."""
        return cls(SCALE / sqrt(variance), 0.5 * (GRID * SCALE) ** 2)

    @cached_property
    def _longest(self) -> float:
        """The total stake that is allowed at most."""
        return float(GRID[np.isfinite(self.costs)][-1] * self.unit)

    @property
    def gap(self) -> float:
        """How far gold was below the level of late; a belief."""
        return self._gap / self._count if self._count > 0.0 else 0.0

    def bet(self, us: Floats, top: float, tolerance: float) -> None:
        """Bet on the groups of a step with stakes that earlier steps decide; then learn from them."""
        if not len(us):
            return
        if not self._starts or self._steps - self._starts[-1] >= max(EVERY, LATER * self._steps):
            number = len(self._starts)
            self._starts.append(self._steps)
            money = log((1.0 - ADAPTIVE) / ((number + 1) * (number + 2) * len(RAMPS)))
            self.log_money = np.append(self.log_money, np.full(len(RAMPS), money))
            self.staked = np.append(self.staked, np.zeros(len(RAMPS)))
        stakes = self._stakes(len(us), top, tolerance)
        if stakes.any():
            self.log_money += np.log1p(stakes[:, None] * -(us + tolerance)).sum(1)
            self.staked += stakes * len(us)
            self._price()
        count, total, square = len(us), float(us.sum()), float(us @ us)
        self._steps += 1
        self._count = DECAY * self._count + count
        self._gap = DECAY * self._gap - total
        self._square = DECAY * self._square + square
        self._sums += count, total, square

    def _stakes(self, groups: int, top: float, tolerance: float) -> Floats:
        """Of the adaptive part what would grow fastest, by what was seen of the gap and what more stake costs; of each
        ramp what would, if gold had been falling like it since it began."""
        most = MAX_STAKE / (top + tolerance)
        room = (0.9 * self._longest - self.staked) / groups
        adaptive = 0.0
        if self._count > 0.0:
            mean = self._gap / self._count
            variance = max(self._square / self._count - mean**2, LEAST_VARIANCE)
            gap = mean / (1.0 + variance / (self._count * PRIOR**2))
            adaptive = (gap - tolerance - max(self._error, 0.0) - self.reluctance) / variance
        seen, total, square = self._sums.tolist()
        variance = max(square / seen - (total / seen) ** 2, LEAST_RAMP) if seen else FIRST_VARIANCE
        since = self._steps - np.array(self._starts) + 3
        stakes = np.empty(len(self.staked))
        stakes[0] = adaptive
        stakes[1:] = ((since[:, None] * RAMPS).ravel() - tolerance - self.reluctance) / variance
        return np.maximum(np.minimum(np.minimum(stakes, most), room), 0.0)

    def _price(self) -> None:
        """The wealth at the error of the level that is worst for it: its logarithm is convex in the error."""
        base, staked = PRICES - self.costs, self.staked / self.unit
        low, high, middle = -FARTHEST, FARTHEST, self._error * self.unit  # in units of 1 / unit of the error
        powers = np.array([np.ones_like(staked), staked, staked**2])
        for _ in range(60):
            ours, prices = self.log_money - staked * middle, base + GRID * middle
            top_of_ours, top_of_prices = float(ours.max()), float(prices.max())
            all_mine, mean, square = (powers @ np.exp(ours - top_of_ours)).tolist()
            all_theirs, price, square_price = (POWERS @ np.exp(prices - top_of_prices)).tolist()
            evidence = top_of_ours + top_of_prices + log(all_mine * all_theirs)
            mean, price = mean / all_mine, price / all_theirs
            curve = square / all_mine - mean**2 + square_price / all_theirs - price**2
            low, high = (low, middle) if price > mean else (middle, high)
            newton = middle - (price - mean) / max(curve, 1e-12)
            ahead = newton if low < newton < high else 0.5 * (low + high)
            if abs(ahead - middle) < NEAR:
                break
            middle = ahead
        self._error = middle / self.unit
        self.evidence = evidence - NEAR**2 * MOST_CURVE
