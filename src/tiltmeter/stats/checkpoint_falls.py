"""Whether gold has fallen from one checkpoint to another, and which of them may be the best, on the same prompts.

For checkpoints a and b and a prompt let d = (mean gold of a's answers) - (that of b's), in [-1, 1]. Prompts are drawn
at random from those that the claim is about, so the d are independent with mean μ. The null "a is not lower than b by
more than δ", μ >= -δ, is bet against with u = (d + δ) / (1 + δ), whose mean is then >= 0 and which never exceeds 1: for
each stake λ of a grid Π (1 - λ u) has mean <= 1, and so has their average E. Markov's inequality gives
P(E >= 1/α) <= α. Nothing is assumed of the law of d: it need not be normal, and ties need no correction.

*Fall*: for the last checkpoint, the average of E over all earlier ones has mean <= 1 while it is lower than none of
them, however many there are. *Best*: the true best is lower than no other, so the average of its E over all others
reaches 1/α with chance at most α: those whose average does not reach it hold the best with chance 1 - α. *Worst*: the
smallest δ for which "a is lower than b by δ or more" is bet against with success, for every b at α / (number of b).

*At any time*: checkpoints are looked at as they are saved. Let E_t be the average of E of checkpoint t over all earlier
ones and w_t = 1 / (t (t + 1)), which sum to 1 over t = 1, 2, ... While no checkpoint is lower than an earlier one each
E_t has mean <= 1, whatever the others are: the same prompts come back, so they are not independent. The running sum of
w_t E_t never falls and its limit has mean <= 1, so that it ever reaches 1/α with chance at most α.

Gold that is missing counts as what is worst for each claim: a judge that fails on bad answers alone must neither hide a
fall nor make one.

Source: own; bets as in Waudby-Smith & Ramdas 2010.09686, averages of e-values as in Vovk & Wang 1912.06116.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, log

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Bold ones win most here: differences of means over several answers are far smaller than the 1 that they may reach.
STAKES = np.array([0.1, 0.3, 0.6, 0.8, 0.98])
TOLERANCE = 0.02  # of gold: a smaller fall is none
ALPHA = 0.01  # of a fall that is none
PEAK_ALPHA = 0.05  # that the best is not among those named
BISECTIONS = 30
LEAST_PROMPTS = 8  # with gold for every checkpoint, below which nothing is said
UNKNOWN = -1.0  # in place of gold that is missing, where no NaN can be written


@dataclass(frozen=True, slots=True)
class FallTest:
    """How the last of some checkpoints stands against the earlier ones, and which may be the best."""

    odds: float  # against "the last is lower than none by more than the tolerance"; infinite where nobody would doubt
    has_fallen: bool
    best: int  # with the most gold, of equal ones the last
    candidates: tuple[int, ...]  # one of them is the best with chance 95 %
    worst: float  # fall of the last below any earlier one that is not excluded; 2: none is


def log_odds_lower(one: Floats, other: Floats, tolerance: float = TOLERANCE) -> float:
    """Logarithm of E against "`one` is not lower than `other` by more than the tolerance", by prompt.

    >>> better, worse = np.tile([0.75, 1.0], 40), np.tile([0.5, 0.75], 40)
    >>> log_odds_lower(worse, better) > log(100.0), log_odds_lower(better, worse) < 0.0
    (True, True)
    """
    u = (_filled(one, 1.0) - _filled(other, 0.0) + tolerance) / (1.0 + tolerance)
    wealth = np.log1p(-np.outer(STAKES, u)).sum(1)
    return float(np.logaddexp.reduce(wealth) - log(len(STAKES)))


def find_fall(gold: Sequence[Floats], alpha: float = ALPHA, peak_alpha: float = PEAK_ALPHA) -> FallTest:
    """`gold`: by checkpoint in the order of training, the mean gold of its answers to each prompt, NaN where unknown.

    >>> rng = np.random.default_rng(0)
    >>> told = find_fall([rng.binomial(4, chance, 200) / 4 for chance in (0.4, 0.6, 0.8, 0.5)])
    >>> told.has_fallen, told.best, told.candidates
    (True, 2, (2,))
    >>> told = find_fall([rng.binomial(4, chance, 200) / 4 for chance in (0.4, 0.6, 0.8, 0.8)])
    >>> told.has_fallen, told.candidates, told.worst < 0.1
    (False, (2, 3), True)
    """
    count = len(gold)
    if count < 2:
        raise ValueError("a fall needs two checkpoints")
    lower = np.full((count, count), -inf)  # log E that the row's checkpoint is lower than the column's
    for a in range(count):
        for b in range(count):
            if a != b:
                lower[a, b] = log_odds_lower(gold[a], gold[b])
    averages = np.logaddexp.reduce(lower, axis=1) - log(count - 1)
    fall = float(np.logaddexp.reduce(lower[-1, :-1]) - log(count - 1))
    means = [float(np.nanmean(one)) if np.isfinite(one).any() else -inf for one in gold]
    best = max(range(count), key=lambda at: (means[at], at))
    candidates = tuple(at for at in range(count) if averages[at] < log(1.0 / peak_alpha))
    each = peak_alpha / (count - 1)
    worst = max(_excluded_fall(gold[-1], earlier, each) for earlier in gold[:-1])
    return FallTest(float(np.exp(min(fall, 700.0))), fall >= log(1.0 / alpha), best, candidates or (best,), worst)


@dataclass
class CheckpointFallTest:
    """A running bet that a checkpoint is worse than an earlier one by more than `tolerance`, on the same prompts.

    >>> rng = np.random.default_rng(0)
    >>> test = CheckpointFallTest()
    >>> for step, chance in enumerate((0.4, 0.6, 0.8, 0.5)):
    ...     test.place(20 * step, rng.binomial(4, chance, 200) / 4)
    >>> test.evidence > log(100.0), test.drop_steps()
    (True, (40, 60))
    """

    tolerance: float = TOLERANCE
    _steps: list[int] = field(default_factory=list, init=False, repr=False)
    _gold: list[Floats] = field(default_factory=list, init=False, repr=False)
    _bets: list[float] = field(default_factory=list, init=False, repr=False)  # log of w_t E_t
    _richest: tuple[float, int, int] = field(default=(-inf, 0, 0), init=False, repr=False)  # with the steps it is about

    def place(self, step: int, gold: Floats) -> None:
        """One checkpoint: gold of each prompt, NaN where it is not known, prompts in the same order each time."""
        if self._gold and len(gold) != len(self._gold[0]):
            raise ValueError(f"{len(gold)} prompts, and the checkpoint before was asked {len(self._gold[0])}")
        logs = [log_odds_lower(gold, earlier, self.tolerance) for earlier in self._gold]
        self._gold.append(gold)
        self._steps.append(step)
        if logs:
            self._bets.append(float(np.logaddexp.reduce(logs)) - log(len(logs)) - log_looks(len(logs)))
            at = int(np.argmax(logs))
            if self._bets[-1] > self._richest[0]:
                self._richest = self._bets[-1], self._steps[at], step

    @property
    def gold(self) -> Sequence[Floats]:
        """Of each checkpoint so far."""
        return self._gold

    @property
    def evidence(self) -> float:
        """Logarithm of the wealth; reaching log(1/α), ever, has a chance of at most α while the null holds."""
        return float(np.logaddexp.reduce(self._bets)) if self._bets else -inf

    def drop_steps(self) -> tuple[int, int]:
        """The better checkpoint and the worse one of the bet that won most; an estimate, no promise."""
        if not self._bets:
            raise ValueError("two checkpoints are needed to compare any")
        return self._richest[1:]


def log_looks(number: int) -> float:
    """Logarithm of what the look of this number must pay for all looks: t (t + 1), whose inverses sum to 1."""
    return log(number * (number + 1.0))


def _excluded_fall(now: Floats, earlier: Floats, alpha: float) -> float:
    """The smallest δ such that "now is lower by δ or more" is refuted; 2, more than gold can fall, if none is."""
    d = _filled(now, 0.0) - _filled(earlier, 1.0)

    def refutes(delta: float) -> bool:
        u = -(d + delta) / (1.0 - delta)  # mean >= 0 while the mean of d is -delta or less; at most 1
        wealth = np.log1p(-np.outer(STAKES, u)).sum(1)
        return float(np.logaddexp.reduce(wealth) - log(len(STAKES))) >= log(1.0 / alpha)

    low, high = 0.0, 0.999
    if not refutes(high):
        return 2.0
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if refutes(middle) else (middle, high)
    return high


def _filled(gold: Floats, value: float) -> Floats:
    return np.where(np.isfinite(gold), gold, value)
