"""Gold along a run, in stretches that do not overlap: what it is now, what it was, and which fall is excluded.

*Stretches.* The run is cut where enough labels have come, never by their values. The last stretch, `now`, takes about a
quarter of all labels, at most as many as tell a loss of a quarter; those before it are `references`, at most eight, the
older ones merged in pairs.

*Excluded.* Let g_j be mean gold of reference j and g of `now`. That a quarter of g_j is lost is excluded if

    3/4 m_j - m + sqrt((3/4 (u_j - m_j))² + (m - l)²) <= 0

with means m_j, m, Wilson's upper end u_j and lower end l (MOVER, Zou and Donner 2008). Where a quarter of m_j is below
0.05, a loss of 0.05 is what must be excluded. It must be excluded against *every* reference. So no correction for their
number is needed: the truly best one is a fixed index, and the claim is wrong only if the comparison with that one is
(an intersection-union test). Edges that followed the values would void this.

*Earned.* The claim is made after it has held with 97.5 % at four looks running, and kept while it holds with 95 %. It
is about means of stretches: what fell within `now` shows up where *no recent scale is lower*, which is asked of the
last 4 to 64 readings too, at a chance of .001 for all of them.

*Parts of a run.* Where a curve is one of many, of the slices of a run, that chance is divided by their number, and an
exclusion is asked only where labels suffice: where gold that did not change at all would have it with 3.3 standard
errors to spare (`can_tell`).

Labels that share a prompt or a step say less than independent ones: counts are divided by the design effect, the
scatter of readings around their neighbours over that of independent labels.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, sqrt
from statistics import NormalDist

import numpy as np

from tiltmeter.data.reading_table import ReadingTable
from tiltmeter.data.records import Floats, Ints
from tiltmeter.stats.intervals import wilson_interval

SHARE, LEAST_FALL = 0.25, 0.05  # of gold: OK excludes a loss of that share, or of that much where gold is low
LEAST_LABELS = 40  # of a stretch
LEAST_READINGS = 5  # of a stretch; 1 where each reading is an evaluation
NOW_PART = 3.5  # `now` has one in so many of all labels
MOST_REFERENCES = 8
SCALES = (4, 8, 16, 32, 64)  # of the last readings, none of which may be lower than a reference
LOWER_CHANCE = 0.001
FALLEN_CHANCE = 0.01  # of advising a stop over a whole run that keeps its gold; a test of each look, no proof
LOOKS_EACH = 10  # a reference: looks at every step share most of their labels
LEVEL_CHANCE = 0.05  # of an interval that misses, of all references at once
SPARE_Z = 3.3  # standard errors that an unchanged gold has to spare where an exclusion is asked of a part
EARNED_Z, KEPT_Z = 1.96, 1.645
EARNED_LOOKS, LOOKS_BACK = 4, 60
HELD_PART = 0.5  # of the labels of `now`: a state that is shown live is kept until so many came without the claim
WINDOW = 10  # readings whose scatter gives the design effect
MOST_EFFECT, LEAST_EFFECT = 64.0, 0.125


@dataclass(frozen=True, slots=True)
class Stretch:
    """Mean gold of some steps. `n`: labels; `weight`: as many independent ones."""

    first: int
    last: int
    mean: float
    n: int
    weight: float

    def ends(self, z: float) -> tuple[float, float]:
        """Wilson's interval, within [0, 1] but for rounding."""
        return wilson_interval(self.mean, max(self.weight, 1e-9), z)


@dataclass(frozen=True, slots=True)
class Look:
    """What the labels up to a step say. `fall`: of gold below its best reference, a larger one is excluded (95 %).
    `margins`: how far a loss of a quarter is from being excluded, at `EARNED_Z` and `KEPT_Z`; excluded if not above 0.
    `more_labels`: as many recent ones would exclude it if gold is as it seems; None: gold itself is too low for it."""

    now: Stretch
    best: Stretch
    fall: float
    margins: tuple[float, float]
    lower_than: Stretch | None
    more_labels: int | None
    change: tuple[float, float, float]  # of gold against its best: at most 0, with an interval
    fallen_from: Stretch | None  # as `lower_than`, so surely that training should stop
    can_tell: bool  # whether unchanged gold would surely have the exclusion

    @property
    def is_lower(self) -> bool:
        """Whether gold of a recent scale is lower than that of a reference by more than chance."""
        return self.lower_than is not None

    @property
    def allowed(self) -> float:
        """The fall that must be excluded."""
        return max(SHARE * self.best.mean, LEAST_FALL)


