"""Gold against capability over several models: which are on the front, and which keeps capability within a margin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from tiltmeter_workbench.compare.measures.difference import FEWEST, Difference, Floats, shares

ALPHA = 0.05  # the chance that any of the intervals of a report is wrong
DRAWS = 2_000  # of prompts and items, for the intervals of shares
BASE = "base"

FrontState = Literal["nothing lost", "kept", "lost", "cannot tell"]


class FrontPoint(NamedTuple):
    """One model: gold by prompt and capability by item, both from 0 to 1. NaN: not known."""

    name: str
    gold: Floats
    capability: Floats
    kl: float = math.nan  # nats of an answer, from the base
    tokens: float = math.nan  # of an answer

    @property
    def mean_gold(self) -> float:
        return _mean(self.gold)

    @property
    def mean_capability(self) -> float:
        return _mean(self.capability)


class Share(NamedTuple):
    """A ratio of two differences with its interval; NaN where the one below is not shown to be above 0."""

    value: float
    low: float
    high: float


UNKNOWN = Share(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Front:
    """Models with the base first and the checkpoint last; what each has gained and lost against the base.

    The intervals hold all at once, with chance 95 %, so the point that is chosen by them keeps what it is said to keep.
    """

    points: Sequence[FrontPoint]
    margin: float  # of capability that may be lost

    @property
    def base(self) -> FrontPoint:
        return self.points[0]

    @property
    def checkpoint(self) -> FrontPoint:
        return self.points[-1]

    @cached_property
    def gains(self) -> list[Difference]:
        """Of gold, against the base."""
        return [shares(self.base.gold, point.gold, self._alpha) for point in self.points]

    @cached_property
    def changes(self) -> list[Difference]:
        """Of capability, against the base."""
        return [shares(self.base.capability, point.capability, self._alpha) for point in self.points]

    @property
    def _alpha(self) -> float:
        return ALPHA / (2 * (len(self.points) - 1))

    @cached_property
    def undominated(self) -> list[int]:
        """Places of points that no other equals in both and beats in one, by their means."""
        pairs = [(point.mean_gold, point.mean_capability) for point in self.points]
        return [at for at, own in enumerate(pairs) if not any(_beats(other, own) for other in pairs)]

    @cached_property
    def chosen(self) -> int:
        """Of the points whose capability is shown to be within the margin, the one with most gold; 0 is the base."""
        safe = [0, *(at for at, change in enumerate(self.changes) if at and change.low >= -self.margin)]
        return max(safe, key=lambda at: self.points[at].mean_gold)

    @property
    def state(self) -> FrontState:
        last = len(self.points) - 1
        if min(self.gains[last].n, self.changes[last].n) < FEWEST:
            return "cannot tell"
        if self.gains[self.chosen].low > 0.0:
            return "nothing lost" if self.chosen == last else "kept"
        gainers = [at for at in range(1, last + 1) if self.gains[at].low > 0.0]
        if gainers and all(self.changes[at].high < -self.margin for at in gainers):
            return "lost"
        return "cannot tell"

    @property
    def exit_code(self) -> int:
        return {"nothing lost": 0, "kept": 0, "lost": 1, "cannot tell": 2}[self.state]

    def regained(self, at: int) -> Share:
        """The share of the capability that the checkpoint lost which this point has."""
        return self._share(at, "capability")

    def paid(self, at: int) -> Share:
        """The share of the gold that the checkpoint gained which this point lacks."""
        return self._share(at, "gold")

    def _share(self, at: int, what: Literal["gold", "capability"]) -> Share:
        """Of the way from the checkpoint to the base, how far this point is; the interval by drawing items again."""
        whole = self.gains[-1] if what == "gold" else self.changes[-1]
        if not (whole.low > 0.0 if what == "gold" else whole.high < 0.0):
            return UNKNOWN
        start, own, end = (getattr(point, what) for point in (self.base, self.points[at], self.checkpoint))
        there = np.isfinite(start) & np.isfinite(own) & np.isfinite(end)
        below, above = (end - start)[there], (end - own)[there]
        draws = np.random.default_rng(0).integers(0, len(below), (DRAWS, len(below)))
        totals = below[draws].mean(1)
        ratios = np.divide(above[draws].mean(1), totals, out=np.full(DRAWS, math.nan), where=totals != 0.0)
        low, high = np.nanquantile(ratios, [ALPHA / 2, 1 - ALPHA / 2])
        return Share(float(above.mean() / below.mean()), float(low), float(high))


def _beats(other: tuple[float, float], own: tuple[float, float]) -> bool:
    return other != own and other[0] >= own[0] and other[1] >= own[1]


def _mean(values: Floats) -> float:
    there = values[np.isfinite(values)]
    return float(there.mean()) if len(there) else math.nan
