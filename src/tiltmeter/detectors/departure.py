"""Warns when a reading changes faster than before, by more than nearly all healthy runs ever do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from math import hypot, inf, isfinite, sqrt
from statistics import median

from tiltmeter.data.records import Alarm, Direction, Reading, Tier
from tiltmeter.detectors.calibration import CalibratedWarning, calibration_of

NORMAL = 1.4826  # a normal sample's standard deviation over its median absolute deviation
WINDOWS = 10  # into which the run so far is cut
SHORTEST = 5  # readings in a window
EARLIER = 3  # changes that the latest one is compared with, at least
VERBS: dict[Direction, str] = {"up": "rises", "down": "falls"}


def median_mad(values: list[float]) -> tuple[float, float]:
    """Median, and median absolute deviation scaled to a standard deviation.

    >>> median_mad([1.0, 2.0, 3.0, 100.0])
    (2.5, 1.4826)
    """
    centre = median(values)
    return centre, NORMAL * median(abs(value - centre) for value in values)


@dataclass
class Course:
    """One series: its latest change against its earlier ones.

    The run so far is cut, from its end backwards, into windows of a tenth of it, at least 5 readings. A change is the
    difference of the means of two neighbouring windows, in units of the warm-up's spread.
    """

    warmup: int
    since: int | None = None  # the step at which the statistic last came above zero
    _first: list[float] = field(default_factory=list)
    _scale: float = 0.0
    _sums: list[float] = field(default_factory=lambda: [0.0])

    def follow(self, value: float) -> float | None:
        """The statistic after one more value; None while there is too little, or where the warm-up had no spread."""
        if len(self._first) < self.warmup:
            self._first.append(value)
            if len(self._first) == self.warmup:
                self._scale = median_mad(self._first)[1]
                if self._scale <= 1e-9 * max(map(abs, self._first)):
                    self._scale = 0.0  # equal up to rounding: whatever follows would be infinitely far
        # Less the first value, so that a small change of a large number is not lost in the sums.
        self._sums.append(self._sums[-1] + (value - self._first[0]))
        if not self._scale or len(self._first) < self.warmup:
            return None
        changes = self._changes(window := max(SHORTEST, (len(self._sums) - 1) // WINDOWS))
        if len(changes) <= EARLIER:
            return None
        latest, *earlier = changes
        usual, spread = median_mad(earlier)
        statistic = (latest - usual) / hypot(spread, sqrt(2.0 / window))
        return statistic if isfinite(statistic) else None

    def _changes(self, window: int) -> list[float]:
        """Between neighbouring windows, the latest first."""
        ends = range(len(self._sums) - 1, window - 1, -window)
        means = [(self._sums[end] - self._sums[end - window]) / (window * self._scale) for end in ends]
        return [now - before for now, before in pairwise(means)]


@dataclass
class Departure(CalibratedWarning):
    """A warning that a reading has changed faster, in one direction, than it did before in this run.

    Dynamics, not levels: a reading may drift as far as it likes at its own pace. With D the latest change between two
    windows of a tenth of the run so far, and D_1, D_2, ... the changes before it, all in units of the warm-up's MAD,

        statistic = ±(D - median D_i) / sqrt(MAD(D_i)² + 2 / window)

    where 2 / window is the variance of a difference of two window means of independent values. It trips above `level`.

    Promise: none that is proved. `level` is the 95 % point of the statistic's *maximum over a whole run* on simulated
    benign runs; `rate` is the share of other benign runs, not used for the level, that ever tripped, and `alpha` its
    95 % upper bound. Both are printed. Void for runs unlike those, in particular much longer ones or batches of another
    size; a reading of fewer than `fewest` values is not looked at. It reads no gold, so it cannot tell a hack from a
    healthy run that looks alike: `cause` names the usual innocent one. It is there to have gold labelled sooner.
    One quiet block resolves it.

    No warning comes from fewer readings than the warm-up, from one without spread, or where a reading is missing. A
    name that ends in `.*` follows each such reading by itself.

    >>> entropy = Departure("policy.entropy", "down", level=5.0, cause="mastery")
    >>> values = [2.0 - 0.001 * t + 0.01 * (t % 3) - (0.05 * (t - 150) if t > 150 else 0.0) for t in range(170)]
    >>> alarms = [entropy.update(Reading(0, t, "policy.entropy", value, 8)) for t, value in enumerate(values)]
    >>> raised = next(filter(None, alarms))
    >>> raised.tier, raised.direction, 150 < raised.step < 165
    ('warning', 'down', True)
    """

    reading: str
    direction: Direction
    level: float
    rate: float = 0.05
    alpha: float = 0.05
    runs: int = 0  # that `rate` was measured on
    cause: str = "honest learning"
    fewest: int = 0  # values behind a reading: rates of larger batches say nothing of noisier ones
    warmup: int = 20  # readings; a tenth of the planned run where that is more
    block: int = 20
    tier: Tier = field(default="warning", init=False)
    name: str = field(default="departure", init=False, repr=False)
    watches: tuple[str, ...] = field(init=False, repr=False)
    highest: float = field(default=-inf, init=False, repr=False)  # of the statistic so far: what calibration reads
    _courses: dict[str, Course] = field(default_factory=dict, init=False, repr=False)
    _open: Alarm | None = field(default=None, init=False, repr=False)
    _quiet: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.warmup < 4:
            raise ValueError("a warm-up needs at least 4 readings, or its spread is chance")
        self.watches = (self.reading,)

    @property
    def key(self) -> str:
        """Its name in `calibration.json`."""
        return f"{self.reading} {self.direction}"

    def update(self, reading: Reading) -> Alarm | None:
        if not isfinite(reading.value) or reading.n < self.fewest:
            return None
        course = self._courses.setdefault(reading.name, Course(self.warmup))
        statistic = course.follow(reading.value)
        if statistic is None:
            return None
        statistic = statistic if self.direction == "up" else -statistic
        if statistic <= 0.0:
            course.since = None
        elif course.since is None:
            course.since = reading.step
        onset = reading.step if course.since is None else course.since
        what = f"{VERBS[self.direction]} faster than before, since about step {onset}"
        return self.compare(reading, statistic, onset, self.direction, what)


def calibrated_departure(reading: str, direction: Direction, cause: str, fewest: int = 256) -> Callable[[], Departure]:
    """The warning with its level and rate from `calibration.json`, which `benchmarks/warning_rates.py` writes.

    A reading that was not calibrated has no level, so it never warns.

    >>> calibrated_departure("policy.unheard", "up", "anything")().level
    inf
    """
    facts = calibration_of(f"{reading} {direction}")
    return partial(Departure, reading, direction, cause=cause, fewest=fewest, **facts)
