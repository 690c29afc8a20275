"""Slices of a run side by side, gold of each along the run, tasks that became solvable overnight: numbers, no claim.

All are folded from readings of all slices (`slices.*`). A task that nothing was paid for, visit after visit, and that
is then paid for within a few steps was learnt at once or found out: look at what is paid.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from tiltmeter.data.reading_table import ReadingTable
from tiltmeter.data.slices import PREFIX, RATERS
from tiltmeter.verdict.gold_standing import SOURCES

SHOWN = ("reward.mean", *SOURCES, "task.paid")
BETS = ("gold.slope", "gold.duel")
RECENT = 20  # steps of a slice that its reward and gold are the mean of
UNSOLVED = 0.05  # of a task's rollouts that are paid, at most, before it counts as solved overnight
UNSOLVED_ROLLOUTS = 8  # at least, that say so
BEGINS = 0.2  # of a visit's rollouts that are paid: something has changed
SOLVED = 0.5  # of the rollouts since then
SOLVED_ROLLOUTS = 4
OVERNIGHT = 10  # steps within which it happens
MOST_TASKS = 20_000  # that are followed
MOST_SLICES = 64  # whose gold is kept along the run: the first
MOST_READINGS = 256  # of each; then the older half is joined in pairs


@dataclass
class SliceNumbers:
    """What is known of one slice: rollouts so far, and reward and gold of its last steps as (mean, number)."""

    rollouts: int = 0
    last: int = -1  # step at which it was seen last
    reward: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECENT))
    gold: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=RECENT))


def recent_mean(points: Sequence[tuple[float, int]]) -> float | None:
    """The mean of means by their numbers; None where there is none.

    >>> recent_mean([(1.0, 3), (0.0, 1)]), recent_mean([])
    (0.75, None)
    """
    total = sum(count for _, count in points)
    return sum(mean * count for mean, count in points) / total if total else None


@dataclass
class FollowedTask:
    """Rollouts and how many of them were paid, before a task was first paid for and since."""

    before: list[float] = field(default_factory=lambda: [0, 0.0])
    since: list[float] = field(default_factory=lambda: [0, 0.0])
    first: int | None = None  # step at which it was first paid for


@dataclass(frozen=True, slots=True)
class SolvedTask:
    """A task that went from nothing to being paid for within a few steps."""

    name: str
    step: int
    before: float  # share that was paid before
    since: float
    rollouts: int  # since then


@dataclass
class SliceGold:
    """Gold of each slice by step, from the best source there is, in bounded memory."""

    source: str = ""
    tables: dict[str, ReadingTable] = field(default_factory=dict)  # by slice

    def add(self, step: int, source: str, name: str, mean: float, labels: int) -> bool:
        """Whether this is the source that is used."""
        if self.source and SOURCES.index(source) > SOURCES.index(self.source):
            return False
        if source != self.source:
            self.source, self.tables = source, {}
        if name in self.tables or len(self.tables) < MOST_SLICES:
            table = self.tables.setdefault(name, ReadingTable(source))
            table.add(0, step, mean, labels)
            if len(table) > MOST_READINGS:
                self.tables[name] = _join_older(table)
        return True

    def rewind(self, step: int) -> None:
        """Another attempt begins here."""
        before = {name: table.where(table.steps < step) for name, table in self.tables.items()}
        self.tables = {name: table for name, table in before.items() if len(table)}


def _join_older(table: ReadingTable) -> ReadingTable:
    """The older half in pairs, which depend on the order of readings alone."""
    steps, values, counts, shorter = table.steps, table.values, table.counts, ReadingTable(table.name)
    half = len(table) // 4 * 2
    edges = [*range(0, half, 2), *range(half, len(table) + 1)]
    for part in (slice(*pair) for pair in pairwise(edges)):
        mean, labels = float(np.average(values[part], weights=counts[part])), int(counts[part].sum())
        shorter.add(0, int(steps[part][-1]), mean, labels)
    return shorter


@dataclass
class SliceTable:
    """Folds the readings of a run; those of an abandoned attempt stay in the counts of rollouts."""

    slices: dict[str, SliceNumbers] = field(default_factory=dict)
    gold: SliceGold = field(default_factory=SliceGold)
    solved: dict[str, SolvedTask] = field(default_factory=dict)
    _tasks: dict[str, FollowedTask | None] = field(default_factory=dict)  # None: it cannot become one any more
    _attempt: int = -1

    def add(self, attempt: int, step: int, measured: Mapping[str, Sequence[Any]]) -> None:
        if attempt > self._attempt:
            self._rewind(step)
            self._attempt = attempt
        for name, packed in measured.items():
            if name.startswith(PREFIX) and len(packed) > 6 and attempt == self._attempt:
                self._add_reading(step, name.removeprefix(PREFIX), packed)

    def _add_reading(self, step: int, name: str, packed: Sequence[Any]) -> None:
        for whose, _ in packed[6] if name in BETS else ():
            if str(whose).startswith(RATERS):  # of pairs there is no level: they are listed by what is bet on them
                self.slices.setdefault(str(whose), SliceNumbers()).last = step
        rows = zip(packed[6], packed[3], packed[5], strict=False)
        for (whose, _), mean, count in rows if name in SHOWN else ():
            if name == "task.paid":
                self._add_visit(step, str(whose), float(mean), int(count))
                continue
            numbers = self.slices.setdefault(str(whose), SliceNumbers())
            if name == "reward.mean":
                numbers.rollouts += int(count)
                numbers.last = step
                numbers.reward.append((float(mean), int(count)))
            elif self.gold.add(step, name, str(whose), float(mean), int(count)):
                numbers.gold.append((float(mean), int(count)))

    def _add_visit(self, step: int, name: str, share: float, rollouts: int) -> None:
        if name not in self._tasks and len(self._tasks) >= MOST_TASKS:
            return
        task = self._tasks.setdefault(name, FollowedTask())
        if task is None:
            return
        if task.first is None and share < BEGINS:
            task.before = [task.before[0] + rollouts, task.before[1] + share * rollouts]
            return
        if task.first is None:
            count, paid = task.before
            if count < UNSOLVED_ROLLOUTS or paid > UNSOLVED * count:
                self._tasks[name] = None
                return
            task.first = step
        task.since = [task.since[0] + rollouts, task.since[1] + share * rollouts]
        count, paid = task.since
        if step - task.first > OVERNIGHT:
            self._tasks[name] = None
        elif count >= SOLVED_ROLLOUTS and paid >= SOLVED * count:
            before = task.before[1] / task.before[0]
            self.solved[name] = SolvedTask(name, task.first, before, paid / count, int(count))

    def _rewind(self, step: int) -> None:
        """Another attempt begins here: what was solved later is to be solved again."""
        self.gold.rewind(step)
        for name in [name for name, task in self.solved.items() if task.step >= step]:
            del self.solved[name]
            self._tasks.pop(name, None)