class GoldCurve:
    """Gold by step from one kind of label.

    >>> rng = np.random.default_rng(0)
    >>> def readings(curve): return ReadingTable("gold.mean", [
    ...     Reading(0, step, "gold.mean", rng.binomial(16, gold) / 16, 16) for step, gold in enumerate(curve)])
    >>> from tiltmeter.data.records import Reading
    >>> kept, lost = GoldCurve(readings([0.6] * 80)), GoldCurve(readings(np.linspace(0.76, 0.48, 80)))
    >>> kept.excludes_loss, lost.excludes_loss
    (True, False)
    """

    def __init__(self, readings: ReadingTable, *, evaluations: bool = False, curves: int = 1) -> None:
        """`evaluations`: each reading is one of many items by itself; `curves`: how many are looked at together."""
        self._curves = max(curves, 1)
        order = np.argsort(readings.steps, kind="stable")
        self._steps: Ints = readings.steps[order]
        values = np.clip(readings.values[order], 0.0, 1.0)
        counts = np.maximum(readings.counts[order], 1.0)
        self._least = 1 if evaluations else LEAST_READINGS
        self._looks = 1 if evaluations else EARNED_LOOKS
        self.effect = 1.0 if evaluations else _design_effect(values, counts, readings.stderrs[order])
        if curves > 1:
            self.effect = max(self.effect, 1.0)  # of many curves some scatter little by chance
        self._n = np.concatenate([[0.0], np.cumsum(counts)])
        self._sum = np.concatenate([[0.0], np.cumsum(counts * values)])
        self._edges = list(self._cuts())
        self._most = self._most_labels()
        self._cache: dict[int, Look | None] = {}

    def __len__(self) -> int:
        return len(self._steps)

    @property
    def labels(self) -> int:
        return int(self._n[-1])

    @property
    def last_look(self) -> Look | None:
        """None: too few labels for two stretches."""
        return self.look(len(self))

    @property
    def excludes_loss(self) -> bool:
        """Whether the claim is earned, and kept since."""
        return self._excludes_loss(len(self))

    @property
    def held_step(self) -> int | None:
        """The last step at which the claim held, while less than half of `now` has come since and no recent scale is
        lower. A live screen keeps its state for so long; what a run is left for in the end asks `excludes_loss`."""
        look = self.last_look
        if look is None or look.is_lower:
            return None
        for end in range(len(self), 0, -1):
            if self._n[-1] - self._n[end] > HELD_PART * look.now.n:
                return None
            if self._excludes_loss(end):
                return int(self._steps[end - 1])
        return None

    def _excludes_loss(self, last: int) -> bool:
        running = 0
        for end in range(last, max(last - LOOKS_BACK, 0), -1):
            look = self.look(end)
            if look is None or look.is_lower or look.margins[1] > 0.0:
                return False
            running = running + 1 if look.margins[0] <= 0.0 else 0
            if running == self._looks:
                return True
        return False

    @property
    def first(self) -> Stretch:
        """Gold at the start: the first stretch, or all there is."""
        return self._stretch(0, self._edges[1] if len(self._edges) > 1 else len(self))

    @property
    def now(self) -> Stretch:
        """Gold of the newest steps, or all there is."""
        look = self.last_look
        return self._stretch(0, len(self)) if look is None else look.now

    @property
    def newest(self) -> int:
        """The last step with a label."""
        return int(self._steps[-1])

    @property
    def gap(self) -> float:
        """Steps from one label to the next, as a rule."""
        gaps = np.diff(self._steps)
        return float(np.median(gaps)) if len(gaps) else 1.0

    def around(self, step: int, reach: int) -> Stretch | None:
        """Gold within so many steps of a step; None without labels there."""
        low, high = (int(np.searchsorted(self._steps, at)) for at in (step - reach, step + reach + 1))
        return self._stretch(low, high) if high > low else None

    def look(self, end: int) -> Look | None:
        """What the first `end` readings say."""
        if end not in self._cache:
            self._cache[end] = self._look(end)
        return self._cache[end]

    def _weight(self, low: int, high: int) -> float:
        return float(self._n[high] - self._n[low]) / self.effect

    def _stretch(self, low: int, high: int) -> Stretch:
        n = float(self._n[high] - self._n[low])
        mean = min(max(float(self._sum[high] - self._sum[low]) / n, 0.0), 1.0)
        return Stretch(int(self._steps[low]), int(self._steps[high - 1]), mean, int(n), n / self.effect)

    def _cuts(self) -> Iterator[int]:
        """Where stretches of enough labels end, from the start."""
        last = 0
        yield last
        for at in range(1, len(self._steps) + 1):
            if at - last >= self._least and self._weight(last, at) >= LEAST_LABELS:
                yield at
                last = at

    def _most_labels(self) -> float:
        """More do not make `now` any better: they tell a loss of a quarter of the first stretch's gold."""
        if len(self._edges) < 2:
            return LEAST_LABELS
        gold = min(max(self._stretch(0, self._edges[1]).mean, 0.1), 0.9)
        return max(100.0, 40.0 * gold * (1.0 - gold) / max(SHARE * gold, LEAST_FALL) ** 2)

    def _cut(self, end: int) -> tuple[list[tuple[int, int]], int]:
        """The references of a look and where `now` begins; no references if there are too few labels."""
        need = min(max(self._weight(0, end) / NOW_PART, LEAST_LABELS), self._most)
        begin = int(np.searchsorted(self._n[: end + 1], self._n[end] - need * self.effect + 1e-9, side="right")) - 1
        begin = min(begin, end - self._least)
        if begin < self._least or self._weight(0, begin) < LEAST_LABELS:
            return [], begin
        edges = [edge for edge in self._edges if edge <= begin]
        while len(edges) - 1 > MOST_REFERENCES or (len(edges) > 2 and self._weight(0, edges[1]) < 0.75 * need):
            edges = edges[::2]
        if len(edges) < 2 or self._weight(edges[-1], begin) >= LEAST_LABELS:
            edges.append(begin)
        else:
            edges[-1] = begin
        return list(pairwise(edges)), begin

    def _look(self, end: int) -> Look | None:
        cuts, begin = self._cut(end) if end else ([], 0)
        if not cuts:
            return None
        now, references = self._stretch(begin, end), [self._stretch(*cut) for cut in cuts]
        best = max(references, key=lambda one: one.ends(KEPT_Z)[0])
        margins = tuple(max(_margin(one, now, z) for one in references) for z in (EARNED_Z, KEPT_Z))
        fall = max(one.mean - now.mean + _reach(one, now, KEPT_Z, 1.0) for one in references)
        recent = [self._stretch(end - scale, end) for scale in SCALES if scale < end - begin and self._least > 1]
        recent = [*(one for one in recent if one.weight >= self._least), now]
        pairs = len(recent) * len(references) * self._curves
        chances = (LOWER_CHANCE / pairs, FALLEN_CHANCE / (pairs * LOOKS_EACH * len(references)))
        lower_than, fallen_from = (_highest_above(recent, references, _quantile(chance)) for chance in chances)
        change = _change(now, best, _quantile(0.5 * LEVEL_CHANCE / len(references)))
        more = _more_labels(now, references)
        can_tell = _margin(best, replace(now, mean=best.mean), KEPT_Z + SPARE_Z) <= 0.0
        ends = (margins[0], margins[1])
        return Look(now, best, max(fall, 0.0), ends, lower_than, more, change, fallen_from, can_tell)


