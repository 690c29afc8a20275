"""When gold turned down, as a distribution over steps, from labels of any steps: an estimate, no promise.

Every curve of a grid that rises, stays on a top, falls and stays there (`bent_lines`) is weighted by

    prior x exp(-TEMPER RSS / 2 s²)

where s² is the scatter that the best one leaves, at least the variance of single labels, and larger where neighbouring
residuals resemble each other: training wanders around any such curve. The turn's interval is the middle 90 % of this
weight. Where to go back to is the highest place of the average of all curves, which is surer than the turn itself.

A long run is looked at twice, the second time finely where the first look saw the turn.

Labels from long after an alarm say nothing about the turn before it, and their recoveries do not fit the curve: those
of more than `after` steps later are left out. Source: own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tiltmeter.stats.bent_lines import BentLines, Means, fit_bent_lines

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LEAST_LABELS, LEAST_STEPS = 30, 8
PLACES = 100  # of the turn, and bins that steps are pooled in
TEMPER = 0.5
COIN = (
    0.8  # of a label's variance m (1 - m), the least that is believed: labels of a step may be sampled without return
)
LEAST_GAIN = 4.0  # of tempered log likelihood over a curve that never falls, without which nothing has
ALARMED_GAIN = 1.0  # the same beside an alarm, which says by itself that something has
DRAWS = 256  # curves that the average is made of
INTERVAL = (0.05, 0.5, 0.95)
BAND = 1.645


class TurnCurve(NamedTuple):
    """Gold by step, averaged over all fits, with its 90 % band."""

    steps: Ints
    level: Floats
    low: Floats
    high: Floats


class GoldTurn(NamedTuple):
    """The last step before gold fell (the median of what is believed) and its 90 % interval.

    `top`: where the averaged curve is highest. `weights`: the share of belief at each of `curve.steps`; they sum to 1.
    Steps may be unevenly spaced: `density` is the weight per step. `gain`: of tempered log likelihood over a curve
    that never falls.
    """

    step: int
    low: int
    high: int
    top: int
    curve: TurnCurve
    weights: Floats
    gain: float

    @property
    def is_sure(self) -> bool:
        """Whether gold has fallen by its own labels, whatever an alarm says."""
        return self.gain >= LEAST_GAIN

    @property
    def density(self) -> Floats:
        return np.asarray(self.weights / _spacing(self.curve.steps.astype(np.float64)), np.float64)


def fit_turn(
    steps: ArrayLike, values: ArrayLike, counts: ArrayLike, *, until: int | None = None, after: int = 50
) -> GoldTurn | None:
    """The turn of gold from mean gold by step (`values`) of so many labels (`counts`); None: too few, or nothing falls.

    `until` is the step of the alarm: the turn is not after it. Steps may have gaps, come in any order and repeat.

    >>> rng = np.random.default_rng(0)
    >>> gold = np.interp(np.arange(200), [0, 60, 130], [0.5, 0.7, 0.3])
    >>> turn = fit_turn(np.arange(200), rng.binomial(16, gold) / 16, np.full(200, 16), until=120)
    >>> turn.low <= 60 <= turn.high, turn.high - turn.low < 40, bool(gold[turn.top] > 0.67)
    (True, True, True)
    >>> fit_turn(np.arange(200), rng.binomial(16, 0.6, 200) / 16, np.full(200, 16)) is None
    True
    """
    at, value, count = (np.asarray(one, np.float64) for one in (steps, values, counts))
    there = np.isfinite(value) & (count > 0.0) & (at <= (np.inf if until is None else until + after))
    at, value, count = at[there], value[there], count[there]
    if count.sum() < LEAST_LABELS or len(np.unique(at)) < LEAST_STEPS:
        return None
    means = Means(at, value, count).pool(np.unique(at))
    first, last = float(means.steps[0]), float(means.steps[-1])
    end = last if until is None else min(last, float(until))
    places = np.unique(np.linspace(first, last, min(int(last - first) + 1, PLACES)).round())
    belief = _believe(means, places, end)
    if belief is not None and last - first >= PLACES:
        low, _, high = belief.interval
        margin = max(high - low, 4.0 * (last - first) / PLACES) / 2.0
        fine = np.linspace(max(first, low - margin), min(last, high + margin), PLACES // 2 + 1).round()
        belief = _believe(means, np.unique(np.concatenate([places[::2], places[-1:], fine])), end)
    if belief is None or belief.gain < (LEAST_GAIN if until is None else ALARMED_GAIN):
        return None
    low, middle, high = belief.interval
    curve = belief.curve()
    usable = np.flatnonzero(curve.steps <= end)
    top = int(curve.steps[usable[np.argmax(curve.level[usable])]])
    return GoldTurn(round(middle), round(low), round(high), top, curve, belief.by_place, belief.gain)


def best_checkpoint(turn: GoldTurn, saved_steps: Iterable[int]) -> int | None:
    """The saved step to go back to: that with the highest lower end of gold, of those before the turn has surely come;
    the later of equal ones. None: none is saved there, and `turn.top` is the step to say.

    >>> gold = np.interp(np.arange(200), [0, 60, 130], [0.5, 0.7, 0.3])
    >>> best_checkpoint(fit_turn(np.arange(200), gold, np.full(200, 64)), [20, 50, 100, 150])
    50
    """
    steps, low = turn.curve.steps, turn.curve.low
    lows = {at: round(float(np.interp(at, steps, low)), 3) for at in saved_steps if steps[0] <= at <= turn.high}
    return max(lows, key=lambda at: (lows[at], at), default=None)


class _Belief(NamedTuple):
    """Curves that fall, by weight."""

    places: Floats
    lines: BentLines
    weights: Floats
    variance: float

    @property
    def by_place(self) -> Floats:
        at = np.searchsorted(self.places, self.lines.grid[:, 0])
        return np.bincount(at, self.weights, len(self.places)).astype(np.float64)

    @property
    def interval(self) -> tuple[float, float, float]:
        below = np.cumsum(self.by_place)
        low, middle, high = (self.places[min(int(np.searchsorted(below, x)), len(below) - 1)] for x in INTERVAL)
        return float(low), float(middle), float(high)

    @property
    def gain(self) -> float:
        """Of tempered log likelihood, by the best curve over those that never fall."""
        return TEMPER * float(self.lines.reduction.max() - self.lines.never) / (2.0 * self.variance)

    def curve(self) -> TurnCurve:
        """The average of `DRAWS` curves spread evenly over the weights, each with the variance of its own fit."""
        order = np.argsort(self.lines.grid[:, 0], kind="stable")
        at = np.searchsorted(np.cumsum(self.weights[order]), (np.arange(DRAWS) + 0.5) / DRAWS)
        chance = order[np.minimum(at, len(order) - 1)]
        levels, variance = self.lines.refit(chance, self.places)
        level = levels.mean(0)
        reach = BAND * np.sqrt(levels.var(0) + variance.mean(0) * self.variance / TEMPER)
        return TurnCurve(self.places.astype(np.int64), level, level - reach, level + reach)


def _believe(means: Means, places: Floats, end: float) -> _Belief | None:
    """The weight of every curve that turns at one of these places; None: none of them falls."""
    if len(means.steps) > len(places):
        means = means.pool(places)
    inner = (places > means.steps[1]) & (places < means.steps[-2]) & (places <= end)
    if not inner.any():
        return None
    lines = fit_bent_lines(means, places[inner], _spacing(places)[inner])
    if lines is None:
        return None
    mean = float(means.counts @ means.values / means.counts.sum())
    coin = min(max(mean * (1.0 - mean), 0.02), 0.25) if 0.0 <= mean <= 1.0 else 0.0  # gold may have another scale
    variance = max(lines.residual / max(len(means.steps) - 5, 1), COIN * coin, 1e-12) * lines.likeness
    weights = lines.prior * np.exp(TEMPER * (lines.reduction - lines.reduction.max()) / (2.0 * variance))
    return _Belief(places, lines, weights / weights.sum(), variance)


def _spacing(places: Floats) -> Floats:
    return np.asarray(np.gradient(places), np.float64)
