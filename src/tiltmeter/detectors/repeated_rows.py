"""Whether an earlier attempt of a run had the very rows of a step: a resume that restores the random state."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import log

from tiltmeter.data.records import Reading

SLOPE = "gold.slope"
REPEATED = 10.0  # nats of surprise, above which slopes that are equal to those of an earlier attempt are no chance


@dataclass
class RepeatedRows:
    """The steps that were made again, by attempt. What is not chance is no bet.

    Slopes stand for rows: they are equal where all rewards and labels are. Where few values are possible they are
    equal by chance too, and then they count.
    """

    steps: set[tuple[int, int]] = field(default_factory=set)  # attempt and step
    _slopes: dict[int, tuple[array[int], array[int]]] = field(
        default_factory=dict
    )  # by attempt: steps in order, and hashes of their slopes

    def has(self, reading: Reading) -> bool:
        """Whether the rows of this reading's step were made again; learns it from slopes."""
        at = (reading.attempt, reading.step)
        if reading.name == SLOPE and self._had_before(reading) and _surprise(reading.values) > REPEATED:
            self.steps.add(at)
        return at in self.steps

    def _had_before(self, reading: Reading) -> bool:
        """Whether another attempt had these slopes at this step; keeps them."""
        mark, before = hash(reading.values), False
        self._slopes.setdefault(reading.attempt, (array("q"), array("q")))
        for attempt, (steps, marks) in self._slopes.items():
            place = bisect_left(steps, reading.step)
            if attempt == reading.attempt:
                steps.insert(place, reading.step)
                marks.insert(place, mark)
            else:
                before |= place < len(steps) and steps[place] == reading.step and marks[place] == mark
        return before


def _surprise(values: Sequence[float]) -> float:
    """How unlikely it is that others, drawn from what these values are, come out equal one by one; in nats."""
    return -sum(count * log(count / len(values)) for count in Counter(values).values())
