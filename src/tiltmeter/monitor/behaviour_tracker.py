"""Behaviours over steps: which of a step's behaviours were there before, since when, and which are new and well paid.

A fold in bounded memory: the same behaviours of steps in the same order give the same numbers, live, after a restart
and in a replay.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from tiltmeter.gold.closer_looks import BEHAVIOUR
from tiltmeter.rundir.payloads import BehaviourSeen

MOST = 32  # behaviours that are remembered; of more, those longest unseen are forgotten
WORDS = 60  # of a behaviour's features, by which it is known again
SAME = 0.5  # of the words of the one that has fewer
LASTS = 3  # steps at which it was seen, below which it may be chance, or this step's prompts
NEW = 40  # steps after its first in which a behaviour counts as new

_WORD = re.compile(r"[^\W_]+")


@dataclass(slots=True)
class Behaviour:
    """One behaviour as it is remembered."""

    number: int
    words: list[str]
    first: int
    last: int
    times: int = 0


class BehaviourTracker:
    """Gives the behaviours of steps numbers that stay.

    >>> tracker = BehaviourTracker()
    >>> one = BehaviourSeen(features=['"great question"', '"hope this helps"'], share=0.2, before=0.0)
    >>> tracker.fold(5, [one])[0].number, tracker.fold(9, [replace(one, features=['"this helps"'])])[0].first
    (1, 5)
    """

    def __init__(self) -> None:
        self._known_ones: list[Behaviour] = []
        self._next = 1

    def fold(self, step: int, seen: Sequence[BehaviourSeen]) -> list[BehaviourSeen]:
        """The same behaviours, each with its number and the step at which it was first seen."""
        followed: list[BehaviourSeen] = []
        taken: set[int] = set()
        for one in seen:
            words = _words(one.features)
            best = max(
                (item for item in self._known_ones if item.number not in taken),
                key=lambda item: (_overlap(words, item.words), -item.number),
                default=None,
            )
            if best is None or _overlap(words, best.words) < SAME:
                best = Behaviour(self._next, [], step, step)
                self._known_ones.append(best)
                self._next += 1
            taken.add(best.number)
            best.last = step
            best.times += 1
            best.words = list(dict.fromkeys([*best.words, *words]))[:WORDS]
            followed.append(replace(one, number=best.number, first=best.first, times=best.times))
        self._known_ones = sorted(self._known_ones, key=lambda item: (-item.last, item.number))[:MOST]
        return followed

    def rewind(self, step: int) -> None:
        """The run goes on from this step: what was first seen later has not happened."""
        self._known_ones = [item for item in self._known_ones if item.first < step]


def rows_to_look_at(step: int, seen: Sequence[BehaviourSeen]) -> dict[str, list[list[int]]]:
    """Of behaviours that are new and better paid than the rest, rows with it, and rows of the same prompts without."""
    return {
        f"{BEHAVIOUR}{one.number}": [one.rows, one.others]
        for one in seen
        if step - one.first <= NEW
        and one.times >= LASTS
        and one.paid_with is not None
        and one.paid_without is not None
        and one.paid_with > one.paid_without
    }


def _words(features: Sequence[str]) -> list[str]:
    """What a behaviour is known by: the words of its phrases, and its patterns as they are."""
    parts = [_WORD.findall(name.casefold()) if name.startswith('"') else [name] for name in features]
    return list(dict.fromkeys(word for of_one in parts for word in of_one))


def _overlap(one: Sequence[str], other: Sequence[str]) -> float:
    smaller = min(len(one), len(other))
    return len(set(one) & set(other)) / smaller if smaller else 0.0