def _quantile(chance: float) -> float:
    return NormalDist().inv_cdf(1.0 - chance)


def _highest_above(recent: list[Stretch], references: list[Stretch], z: float) -> Stretch | None:
    """The highest reference that gold of some recent scale is lower than."""
    lower = [one for one in references if any(_is_lower(part, one, z) for part in recent)]
    return max(lower, key=lambda one: one.mean, default=None)


def _change(now: Stretch, best: Stretch, z: float) -> tuple[float, float, float]:
    """Gold now less its best, with the ends of its interval (MOVER); none of them above 0."""
    gap, (low, high), (best_low, best_high) = now.mean - best.mean, now.ends(z), best.ends(z)
    down = sqrt((now.mean - low) ** 2 + (best_high - best.mean) ** 2)
    up = sqrt((high - now.mean) ** 2 + (best.mean - best_low) ** 2)
    return min(gap, 0.0), min(gap - down, 0.0), min(gap + up, 0.0)


def _kept_share(reference: Stretch) -> float:
    return 1.0 - SHARE if SHARE * reference.mean > LEAST_FALL else 1.0


def _reach(reference: Stretch, now: Stretch, z: float, share: float) -> float:
    """Of `share` times the one less the other."""
    return sqrt((share * (reference.ends(z)[1] - reference.mean)) ** 2 + (now.mean - now.ends(z)[0]) ** 2)


