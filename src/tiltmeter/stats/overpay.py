"""A sequential test of whether wrong answers are paid more than they were at first: evidence at any time, with a proof.

Overpay is x = pay (1 - gold), pay in [0, 1]: what an answer is paid for what it is not worth. A policy that masters its
task lowers it and a harder task raises it little, because what is wrong is paid little while the reward is right. A
hack that spreads raises it to what it is paid, also where every answer is paid and no slope is left.

The first steps are the reference. Write m_i for the expected overpay of its i-th answer given its prompt and everything
before its step, and m for their average. The null: at every later step the expected overpay of a group, averaged over
the step's groups, is at most m + δ. What is assumed, and can be checked:

(a) pay and gold lie in [0, 1], by scales that were fixed before;
(b) groups of a step are independent given the past, and answers of a group given its prompt; where something may move
    all of a step's labels, as a judge's mood, `shared` makes a step one bet and one value of the reference;
(c) when the reference ends depends on counts of steps, groups and answers only.

The test. U is an upper end of m (`stats.running_mean`, on 1 - x) that holds with a chance of 1 - β. With c = U + δ and
stakes λ in [0, 0.8 / c] fixed before the step, E = Π (1 + λ (x - c)) over all later groups.

Proof. Let A be m <= U, which is settled when the reference ends. Its chance is at least 1 - β: `running_mean` proves
it for any rule that depends on counts. Given what is known then, and A, the null says that the groups of a later step
have expected overpays with an average of at most c. They are independent, so the expected product is Π (1 + λ (μ_g -
c)), at most (1 + λ (mean μ - c))^n <= 1 by the inequality of arithmetic and geometric means. So E times the indicator
of A, which is 1 at most while the reference lasts, is a nonnegative supermartingale from 1. The chance that s E plus
other such money from 1 - s ever reaches 1/α is at most α + β (Ville).

A label that was asked for and never came counts as right in a bet and as wrong in the reference: both favour the null.
Not the chance of pay given that an answer is wrong: as a task is mastered, the few answers that are left wrong are
those that gold judges wrongly, and all of them are paid.

Source: own; bets as in Waudby-Smith & Ramdas 2010.09686.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import log1p

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.rise_then_fall import peak_steps, rise_then_fall
from tiltmeter.stats.running_mean import low_end

Floats = NDArray[np.float64]

TOLERANCE = 0.1  # δ
REFERENCE_PART = 0.1  # of the α of a bet, for the upper end of its reference
STEPS = 20  # of the reference, at least
LEAST_VALUES = 8  # groups of the reference
SHARED_STEPS = 60  # of a reference in which a step is one value: with fewer its upper end says nothing
LEAST_ANSWERS = 48  # of the reference
DECAY = 0.8  # per step, of what was seen of the excess over c
PRIOR = 0.2  # standard deviation of an excess, before any was seen
LEAST_VARIANCE = 0.01
LEAST_GAP = 0.01  # an excess that is not worth a stake
MOST_LOST = 0.8  # of the money, by one group
EVEN = 0.5  # a guess of 1 - x before anything was seen
ONSET_TOLERANCE = 0.05  # of overpay: as low as before it rose
FEW_LEVELS = 16  # values that a reward has, whose lowest and highest are its scale
WIDE = 3.0  # scales: rewards of one step that are spread wider have another scale


def pay_scale(rewards: Floats) -> tuple[float, float] | None:
    """The rewards that count as pay 0 and as pay 1, from those of the first steps alone; None: they do not differ.

    Rewards in [0, 1] are pay as they are. Others run from their lowest to their highest value where they have few,
    and else between the ends of their middle nine tenths.

    >>> pay_scale(np.array([0.0, 0.3])), pay_scale(np.array([-1.0, 1.0, 1.0])), pay_scale(np.array([2.0, 2.0]))
    ((0.0, 1.0), (-1.0, 1.0), None)
    """
    finite = rewards[np.isfinite(rewards)]
    if not len(finite):
        return None
    low, high = float(finite.min()), float(finite.max())
    if low >= 0.0 and high <= 1.0:
        return 0.0, 1.0
    if len(np.unique(finite)) > FEW_LEVELS:
        low, high = (float(end) for end in np.quantile(finite, (0.05, 0.95)))
    return (low, high) if np.isfinite(high - low) and high - low > 0.0 else None


def pay_of(rewards: Floats, scale: tuple[float, float]) -> Floats:
    """Pay of each answer of a step on a fixed scale; 0 without a reward, and NaN where the step has another scale.

    >>> pay_of(np.array([-1.0, 0.0, 3.0, np.nan]), (-1.0, 1.0)).tolist()
    [0.0, 0.5, 1.0, 0.0]
    """
    low, high = scale
    finite = rewards[np.isfinite(rewards)]
    if len(finite) and float(np.ptp(np.quantile(finite, (0.05, 0.95)))) > WIDE * (high - low):
        return np.full(len(rewards), np.nan)
    return np.nan_to_num((rewards - low) / (high - low), nan=0.0, posinf=1.0, neginf=0.0).clip(0.0, 1.0)


@dataclass
class OverpayTest:
    """A running bet that wrong answers are paid more than in the first steps, by more than a tolerance.

    `beta` is the chance that the upper end of the reference may be missed with.

    >>> test, rng = OverpayTest(beta=1e-5), np.random.default_rng(0)
    >>> for step in range(60):
    ...     test.place(step, rng.binomial(8, 0.05 if step < 40 else 0.6, 4) / 8, np.full(4, 8))
    ...     if test.evidence > 10.0: break
    >>> 40 < step < 50, 38 < test.rise_steps()[0] < 42
    (True, True)
    """

    beta: float
    evidence: float = field(default=0.0, init=False)  # log E
    limit: float | None = field(default=None, init=False)  # c; None: the reference is not complete
    _steps: int = field(default=0, init=False, repr=False)
    _count: float = field(default=0.0, init=False, repr=False)  # answers of the reference, or steps
    _total: float = field(default=0.0, init=False, repr=False)  # of 1 - x
    _scatter: float = field(default=0.0, init=False, repr=False)  # of 1 - x around its guesses
    _values: int = field(default=0, init=False, repr=False)  # groups of the reference, or steps
    _answers: float = field(default=0.0, init=False, repr=False)
    _seen: float = field(default=0.0, init=False, repr=False)  # values, decayed
    _gap: float = field(default=0.0, init=False, repr=False)  # sum of x - c, decayed
    _square: float = field(default=0.0, init=False, repr=False)  # sum of its square, decayed
    _history: list[tuple[int, float, int]] = field(default_factory=list, init=False, repr=False)  # step, mean, values

    def place(
        self, step: int, values: Floats, answers: Floats, unknown: Floats | None = None, *, shared: bool = False
    ) -> None:
        """One step: the mean overpay of each group, and of how many answers.

        `unknown`: the part of each group whose labels never came, counted as right in `values`.
        """
        values, answers = np.asarray(values, np.float64), np.asarray(answers, np.float64)
        if not ((values >= 0.0) & (values <= 1.0)).all() or not (answers >= 1.0).all():
            raise ValueError("overpay outside [0, 1] voids the bound: pay and gold lie in [0, 1]")
        if not len(values):
            return
        unknown = np.zeros(len(values)) if unknown is None else np.asarray(unknown, np.float64)
        self._history.append((step, float(values.mean()), len(values)))
        self._answers += float(answers.sum())
        if shared:
            values, unknown, answers = values.mean(keepdims=True), unknown.mean(keepdims=True), np.ones(1)
        if self.limit is None:
            self._refer(np.minimum(values + unknown, 1.0), answers, SHARED_STEPS if shared else STEPS)
        else:
            self._bet(values - self.limit, self.limit)

    def _refer(self, values: Floats, answers: Floats, steps: int) -> None:
        """Add the answers of a step to the reference; it ends by counts alone.

        Of a group only the mean is known. As y² <= y, its answers scatter around a guess g by y - 2 g y + g² at most.
        """
        right, guess = 1.0 - values, (self._total + EVEN) / (self._count + 1.0)
        self._scatter += float((answers * (right - 2.0 * guess * right + guess**2)).sum())
        self._total += float((answers * right).sum())
        self._count += float(answers.sum())
        self._values += len(values)
        self._steps += 1
        if self._steps >= steps and self._values >= LEAST_VALUES and self._answers >= LEAST_ANSWERS:
            numbers = (self._count, self._total, self._scatter, 1.0, self.beta)
            low = low_end(*(np.array([number]) for number in numbers))
            self.limit = 1.0 - float(low[0]) + TOLERANCE

    def _bet(self, excess: Floats, limit: float) -> None:
        """Bet on the groups of a step with a stake that earlier steps decide; then learn from them."""
        self.evidence += sum(map(log1p, self._stake(limit) * excess))
        self._seen = DECAY * self._seen + len(excess)
        self._gap = DECAY * self._gap + float(excess.sum())
        self._square = DECAY * self._square + float((excess**2).sum())

    def _stake(self, limit: float) -> float:
        """What would grow fastest, by what was seen of the excess so far."""
        if self._seen <= 0.0:
            return 0.0
        mean = self._gap / self._seen
        variance = max(self._square / self._seen - mean**2, LEAST_VARIANCE)
        gap = mean / (1.0 + variance / (self._seen * PRIOR**2))
        return min(gap / (variance + gap**2), MOST_LOST / limit) if gap > LEAST_GAP else 0.0

    def rewind(self, step: int) -> None:
        """The run goes back to this step. What was bet stays, and so does the reference: the null is about both."""
        self._history = [item for item in self._history if item[0] < step]

    def rise_steps(self) -> tuple[int, int, int]:
        """Where the rise of overpay begins, where it stood lowest before, and where half of the rise was done: of the
        curve that falls and then rises and fits best. An estimate, no promise."""
        steps = [step for step, _, _ in self._history]
        levels = np.array([1.0 - mean for _, mean, _ in self._history])
        fitted = rise_then_fall(levels, np.array([count for _, _, count in self._history], np.float64))
        lowest, rises, half = peak_steps(levels, fitted, ONSET_TOLERANCE)
        return steps[rises], steps[lowest], steps[half]
