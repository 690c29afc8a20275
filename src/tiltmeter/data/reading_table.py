"""The readings of one name along a run, as columns: a monitor keeps them to the run's end, at 40 bytes each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import overload

import numpy as np

from tiltmeter.data.records import Floats, Ints, Reading

MOST = 2**53  # the largest count that a column keeps exactly
WIDTH = 5  # attempt, step, value, n, standard error


class ReadingTable(Sequence[Reading]):
    """Readings in the order in which they came, without the bets behind them.

    >>> series = ReadingTable("gold.mean", [Reading(0, 3, "gold.mean", 0.5, 8)])
    >>> series.add(attempt=0, step=4, value=0.6, n=8, stderr=0.1)
    >>> series[0] == Reading(0, 3, "gold.mean", 0.5, 8), series.values.tolist(), len(series.on_lineage({0: 4.0}))
    (True, [0.5, 0.6], 1)
    """

    def __init__(self, name: str, readings: Iterable[Reading] = ()) -> None:
        self.name, self._size = name, 0
        self._table: Floats = np.empty((0, WIDTH))
        for one in readings:
            self.add(one.attempt, one.step, one.value, one.n, one.stderr)

    def add(self, attempt: int, step: int, value: float, n: int, stderr: float | None = None) -> None:
        if self._size == len(self._table):
            grown = np.zeros((max(16, self._size + self._size // 4), WIDTH))
            grown[: self._size] = self._table
            self._table = grown
        self._table[self._size] = attempt, step, value, min(n, MOST), np.nan if stderr is None else stderr
        self._size += 1

    @property
    def steps(self) -> Ints:
        return self._column(1).astype(np.int64)

    @property
    def values(self) -> Floats:
        return self._column(2)

    @property
    def counts(self) -> Floats:
        """Values behind each mean."""
        return self._column(3)

    @property
    def stderrs(self) -> Floats:
        """NaN: too few groups to tell."""
        return self._column(4)

    def where(self, chosen: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> ReadingTable:
        """Those for which `chosen` is true."""
        part = ReadingTable(self.name)
        part._table = self._table[: self._size][chosen]
        part._size = len(part._table)
        return part

    def on_lineage(self, spans: Mapping[int, float]) -> ReadingTable:
        """Those of the current lineage: by attempt, the step below which its steps count."""
        attempts = self._column(0)
        limits = np.full(self._size, -1.0)
        for attempt, limit in spans.items():
            limits[attempts == attempt] = limit
        return self.where(self._column(1) < limits)

    def _column(self, number: int) -> Floats:
        return self._table[: self._size, number]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Reading]:
        return (self._reading(row) for row in self._table[: self._size])

    @overload
    def __getitem__(self, at: int) -> Reading: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Reading]: ...
    def __getitem__(self, at: int | slice) -> Reading | Sequence[Reading]:
        rows = self._table[: self._size][at]
        return [self._reading(row) for row in rows] if isinstance(at, slice) else self._reading(rows)

    def _reading(self, row: Floats) -> Reading:
        attempt, step, value, n, stderr = row.tolist()
        return Reading(int(attempt), int(step), self.name, value, int(n), None if np.isnan(stderr) else stderr)


def by_name(readings: Iterable[Reading]) -> dict[str, ReadingTable]:
    """The readings of each name."""
    series: dict[str, ReadingTable] = {}
    for one in readings:
        series.setdefault(one.name, ReadingTable(one.name)).add(one.attempt, one.step, one.value, one.n, one.stderr)
    return series
