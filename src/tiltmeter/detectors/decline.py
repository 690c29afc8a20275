"""Warns when a reading has fallen steadily to a small part of what it was, further than nearly all healthy runs do."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from math import inf, isfinite, log

from tiltmeter.data.records import Alarm, Reading, Tier
from tiltmeter.detectors.calibration import CalibratedWarning, calibration_of

WINDOWS = 10  # into which the run so far is cut
SHORTEST = 5  # readings in a window
FEWEST = 5  # windows, before anything is said to be steady


def steady_fall(sums: Sequence[float]) -> tuple[float, float]:
    """How far the means of windows have fallen, in natural logarithms, times how steadily; and the part that is left.

    `sums` are running sums that begin with 0. Steadily: the pairs of windows of which the later is lower, less those of
    which it is higher, over all pairs. Nothing can be said of few readings or of means that are not positive.

    >>> falling = [0.0]
    >>> for step in range(50):
    ...     falling.append(falling[-1] + 2.0 ** (-step / 25))
    >>> [round(value, 2) for value in steady_fall(falling)]
    [1.25, 0.29]
    """
    count = len(sums) - 1
    window = max(SHORTEST, count // WINDOWS)
    means = [(sums[end] - sums[end - window]) / window for end in range(count, window - 1, -window)]  # latest first
    if len(means) < FEWEST or min(means) <= 0.0:
        return 0.0, 1.0
    pairs = [(earlier > later) - (earlier < later) for later, earlier in combinations(means, 2)]
    fall = log(means[-1] / means[0])
    return max(fall, 0.0) * max(sum(pairs), 0) / len(pairs), means[0] / means[-1]


@dataclass
class Decline(CalibratedWarning):
    """A warning that a positive reading has fallen steadily, and to a smaller part of its start than in healthy runs.

    A slow fall has no change of pace, so `Departure` is silent on it. The run so far is cut, from its end backwards,
    into windows of a tenth of it, at least 5 readings and 5 windows:

        statistic = ln(first mean / latest mean) * (pairs of windows that fall - pairs that rise) / pairs

    It trips above `level`: at 1 a fall without a rise between has left 37 %.

    Promise: none that is proved; `level`, `rate` and `alpha` as in `Departure`, measured on simulated benign runs. They
    fall too, so this warns of a fall that is larger than theirs, not of any. A ratio has no unit, so entropy per token
    and per answer have one level; but a task with one right answer to each prompt ends near zero in honesty, which
    `cause` says. It reads no gold. One quiet block resolves it.

    >>> entropy = Decline(("policy.entropy",), level=1.0, cause="mastery")
    >>> falling = (Reading(0, t, "policy.entropy", 2.0 * 0.99**t, 512) for t in range(300))
    >>> raised = next(filter(None, map(entropy.update, falling)))
    >>> raised.tier, 100 < raised.step < 120, raised.onset
    ('warning', True, 0)
    """

    readings: tuple[str, ...]  # the same thing under several names: one warning for all of them
    level: float
    rate: float = 0.05
    alpha: float = 0.05
    runs: int = 0  # that `rate` was measured on
    cause: str = "honest learning"
    block: int = 20
    tier: Tier = field(default="warning", init=False)
    name: str = field(default="decline", init=False, repr=False)
    watches: tuple[str, ...] = field(init=False, repr=False)
    highest: float = field(default=-inf, init=False, repr=False)  # of the statistic so far: what calibration reads
    _sums: dict[str, array[float]] = field(default_factory=dict, init=False, repr=False)
    _first: dict[str, int] = field(default_factory=dict, init=False, repr=False)  # step of the first reading
    _open: Alarm | None = field(default=None, init=False, repr=False)
    _quiet: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        self.watches = self.readings

    @property
    def key(self) -> str:
        """Its name in `calibration.json`."""
        return f"{self.readings[0]} steadily down"

    def update(self, reading: Reading) -> Alarm | None:
        if not isfinite(reading.value):
            return None
        sums = self._sums.setdefault(reading.name, array("d", [0.0]))
        first = self._first.setdefault(reading.name, reading.step)
        sums.append(sums[-1] + reading.value)
        statistic, left = steady_fall(sums)
        what = f"has fallen steadily since step {first}, to {left:.0%} of what it was"
        return self.compare(reading, statistic, first, "down", what)


def calibrated_decline(*readings: str, cause: str) -> Callable[[], Decline]:
    """The warning with its level and rate from `calibration.json`; a reading without a level never warns.

    >>> calibrated_decline("policy.unheard", cause="anything")().level
    inf
    """
    facts = calibration_of(f"{readings[0]} steadily down")
    return partial(Decline, readings, cause=cause, **facts)