def _shortfall(reference: Stretch, now: Stretch) -> float:
    """How far gold now is below what must be kept of a reference, as it seems; below 0 if it is above."""
    share = _kept_share(reference)
    return share * reference.mean - now.mean - (LEAST_FALL if share == 1.0 else 0.0)


def _margin(reference: Stretch, now: Stretch, z: float) -> float:
    return _shortfall(reference, now) + _reach(reference, now, z, _kept_share(reference))


def _is_lower(part: Stretch, reference: Stretch, z: float) -> bool:
    gap = reference.mean - part.mean
    return gap > sqrt((reference.mean - reference.ends(z)[0]) ** 2 + (part.ends(z)[1] - part.mean) ** 2)


def _more_labels(now: Stretch, references: list[Stretch]) -> int | None:
    """Recent labels that are missing, to two digits: a reach shrinks with the root of their number. Where a reference's
    own reach is too large for any number of recent ones, its labels must grow alike."""
    times = 1.0
    for one in references:
        gap, share = -_shortfall(one, now), _kept_share(one)
        if gap <= 0.0:
            return None
        theirs = (share * (one.ends(EARNED_Z)[1] - one.mean)) ** 2
        own = (now.mean - now.ends(EARNED_Z)[0]) ** 2
        room = gap**2 - theirs
        times = max(times, own / room if room > 0.25 * gap**2 else (own + theirs) / gap**2)
    more = max((times - 1.0) * now.n, 1.0)
    digits = int(10 ** max(len(str(ceil(more))) - 2, 0))
    return ceil(more / digits) * digits


def _design_effect(values: Floats, counts: Floats, stderrs: Floats) -> float:
    """The variance of readings over that of as many independent labels, from their scatter within windows and from
    their own standard errors, whichever is larger; as if one window of independent labels had been seen too."""
    prior = 0.25 * (WINDOW - 1)
    above = below = prior
    for low in range(0, len(values) - WINDOW + 1, WINDOW):
        part, n = values[low : low + WINDOW], counts[low : low + WINDOW]
        mean = float((n * part).sum() / n.sum())
        above += float((n * (part - mean) ** 2).sum())
        below += (WINDOW - 1) * mean * (1.0 - mean)
    scatter = above / below
    with_error = np.isfinite(stderrs) & (stderrs > 0.0)
    own = counts[with_error] * stderrs[with_error] ** 2
    independent = values[with_error] * (1.0 - values[with_error])
    within = (float(own.sum()) + prior) / (float(independent.sum()) + prior)
    return min(max(scatter, within if with_error.any() else 0.0, LEAST_EFFECT), MOST_EFFECT)
