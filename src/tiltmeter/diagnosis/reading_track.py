"""Tracks one reading for the diagnosis: its first and last values, and how far it has moved between them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import dist, inf, isfinite, nan, sqrt

from tiltmeter.data.records import Reading

FEWEST = 4  # readings on a side, below which their scatter says nothing about noise


@dataclass(frozen=True, slots=True)
class Movement:
    """Where a reading began, where it is now, and how far its own noise alone could have carried it.

    `before` and `now` are means of the first and the last readings, as many on either side; `level` is the mean of the
    last ones without regard to the first. `stderr` and `level_stderr` are the standard errors of `now - before` and of
    `level`; infinite where too few readings tell.
    """

    before: float
    now: float
    stderr: float
    level: float
    level_stderr: float
    count: int
    began: int
    last: int

    @property
    def change(self) -> float:
        return self.now - self.before

    @property
    def ratio(self) -> float | None:
        """`now` over `before`; None where that is no multiple of anything."""
        return self.now / self.before if self.before > 0.0 else None

    @property
    def gap(self) -> float:
        """Steps from one reading to the next, on average."""
        return (self.last - self.began) / (self.count - 1) if self.count > 1 else 1.0


class _FirstReadings:
    """Statistics of the first readings, stored because they do not change and are used at every step."""

    __slots__ = ("mean", "side", "steps", "variance")

    def __init__(self, side: int, values: list[float], variances: list[float]) -> None:
        self.side, self.steps = side, _squared_differences(values)
        self.mean, self.variance = (sum(values) / side, sum(variances) / side) if side else (nan, nan)


@dataclass(slots=True)
class Track:
    """The first and the last `window` values of one reading.

    The noise is that of the run itself: half the mean squared difference of successive readings (von Neumann 1941),
    which a drift hardly touches, or the readings' own standard errors where those are larger. It is too small for
    readings that wander slowly without going anywhere; for them a rule's size of change is what counts.

    >>> track = Track(window=4)
    >>> for step, value in enumerate([10, 12, 10, 12, 20, 22, 20, 22]):
    ...     track.add(Reading(0, step, "length.mean", value, 64))
    >>> movement = track.movement()
    >>> movement.before, movement.now, round(movement.stderr, 6)
    (11.0, 21.0, 1.0)
    """

    window: int
    count: int = 0
    _began: int = 0
    _last: int = 0
    _first: list[float] = field(default_factory=list)
    _first_variance: list[float] = field(default_factory=list)  # of each as a mean; NaN where it does not say
    _recent: deque[float] = field(default_factory=deque)
    _recent_variance: deque[float] = field(default_factory=deque)
    _start: _FirstReadings = field(default_factory=lambda: _FirstReadings(0, [], []))
    _movement: Movement | None = None

    def add(self, reading: Reading) -> None:
        if not isfinite(reading.value):
            return
        variance = _variance(reading)
        if not self.count:
            self._began = reading.step
        if len(self._first) < self.window:
            self._first.append(reading.value)
            self._first_variance.append(variance)
        self._recent.append(reading.value)
        self._recent_variance.append(variance)
        if len(self._recent) > self.window:
            self._recent.popleft()
            self._recent_variance.popleft()
        self.count += 1
        self._last = max(self._last, reading.step)  # labels come late, and not always in order
        self._movement = None

    def movement(self) -> Movement:
        """How the reading has moved so far; of at least one value."""
        if self._movement is None:
            recent, variances = list(self._recent), list(self._recent_variance)
            side = max(1, min(self.window, self.count // 2))
            last = recent[-side:]
            if self._start.side != side:
                self._start = _FirstReadings(side, self._first[:side], self._first_variance[:side])
            steps = _squared_differences(last)
            noise = _noise_variance([self._start.steps, steps], side)
            square = _squared_stderr(noise, self._start.variance, side) + _squared_stderr(
                noise, sum(variances[-side:]) / side, side
            )
            steps = steps if len(recent) == side else _squared_differences(recent)
            level = _squared_stderr(_noise_variance([steps], len(recent)), sum(variances) / len(recent), len(recent))
            self._movement = Movement(
                self._start.mean,
                sum(last) / side,
                sqrt(square) if self.count > 1 else inf,
                sum(recent) / len(recent),
                sqrt(level),
                self.count,
                self._began,
                self._last,
            )
        return self._movement


def _squared_differences(run: list[float]) -> float:
    """The squared differences of successive readings, together."""
    step = dist(run[1:], run[:-1])
    return step * step


def _noise_variance(runs: list[float], each: int) -> float | None:
    """Variance of one reading, from successive differences inside runs of `each`; None if that is few."""
    return None if each < FEWEST else sum(runs) / (2 * (len(runs) * (each - 1)))


def _squared_stderr(noise: float | None, own: float, many: int) -> float:
    """Squared standard error of a mean: by the noise of the run, or by what its readings say of themselves if more;
    `own` is NaN if one of them does not say."""
    if noise is None:
        return own / many if own == own else inf
    return (max(noise, own) if own == own else noise) / many


def _variance(reading: Reading) -> float:
    """A reading's squared standard error; of a mean of n values in [0, 1] at most m (1 - m) / n, used where none is
    given for gold and evaluations. The count is made four larger, half of them at each end, or all-right would be
    certain."""
    if reading.stderr is not None and reading.stderr > 0.0:
        return reading.stderr * reading.stderr
    if reading.name.startswith(("eval.", "gold.level", "gold.answers", "gold.mean")) and 0.0 <= reading.value <= 1.0:
        mean = (reading.value * reading.n + 2.0) / (reading.n + 4.0)
        return mean * (1.0 - mean) / (reading.n + 4.0)
    return nan
