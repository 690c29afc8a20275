"""A sequential test of whether gold has fallen below an earlier level of its own: evidence at any time, with a proof.

The slope alarm asks whether the reward pushes gold down inside a prompt. A network can lose gold although it does
not: by forgetting, or because what one prompt teaches changes the answers to another. This test looks at the level
itself, and needs the gold of every answer of a group.

The run is cut into windows. Each finished window j is a reference: P_j are its prompts, A_p the answers to p in it.
At a later step t, write μ_t(p) for the expected gold of an answer to p, μ_t* for its mean over P_j, and μ_j* for the
mean over P_j of the mean of μ over A_p. The null: μ_t* >= μ_j* - δ for every window j and every later step t. It
holds if no prompt is ever worth less than it was. What is assumed, and can be checked:

(a) answers are drawn independently, given policy and prompt; gold lies in [0, 1];
(b) the order of prompts does not depend on gold: a shuffle does not, filtering by reward or an adaptive curriculum
    does;
(c) of a step's groups, those whose prompts are in P_j are a random draw of P_j. Other groups are left out, so new
    prompts are harmless. Where prompts do not come back (`paired` False) every group is compared with the window's
    mean, and the prompts of all steps have to be drawn from one pool: then a curriculum voids the claim.

Bets. θ is the mean over P_j of the mean gold over A_p, and D = θ - μ_j* its unknown error. Each prompt has a
reference value r_p, any values fixed at the window's end with mean θ over P_j. A later group of prompt p with mean
gold m gives u = m - r_p, or more: where a step's prompts were harder by themselves than their r_p say, r_p is lowered
by that excess beyond its chance error. That depends on the prompts alone and favours the null, and is why a curriculum
of prompts that come back, which (c) excludes, does little harm. With stakes λ fixed before the step, M = Π (1 - λ (u +
δ)) and Λ = Σ λ over all bets so far. The wealth is

    Z_j = M min over D of Σ_i w_i exp((L_i - Λ) D - L_i² v / 2),     v = Σ_p 1 / (4 |P_j|² |A_p|),

L_i a grid of total stakes with weights w_i that sum to 1. Without pairing v = 1 / (4 groups of the window).

Proof. (1) Given the order of prompts, D is a sum of independent centred variables with ranges 1 / (|P_j| |A_p|), so E
exp(L D) <= exp(L² v / 2) (Hoeffding), as the end of a supermartingale that runs through the window. (2) Given the
past and the window, E[u] = μ_t* - θ >= -δ - D under the null by (c). A product over a random draw without replacement
has at most the mean of one with replacement (Maclaurin's inequality), so a step of m groups multiplies M by at most
(1 + λ D)^m <= exp(m λ D) in the mean, and M exp(-Λ D) is a supermartingale. (3) The product of both, summed over i
with w_i, is a nonnegative supermartingale from 1, and at its own D it is at least Z_j, which takes the worst. So no
window is favoured by its own luck: its noise is paid for. (4) The mean over windows with weights fixed before the
run, of which those that have not ended count as 0, is below a supermartingale from 1. By Ville's inequality it ever
reaches 1/α with a chance of at most α, and it may be averaged with other such processes.

Source: own; bets as in Waudby-Smith & Ramdas 2010.09686, mixtures over stakes as in Robbins 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.bets_below import BetsBelow
from tiltmeter.stats.returning_prompts import STEPS, ReturningPrompts
from tiltmeter.stats.rise_then_fall import peak_steps, rise_then_fall

Floats = NDArray[np.float64]
Keys = NDArray[np.int64]

WINDOW = STEPS  # of the first windows, at whose end it is known whether prompts come back
GROWTH = 0.15  # of the steps so far: later windows are longer, so that few are needed
WEIGHT = 1.082  # Σ (j + 4)^-1.5 over all windows j >= 0 is below this, so that all weights together are at most 1
SHRINK = 8.0  # answers that a prompt's own mean must outweigh to stand for itself
PEAK_TOLERANCE = 0.03  # of gold: as good as the peak


def window_weight(number: int) -> float:
    """Of the money, laid on a window before the run; all together at most 1."""
    return float((number + 4.0) ** -1.5 / WEIGHT)


def window_length(steps: int) -> int:
    """Of the window that begins after so many steps."""
    return max(WINDOW, int(GROWTH * steps))


@dataclass
class LevelDropTest:
    """A running bet that gold has fallen by more than `tolerance` below an earlier window of the run.

    >>> test, rng = LevelDropTest(), np.random.default_rng(0)
    >>> for step in range(120):
    ...     test.place(step, np.arange(8), rng.binomial(8, 0.7 if step < 60 else 0.3, 8) / 8, 8)
    ...     if test.evidence > log(100.0): break
    >>> 60 < step < 75, test.drop_steps()[1]
    (True, 60)
    """

    tolerance: float = 0.01
    paired: bool | None = field(default=None, init=False)  # None: not decided yet, and nothing is bet
    _references: list[LevelReference] = field(default_factory=list, init=False, repr=False)
    _window: list[tuple[int, Keys, Floats, int]] = field(default_factory=list, init=False, repr=False)
    _prompts: ReturningPrompts = field(default_factory=ReturningPrompts, init=False, repr=False)
    _length: int = field(default=WINDOW, init=False, repr=False)
    _steps: int = field(default=0, init=False, repr=False)
    _windows: int = field(default=0, init=False, repr=False)
    _ended: float = field(default=0.0, init=False, repr=False)  # wealth of references that a rewind has ended
    _history: list[tuple[int, float, int]] = field(default_factory=list, init=False, repr=False)  # step, level, groups

    def place(self, step: int, prompts: Keys, means: Floats, size: int) -> None:
        """One step: a key per group that is equal where the prompt is, and the mean gold of its `size` answers."""
        prompts, means = np.asarray(prompts, np.int64), np.asarray(means, np.float64)
        if not ((means >= 0.0) & (means <= 1.0)).all() or size < 1:
            raise ValueError("gold outside [0, 1] voids the bound")
        if len(means):
            self._history.append((step, float(means.mean()), len(means)))
        for reference in self._references:
            reference.bet(prompts, means, self.tolerance)
        self._steps += 1
        self._window.append((step, prompts, means, size))
        self._prompts.add(prompts.tolist())
        if len(self._window) >= self._length:
            self._end_window()

    def _end_window(self) -> None:
        """The window becomes a reference. Whether prompts come back is decided once, by prompts alone, at the end of
        the first: no bet was made before."""
        self.paired = self._prompts.come_back
        self._references.append(LevelReference.of(self._window, window_weight(self._windows), paired=bool(self.paired)))
        self._windows += 1
        self._window = []
        self._length = window_length(self._steps)

    @property
    def references(self) -> Sequence[LevelReference]:
        """The windows that have ended, and have answers."""
        return [reference for reference in self._references if reference.bets_below is not None]

    @property
    def groups_a_step(self) -> float:
        """Of the steps so far, on average."""
        if not self._history:
            return 0.0
        return sum(groups for _, _, groups in self._history) / (self._history[-1][0] - self._history[0][0] + 1)

    def rewind(self, step: int) -> None:
        """The run goes back to this step: later windows are no reference for what follows; their wealth stays."""
        for reference in [reference for reference in self._references if reference.last >= step]:
            self._ended += reference.weight * exp(min(reference.evidence, 700.0))
            self._references.remove(reference)
        self._window = []  # a window is of one stretch
        self._history = [item for item in self._history if item[0] < step]

    @property
    def evidence(self) -> float:
        """Logarithm of the wealth; reaching log(1/α), ever, has a chance of at most α while the null holds."""
        parts = [log(one.weight) + one.evidence for one in self._references if np.isfinite(one.evidence)]
        if self._ended > 0.0:
            parts.append(log(self._ended))
        return float(np.logaddexp.reduce(parts)) if parts else -np.inf

    def drop_steps(self) -> tuple[int, int, int]:
        """Where gold stood highest, where its fall begins, and where half of it is lost: of the curve that rises and
        then falls and fits best. An estimate, no promise."""
        steps = [step for step, _, _ in self._history]
        levels = np.array([level for _, level, _ in self._history])
        fitted = rise_then_fall(levels, np.array([groups for _, _, groups in self._history]))
        peak, fell, half = peak_steps(levels, fitted, PEAK_TOLERANCE)
        return steps[peak], steps[fell], steps[half]


@dataclass
class LevelReference:
    """A finished window: the value of each of its prompts, and what is bet against it."""

    weight: float
    first: int
    last: int
    prompts: Keys  # sorted; empty: every group is compared with the level
    values: Floats  # r_p
    level: float  # θ
    bets_below: BetsBelow | None  # None: the window had no answers
    own: Floats  # what the window's answers to each prompt were worth by themselves
    noise: float = 0.0  # a bound of the variance of θ

    @classmethod
    def of(cls, window: list[tuple[int, Keys, Floats, int]], weight: float, *, paired: bool) -> LevelReference:
        keys = np.concatenate([prompts for _, prompts, _, _ in window])
        means = np.concatenate([means for _, _, means, _ in window])
        answers = np.concatenate([np.full(len(means), float(size)) for _, _, means, size in window])
        first, last = window[0][0], window[-1][0]
        if not len(keys):
            return cls(weight, first, last, np.zeros(0, np.int64), np.zeros(0), 0.0, None, np.zeros(0))
        if not paired:
            level = float(means.mean())
            noise, pooled = 0.25 / len(means), np.array([level])
            bets = BetsBelow.against_noise(noise)
            return cls(weight, first, last, np.zeros(0, np.int64), pooled, level, bets, pooled, noise)
        prompts, index = np.unique(keys, return_inverse=True)
        count = np.bincount(index, answers)
        own = np.bincount(index, answers * means) / count
        level = float(own.mean())
        values = level + count / (count + SHRINK) * (own - level)
        values = values - values.mean() + level
        noise = float((1.0 / count).sum()) / (4.0 * len(prompts) ** 2)
        return cls(weight, first, last, prompts, values, level, BetsBelow.against_noise(noise), own, noise)

    @property
    def evidence(self) -> float:
        return -np.inf if self.bets_below is None else self.bets_below.evidence

    def bet(self, keys: Keys, means: Floats, tolerance: float) -> None:
        """Bet on the groups of a step whose prompts are known."""
        if self.bets_below is None:
            return
        here = self._is_known(keys)
        at = np.searchsorted(self.prompts, keys[here])  # 0 where every group is compared with the level
        values = self.values[at] - _excess(self.values[at] - self.own[at])
        top = 1.0 - float(min(self.values.min(), self.own.min()))
        self.bets_below.bet(means[here] - values, top, tolerance)

    def rises(self, keys: Keys, means: Floats) -> Floats:
        """Gold of the groups of a step whose prompts are known, less what these were worth, or less than that: what
        harder prompts must not lower in `bet`, easier ones must not raise here."""
        here = self._is_known(keys)
        at = np.searchsorted(self.prompts, keys[here])
        return np.asarray(means[here] - self.values[at] - _excess(self.own[at] - self.values[at]), np.float64)

    @property
    def highest(self) -> float:
        """What `rises` takes off at most."""
        return float(self.values.max() + max((self.own - self.values).max(), 0.0))

    def _is_known(self, keys: Keys) -> NDArray[np.bool_]:
        if not len(self.prompts):
            return np.ones(len(keys), np.bool_)
        at = np.minimum(np.searchsorted(self.prompts, keys), len(self.prompts) - 1)
        return np.asarray(self.prompts[at] == keys)


def _excess(gaps: Floats) -> float:
    """By how much more than chance the values of a step's prompts are above what these were worth by themselves.

    Values are drawn towards the level. Of a step whose prompts are harder than most, as a curriculum chooses them, they
    are too high together; gold that is as it was would look lower. `gaps`: the one less the other, by group.
    """
    if not (count := len(gaps)):
        return 0.0
    mean = float(gaps.sum()) / count
    return max(0.0, mean - sqrt(max(float(gaps @ gaps) / count - mean**2, 0.0) / count))
