"""Bought labels as they come in: which rollout each is of, read once, and again only where answers were missing."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable

import pyarrow as pa

from tiltmeter.durable import entries
from tiltmeter.errors import StoreError
from tiltmeter.gold.files import Asked, labels, recorded
from tiltmeter.store import RunDirectory

SCHEMA = pa.schema([("attempt", pa.int64()), ("step", pa.int64()), ("row", pa.int32()), ("value", pa.float64())])

LIMITS = (2**53, 2**53, 2**31)  # of attempt, step and row: the file is somebody else's
SETTLED_NS = 2_000_000_000

_REQUESTS = re.compile(r"([0-9]{1,15})-([0-9]{1,15})\.jsonl")


class Labels:
    """The labels of a run. `poll` gives those that came since it was last asked."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self._open: dict[str, tuple[Asked, set[int], int]] = {}  # numbers without an answer, and when that was seen
        self._seen: set[str] = set()  # request files that were read

    def poll(self) -> pa.Table:
        """A row per new label: attempt, step, row and value; a row number counts the joined batch."""
        for entry in sorted(entries(self.run.path / "gold" / "requests"), key=lambda entry: entry.name):
            named = _REQUESTS.fullmatch(entry.name)
            if named is None or entry.name in self._seen:
                continue
            self._seen.add(entry.name)
            asked = self._asked(int(named[1]), int(named[2]))
            if asked is not None and asked.rows:
                self._open[entry.name] = (asked, set(range(len(asked.rows))), -1)
        found: list[tuple[int, int, int, float]] = []
        for name, (asked, missing, seen) in list(self._open.items()):
            changed = self._changed(asked)
            if changed == seen:
                continue
            told = _answered(self.run, asked, missing)
            found += [row for number, row in told.items() if row is not None and number in missing]
            missing -= set(told)
            if missing:
                self._open[name] = (asked, missing, changed)
            else:
                del self._open[name]
        return _table(found)

    def of(self, attempt: int, step: int) -> pa.Table:
        """The labels that were asked for together with one step, without taking note of them."""
        asked = self._asked(attempt, step)
        told = {} if asked is None else _answered(self.run, asked, range(len(asked.rows)))
        return _table([row for row in told.values() if row is not None])

    def _asked(self, attempt: int, step: int) -> Asked | None:
        try:
            return recorded(self.run, attempt, step)
        except StoreError:
            return None  # the monitor reports it; a damaged request has no rows that could be named

    def _changed(self, asked: Asked) -> int:
        """When something last came to a step's answers: they are files of one folder, which are never replaced."""
        folder = self.run.path / "gold" / "labels" / f"{asked.attempt}-{asked.step:06d}"
        try:
            changed = folder.stat().st_mtime_ns
        except OSError:
            return -1
        # Within one tick of the clock a second answer leaves the same time: what is that fresh is looked at again.
        return changed if time.time_ns() - changed > SETTLED_NS else time.time_ns()


def _answered(run: RunDirectory, asked: Asked, numbers: Iterable[int]) -> dict[int, tuple[int, int, int, float] | None]:
    """By number, each answer that is there; None for one that says why there is no label."""
    told = labels(run, asked)
    found: dict[int, tuple[int, int, int, float] | None] = {}
    for number in numbers:
        label, row = told[number], asked.rows[number]
        if label is not None:
            plain = len(row) == 3 and all(type(n) is int and 0 <= n < most for n, most in zip(row, LIMITS, strict=True))
            found[number] = (*row, label.value) if plain and label.value is not None else None
    return found


def _table(rows: list[tuple[int, int, int, float]]) -> pa.Table:
    distinct = {row[:3]: row for row in reversed(rows)}  # the first of a row stands
    columns = zip(*distinct.values(), strict=True) if distinct else ([], [], [], [])
    return pa.table([pa.array(list(column), kind) for column, kind in zip(columns, SCHEMA.types, strict=True)],
                    schema=SCHEMA)  # fmt: skip
