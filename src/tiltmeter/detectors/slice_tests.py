"""A test of its own for every slice of a run, from a part of the run's bound: which slice is losing gold, by name.

Hacks are local: one environment of twenty, whose average tells nothing. From the moment at which a second slice is seen
a part of what is left of the run's α belongs to slices, and each has a share of it that was fixed when it was first
seen, by its place in the order of appearance and by how many came with it. So no money goes from one slice to
another: a healthy slice is never named because another is bad. The proof is in docs/alarms.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from tiltmeter.data.records import Alarm, Reading
from tiltmeter.data.slices import slice_parts

SLICE_SHARE = 0.3  # of what is left of the run's α
FEW = 8  # slices that cost little: the first eight have half of the slices' share if they come one by one
MOST_TESTED = 4_096  # slices with a test; those that appear later are bet on in the run's own test alone
LEVEL = "slices.gold.prompts"
LEVEL_TESTED = 32  # slices of which the level of gold is tested too, which takes a millisecond a window


class SliceTest(Protocol):
    """The test of one slice: a `GoldLossTest` with a small α."""

    @property
    def standing(self) -> Alarm | None: ...
    @property
    def evidence(self) -> float: ...

    def update(self, reading: Reading) -> Alarm | None: ...
    def rewind(self, attempt: int, step: int) -> Alarm | None: ...
    def dismiss(self, step: int) -> Alarm | None: ...


def slice_weight(before: int, together: int) -> float:
    """The share of each of the slices that are first seen together, after others; over all slices at most 1.

    >>> [round(1 / slice_weight(0, n)) for n in (2, 20, 1000)], round(1 / slice_weight(20, 1))
    ([10, 28, 1008], 102)
    >>> sum(slice_weight(k, 1) for k in range(10**5)) < 1.0
    True
    """
    return FEW / ((before + FEW) * (before + together + FEW))


@dataclass
class SliceTests:
    """The tests of all slices by name, in the order in which these were first seen."""

    alpha: float = 0.0  # of all slices together; 0: no second slice was seen
    tests: dict[str, SliceTest] = field(default_factory=dict)
    untested: int = 0  # times that a slice came which has no test, because there are too many
    _first: str = ""  # the slice that was seen before any other

    def update(
        self, reading: Reading, alpha_left: Callable[[], float], make: Callable[[str, float], SliceTest]
    ) -> list[Alarm]:
        """Give every slice its part of a step's bets. `alpha_left`: what the run may still spend on all its tests."""
        names = [name for name, _ in reading.slices]
        if not self.alpha:
            self._first = self._first or names[0]
            if {self._first} == {self._first, *names}:
                return []
            self.alpha = SLICE_SHARE * alpha_left()
        new = [name for name in names if name not in self.tests]
        self.untested += max(len(self.tests) + len(new) - MOST_TESTED, 0)
        new = new[: MOST_TESTED - len(self.tests)]
        share = slice_weight(len(self.tests), len(new)) * self.alpha
        self.tests |= {name: make(name, share) for name in new}
        tested = set(list(self.tests)[:LEVEL_TESTED] if reading.name == LEVEL else self.tests)
        raised = []
        for name, part in slice_parts(reading):
            alarm = self.tests[name].update(part) if name in tested else None
            raised += [] if alarm is None else [alarm]
        return raised

    @property
    def standing(self) -> list[Alarm]:
        """The alarms that are open, the first slice's first."""
        return [test.standing for test in self.tests.values() if test.standing is not None]

    def rewind(self, attempt: int, step: int) -> list[Alarm]:
        resolved = [test.rewind(attempt, step) for test in self.tests.values()]
        return [alarm for alarm in resolved if alarm is not None]

    def dismiss(self, name: str, step: int) -> Alarm:
        """Resolve the open alarm of this name."""
        test = next(one for one in self.tests.values() if one.standing is not None and one.standing.name == name)
        resolved = test.dismiss(step)
        assert resolved is not None
        return resolved

    def evidence(self) -> dict[str, float]:
        """Logarithm of the odds against each slice, before its share is taken into account."""
        return {name: test.evidence for name, test in self.tests.items()}
