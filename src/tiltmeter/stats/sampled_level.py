"""A sequential test of whether gold has fallen below an earlier window of the run, where a part of it is labelled.

`stats.level_drop` needs the gold of every answer. Here a few answers of a window are labelled later, when gold seems
lower, and then a few of each step. Null, windows and assumptions (a) to (c) are those of `stats.level_drop`, with
prompts that come back. Besides:

(d) which answers are labelled is drawn with known chances before any of these labels is seen; the number of labels,
    the window and the stakes depend on earlier steps alone;
(e) the same answer gets the same label whenever it is asked about, so that the past can be labelled later. Code does;
    a judge or people may be stricter on another day, so their labels are not used here.

A surrogate f in [0, 1] guesses gold from what is known of every answer. It is fixed before a draw, and may be wrong.

Window j, opened at some step: n answers are drawn with replacement, first a prompt of P_j, then one of its n_p
answers, each with equal chances, and e_i = g_i - f_i. With f_p the mean of f over the answers to p,

    θ = mean_p f_p + mean e_i,     r_p with mean θ over P_j, none below θ - `LOWEST_VALUE`, fixed before the next bet.

A later group of prompt p, of whose answers a uniform subset S is labelled, a part c of them:

    u = mean f + mean_S (g - f) - r_p  <=  2 - c - min r.

Proof. D = θ - μ_j* is the realised noise D1 of the window, with E exp(L D1) <= exp(L² v / 2) as in `stats.level_drop`,
plus mean e - E e. With ê any forecast from earlier draws with |ê| <= `CAP`, e_i - ê >= -b for b = 1 + `CAP`, and for
x >= -1 and 0 <= l < 1 it is exp(l x - ψ(l) x²) <= 1 + l x with ψ(l) = -log(1 - l) - l (Fan, Grama & Liu 2015). So

    E exp(L (mean e - E e) - ψ(L b / n) / b² Σ (e_i - ê)²) <= 1.

Both hold one after the other, so the promise of `stats.bets_below` holds with C = L² v / 2 + ψ(L b / n) / b² Σ (e_i -
ê)². It does not matter why or when a window is opened: the first part has been running with the window's weight since
the window began. Over S, E u = mean gold of the group - r_p whatever f is, so E[u] = μ_t* - θ >= -δ - D under the null,
for groups whose prompts are a random draw of P_j. The sampler leaves out steps while prompts of late, by the window's
labels, are worth less by themselves than their r_p say: that is known before a step's labels, and raises E u. The rest
is as there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import exp, log, sqrt

import numpy as np

from tiltmeter.stats.bets_below import GRID, SCALE, BetsBelow, Floats
from tiltmeter.stats.level_recovery import NOISE, noise_of, residual_noise

LOWEST_VALUE = 0.1  # below the level of its window: the least reference value of a prompt
WEIGHT = 1.613  # Σ (j + 2)^-1.5 over all windows j >= 0 is below this, so that all weights together are at most 1
CAP = 0.1  # of a forecast of e
FORECAST = 20.0  # draws that a forecast of e must outweigh to stand for itself
STAKE_PRICE = 8.0  # of evidence: a gap is worth a stake if it could gain this much with all that may be staked


@dataclass
class SampledWindow:
    weight: float
    last: int
    level: float
    bets: BetsBelow
    below: float  # how far θ is below μ_j* with a chance of `NOISE` at most


@dataclass
class SampledLevelTest:
    """A running bet that gold has fallen by more than `tolerance` below a window that was labelled afterwards.

    >>> test, rng = SampledLevelTest(), np.random.default_rng(0)
    >>> test.open(0, 19, rng.binomial(1, 0.7, 300) - 0.5, 0.7, 0.0002)
    >>> for step in range(40):
    ...     test.place(0, rng.binomial(8, 0.3, 8) / 8 - 0.7, 1.0)
    ...     if test.evidence > log(100.0): break
    >>> step < 10
    True
    """

    tolerance: float = 0.01
    _windows: dict[int, SampledWindow] = field(default_factory=dict, init=False, repr=False)
    _ended: float = field(default=0.0, init=False, repr=False)  # wealth of windows that a rewind has ended

    def open(self, window: int, last: int, residuals: Floats, level: float, noise: float) -> None:
        """A window that ended with step `last` was labelled: the e of its draws in their order, θ, and v."""
        residuals = np.asarray(residuals, np.float64)
        if window in self._windows or not len(residuals) or (np.abs(residuals) > 1.0).any():
            raise ValueError("a window is opened once, with residuals in [-1, 1]")
        count, bound = len(residuals), 1.0 + CAP
        forecast = np.concatenate([[0.0], np.cumsum(residuals)[:-1]]) / (np.arange(count) + FORECAST)
        square = float(((residuals - forecast.clip(-CAP, CAP)) ** 2).sum())
        unit = SCALE / sqrt(noise + square / count**2)
        share = GRID * unit * bound / count
        allowed = share < 1.0
        psi = -np.log1p(-np.where(allowed, share, 0.0)) - share
        costs = np.where(allowed, 0.5 * (GRID * unit) ** 2 * noise + psi * square / bound**2, np.inf)
        most = float(GRID[allowed][-1]) * unit
        reluctance = STAKE_PRICE / most if most > 0.0 else 1.0
        below = noise_of(noise, NOISE / 2.0) + residual_noise(residuals, NOISE / 2.0)
        bets = BetsBelow(unit, costs, reluctance)
        self._windows[window] = SampledWindow((window + 2.0) ** -1.5 / WEIGHT, last, level, bets, below)

    def place(self, window: int, us: Floats, labelled: float) -> None:
        """One step's groups against a window, each labelled to this part at least. A window that ended takes none."""
        if window in self._windows:
            one = self._windows[window]
            top = 2.0 - labelled - max(one.level - LOWEST_VALUE, 0.0)
            if not 0.0 < labelled <= 1.0 or not (np.asarray(us) <= top + 1e-9).all():
                raise ValueError("a change beyond what gold in [0, 1] allows voids the bound")
            one.bets.bet(np.asarray(us, np.float64), top, self.tolerance)

    @property
    def windows(self) -> Mapping[int, SampledWindow]:
        """Those that are open, by number."""
        return self._windows

    def rewind(self, step: int) -> None:
        """The run goes back to this step: windows that end there or later are no reference; their wealth stays."""
        for number in [number for number, one in self._windows.items() if one.last >= step]:
            one = self._windows.pop(number)
            self._ended += one.weight * exp(min(one.bets.evidence, 700.0))

    @property
    def evidence(self) -> float:
        """Logarithm of the wealth; reaching log(1/α), ever, has a chance of at most α while the null holds."""
        parts = [
            log(one.weight) + one.bets.evidence for one in self._windows.values() if np.isfinite(one.bets.evidence)
        ]
        if self._ended > 0.0:
            parts.append(log(self._ended))
        return float(np.logaddexp.reduce(parts)) if parts else -np.inf
