"""A sequential test of whether a declared evaluation has fallen: evidence from (step, value, n), at any time.

A user who evaluates checkpoints on a fixed held-out set is not blind, even without audited labels. The trap is the
champion: the best of many noisy evaluations is best partly by luck, and a test of later ones against it alarms on the
return to the mean. Here nothing is selected. Every split of the series is bet on from the start, with weights that sum
to one, and the champion's noise is part of each bet.

The null: at every evaluation the true level μ_t, the mean over the set of the chance of a good answer, is at least
μ_c - δ for every earlier c. What may be random is everything: μ_t may depend on all that was seen before, and so may n.

One bet has a block A of earlier evaluations, with k_A good answers of n_A, all later ones B up to now, and fixed tilts
x, y > 0:

    e_t = exp(x k_A - y k_B) / max over θ in [δ, 1] of (1 - θ + θ e^x)^n_A (1 - (θ - δ) (1 - e^-y))^n_B

Proof that it is an e-process. Given the past, an evaluation's k is a sum of n independent values in [0, 1] whose means
average to μ, so E e^(xk) <= (1 - μ + μ e^x)^n: e^(xv) <= 1 - v + v e^x on [0, 1], and a product of n such means is
largest when they are equal. The same holds with -y. So N_t, the product of e^(xk_i) / (1 - μ_i + μ_i e^x)^n_i over A
and of e^(-yk_r) / (1 - μ_r + μ_r e^-y)^n_r over B so far, is a nonnegative supermartingale from 1. Let θ be the mean of
μ_i over A, weighted by n_i. The first factors' denominators multiply to at most (1 - θ + θ e^x)^n_A, by concavity of
the logarithm; in B each μ_r >= max_A μ - δ >= θ - δ under the null, and its denominator falls as μ_r rises. Their
product is therefore at most the maximum above, and e_t <= N_t on every path. The maximum is of a concave function of θ
and has a closed form.

A weighted mean of e-processes is one, so the total E_t satisfies P(E_t ever reaches 1/α) <= α by Ville's inequality.
For the same reason it may be averaged with the e-processes of `GoldLossTest`, in the order in which things were
observed: each N_t is a supermartingale in any larger history given which an evaluation's answers are still independent
with the levels μ.
(Were E_t only a growing sum of terms with means adding up to at most 1, that would do as well: E[E_∞ | F_t]
is a martingale from at most 1 that is never below E_t.)

Checkpoints wander: each is a little better or worse than the trend, and with thousands of answers that shows. The null
is then about the trend: an evaluation of n answers counts as n' of them, n' fixed beforehand (`CheckpointWander`), and
all that the proof uses of it is E e^(x n' value) <= (1 - μ + μ e^x)^n' with the trend's μ. Mean and variance then agree
with n' answers wherever the wander is no larger than the one allowed for; for normal wander that is the inequality up
to terms of third order in x, which is no proof. Its false alarms are counted in `benchmarks/bound.py`.

Where the score of some answers is not known, k_A counts them as 0 and k_B as 1. Both make e_t smaller than it would be
with their scores, so it is still at most N_t, whatever decides which scores are missing.

What voids it: answers that are not independent given the policy, n that counts them twice, an evaluation left out
because of its value, a set that changes or is trained on, checkpoints that begin to wander more than they did.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isfinite, log

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Pairs (x, y) of tilts: how far the log-odds fall, and which part of the fall is laid on the champion's side. Levels
#: near 0 or 1 and blocks of unequal size are best met by unequal parts.
TILTS = np.array(
    [(fall * part, fall * (1 - part)) for fall in (0.2, 0.45, 1.0, 2.2) for part in np.arange(20, 81, 15) / 100]
)


WANDER = 0.0016  # variance of checkpoints around their trend, in units of p (1 - p), before any were compared
COMPARED = 4.0  # differences between neighbouring evaluations that outweigh it
CAUTION = 3.0  # times the estimated variance: it comes from few differences
SAMPLING = 2.5  # times the variance that answers explain: only what is clearly more is wander


@dataclass
class CheckpointWander:
    """How many answers an evaluation is worth, where checkpoints wander around their trend.

    With a wander of variance w p (1 - p), the mean of n answers scatters as one of n / (1 + n w) answers would. w comes
    from the differences of earlier neighbours without the largest, so one fall does not change it.

    >>> wander = CheckpointWander()
    >>> for value in [0.60, 0.63, 0.59, 0.62, 0.60, 0.64, 0.61]:
    ...     wander.learn(value, 4000)
    >>> wander.answers(4000) < 400 < CheckpointWander().answers(4000)
    True
    """

    _values: list[float] = field(default_factory=list)
    _counts: list[float] = field(default_factory=list)

    def learn(self, value: float, n: float) -> None:
        self._values.append(value)
        self._counts.append(n)

    @property
    def variance(self) -> float:
        """The variance of checkpoints around their trend that is allowed for, in units of p (1 - p)."""
        count = max(len(self._values) - 2, 0)
        if not count:
            return WANDER
        values = np.array(self._values)
        level = np.clip((values[1:] + values[:-1]) / 2.0, 0.05, 0.95)
        squares = np.sort(np.diff(values) ** 2 / (level * (1.0 - level)))[:-1]
        beyond = max(float(squares.mean()) / 2.0 - SAMPLING / float(np.median(self._counts)), 0.0)
        return (COMPARED * WANDER + count * CAUTION * beyond) / (COMPARED + count)

    def answers(self, n: float) -> float:
        return n / (1.0 + n * self.variance)


@dataclass
class EvaluationDropTest:
    """A running bet that a declared evaluation has fallen by more than `tolerance` below an earlier level of its own.

    `planned` is the number of evaluations to come, if it is known: 80% of the money is then spread evenly over them
    instead of favouring early falls. The claim is about the set as it is, so `n` counts answers drawn independently:
    problems times samples. It is not about problems like these; for that give the number of problems as n, which is
    the careful choice and no proof, because the same problems come back at every evaluation.

    >>> test = EvaluationDropTest()
    >>> for step, value in enumerate([0.30, 0.33, 0.31, 0.20, 0.18, 0.17]):
    ...     test.place(20 * step, value, 400)
    >>> test.evidence > log(100), test.drop_steps()
    (True, (40, 60))
    """

    tolerance: float = 0.0
    planned: int | None = None
    _steps: list[int] = field(default_factory=list, init=False, repr=False)
    _good: list[float] = field(default_factory=lambda: [0.0], init=False, repr=False)
    _unknown: list[float] = field(default_factory=lambda: [0.0], init=False, repr=False)
    _counts: list[float] = field(default_factory=lambda: [0.0], init=False, repr=False)
    _bets: tuple[Floats, NDArray[np.int64]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0.0 <= self.tolerance < 1.0:
            raise ValueError("tolerance is a fall of the level: from 0 to below 1")
        self._bets = np.full(0, -np.inf), np.zeros(0, np.int64)

    def place(self, step: int, value: float, n: float, unknown: float = 0.0) -> None:
        """One evaluation, in the order in which they were made: of n answers, scored in [0, 1], all but a share
        `unknown` are known, and their mean is `value`."""
        if not (isfinite(value) and 0.0 <= value <= 1.0 and isfinite(n) and n > 0.0):
            raise ValueError("an evaluation needs a mean in [0, 1] of n > 0 answers; leave out one that failed to run")
        self._steps.append(step)
        self._good.append(self._good[-1] + value * n * (1.0 - unknown))
        self._unknown.append(self._unknown[-1] + n * unknown)
        self._counts.append(self._counts[-1] + n)
        sums = np.array([self._good, self._unknown, self._counts])
        self._bets = _bet_wealth(sums, self.tolerance, self.planned)

    def levels(self) -> tuple[Floats, Floats]:
        """Every evaluation so far, and of how many known answers it is."""
        counts = np.diff(self._counts) - np.diff(self._unknown)
        return np.diff(self._good) / counts, counts

    @property
    def evidence(self) -> float:
        """Logarithm of the wealth; reaching log(1/α), ever, has a chance of at most α while the null holds."""
        return _total(self._bets[0])

    def drop_steps(self) -> tuple[int, int]:
        """The last step of the level and the first step below it, by the bet that won most; an estimate, no promise."""
        if not len(self._bets[0]):
            raise ValueError("two evaluations are needed to compare any")
        split = int(self._bets[1][np.argmax(self._bets[0])])
        return self._steps[split - 1], self._steps[split]


def _bet_wealth(sums: Floats, tolerance: float, planned: int | None) -> tuple[Floats, NDArray[np.int64]]:
    """Log wealth of every split and champion block, and the splits; `sums` from 0 on: good, unknown, all answers.

    Split s: B is everything from evaluation s on; A the 1, 2, 4, ... evaluations before it, or all of them.
    """
    good, unknown, counts = sums
    last = len(good) - 1
    splits = np.arange(1, last)
    blocks = np.ceil(np.log2(splits)).astype(np.int64) + 1
    split = np.repeat(splits, blocks)
    size = np.minimum(2 ** (np.arange(len(split)) - np.repeat(np.cumsum(blocks) - blocks, blocks)), split)
    k_a, n_a = good[split] - good[split - size], counts[split] - counts[split - size]
    k_b = good[last] - good[split] + unknown[last] - unknown[split]
    n_b = counts[last] - counts[split]
    x, y = TILTS[:, :1], TILTS[:, 1:]
    gain, loss = np.expm1(x), -np.expm1(-y)
    theta = (n_a * gain * (1.0 + tolerance * loss) - n_b * loss) / (gain * loss * (n_a + n_b))
    theta = np.clip(theta, tolerance, 1.0)
    worst = n_a * np.log1p(theta * gain) + n_b * np.log1p(-(theta - tolerance) * loss)
    each = x * k_a - y * k_b - worst
    wealth = _log_sum_exp(each) - log(len(TILTS)) - np.repeat(np.log(blocks), blocks)
    return wealth + np.log(_weight(split, planned)), split


def _weight(split: NDArray[np.int64], planned: int | None) -> Floats:
    """The money on each split: 1 / (s (s + 1)); or four fifths evenly over the planned ones and such a tail after."""
    if planned is None:
        return np.asarray(1.0 / (split * (split + 1.0)), np.float64)
    later = np.maximum(split - planned, 1)
    return np.where(split <= planned, 0.8 / max(planned, 1), 0.2 / (later * (later + 1.0)))


def _log_sum_exp(logs: Floats) -> Floats:
    """Log of the sum of exponentials down the first axis."""
    if logs.shape[1] == 0:
        return np.zeros(0)
    top = logs.max(axis=0)
    return np.asarray(top + np.log(np.exp(logs - top).sum(axis=0)), np.float64)


def _total(logs: Floats) -> float:
    return float(_log_sum_exp(logs[:, None])[0]) if len(logs) else float("-inf")
