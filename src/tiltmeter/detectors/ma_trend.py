"""The moving-average rule for reward against gold, as a reading."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace

from tiltmeter.data.records import Reading
from tiltmeter.stats.trend import ma_trend


@dataclass
class GoldMaTrend:
    """How much faster the reward's moving average rises than gold's, each relative to its own level.

    Kept because it is what people compute, as a baseline to compare alarms with; nothing is decided by it. It alerts by
    custom above 0.3. It has known defects: it alerts while both rise, explodes when the reward crosses zero, and
    misses slow hacks. The classic rule answers 0 under two windows of data; here there is no reading until then.

    Formula: max(0, trend of reward - trend of gold), trend = (last - first) / (|first| + 1e-8) of the last averages
    over `window` steps that have both readings, at most `window` averages back
    Source: rule in circulation without an author, as stated in docs/worked-examples.md

    >>> fold, readings = GoldMaTrend(window=2), []
    >>> for step, (reward, gold) in enumerate([(1, 1), (1, 1), (2, 1), (2, 1), (3, 1)]):
    ...     fold.fold(Reading(0, step, "reward.mean", reward, 8))
    ...     readings.append(fold.fold(Reading(0, step, "gold.mean", gold, 8)))
    >>> [reading and round(reading.value, 3) for reading in readings]
    [None, None, None, 0.0, 0.25]
    """

    window: int = 100
    name: str = field(default="gold.ma_trend", init=False)
    watches: tuple[str, ...] = field(default=("reward.mean", "gold.mean"), init=False)
    _waiting: dict[str, Reading] = field(default_factory=dict, init=False, repr=False)
    _pairs: deque[tuple[float, float]] = field(init=False, repr=False)
    _pair_count: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        self._pairs = deque(maxlen=2 * self.window)

    def fold(self, reading: Reading) -> Reading | None:
        self._waiting[reading.name] = reading
        at = {(other.attempt, other.step) for other in self._waiting.values()}
        if len(self._waiting) < len(self.watches) or len(at) > 1:
            return None
        proxy, gold = (self._waiting[name].value for name in self.watches)
        self._waiting = {}
        self._pairs.append((proxy, gold))
        self._pair_count += 1
        if self._pair_count < 2 * self.window:
            return None
        past = list(self._pairs)
        divergence = ma_trend([p for p, _ in past], [g for _, g in past], self.window, self._pair_count)
        if not math.isfinite(divergence):
            return None
        return replace(reading, name=self.name, value=divergence, n=len(past), stderr=None, values=(), against="")
