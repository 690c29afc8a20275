"""The readings of one name along a run, as columns: a monitor keeps them to the run's end, at 8 to 16 bytes each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from tiltmeter.data.records import Floats, Ints, Reading

MOST = 2**53  # the largest count that a column keeps exactly
WIDTH = 5  # attempt, step, value, n, standard error
VALUE = 2  # the column of values, which are kept as they are
BLOCK = 1024  # readings, from which on they are kept in less space


class ReadingTable(Sequence[Reading]):
    """Readings in the order in which they came, without the bets behind them.

    The last ones stand in a table. Earlier ones are in blocks, by column: where the numbers of a column are equal or
    follow each other evenly, as attempts, steps and counts mostly do, the first of them and the difference say it all.

    >>> series = ReadingTable("gold.mean", [Reading(0, 3, "gold.mean", 0.5, 8)])
    >>> series.add(attempt=0, step=4, value=0.6, n=8, stderr=0.1)
    >>> series[0] == Reading(0, 3, "gold.mean", 0.5, 8), series.values.tolist(), len(series.on_lineage({0: 4.0}))
    (True, [0.5, 0.6], 1)
    """

    def __init__(self, name: str, readings: Iterable[Reading] = ()) -> None:
        self.name, self._size = name, 0  # of the table, of which the last rows may be empty
        self._table: Floats = np.empty((0, WIDTH))
        self._blocks: list[tuple[Any, ...]] = []  # a column: numbers, or their first and the difference
        for one in readings:
            self.add(one.attempt, one.step, one.value, one.n, one.stderr)

    def add(self, attempt: int, step: int, value: float, n: int, stderr: float | None = None) -> None:
        if self._size == BLOCK:
            self._blocks.append(tuple(_shorten(self._table[:, number], number) for number in range(WIDTH)))
            self._size = 0  # its rows are written over
        if self._size == len(self._table):
            grown = np.zeros((min(BLOCK, max(16, 2 * self._size)), WIDTH))
            grown[: self._size] = self._table
            self._table = grown
        self._table[self._size] = attempt, step, value, min(n, MOST), np.nan if stderr is None else stderr
        self._size += 1

    @property
    def attempts(self) -> Ints:
        return self._column(0).astype(np.int64)

    @property
    def steps(self) -> Ints:
        return self._column(1).astype(np.int64)

    @property
    def values(self) -> Floats:
        return self._column(VALUE)

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
        rows = self._rows()[chosen]
        whole = max(0, len(rows) - 1) // BLOCK * BLOCK
        part._blocks = [
            tuple(_shorten(rows[low : low + BLOCK, number], number) for number in range(WIDTH))
            for low in range(0, whole, BLOCK)
        ]
        part._table = rows[whole:].copy()
        part._size = len(part._table)
        return part

    def on_lineage(self, spans: Mapping[int, float]) -> ReadingTable:
        """Those of the current lineage: by attempt, the step below which its steps count."""
        attempts = self._column(0)
        limits = np.full(len(self), -1.0)
        for attempt, limit in spans.items():
            limits[attempts == attempt] = limit
        chosen = self._column(1) < limits
        return self if chosen.all() else self.where(chosen)

    def _column(self, number: int) -> Floats:
        table = self._table[: self._size, number]
        if not self._blocks:
            return table
        return np.concatenate([*(_lengthen(block[number]) for block in self._blocks), table])

    def _rows(self) -> Floats:
        return np.stack([self._column(number) for number in range(WIDTH)], axis=1)

    def __len__(self) -> int:
        return BLOCK * len(self._blocks) + self._size

    def __iter__(self) -> Iterator[Reading]:
        return (self._reading(row) for row in self._rows())

    @overload
    def __getitem__(self, at: int) -> Reading: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Reading]: ...
    def __getitem__(self, at: int | slice) -> Reading | Sequence[Reading]:
        rows = self._rows()[at]
        return [self._reading(row) for row in rows] if isinstance(at, slice) else self._reading(rows)

    def _reading(self, row: Floats) -> Reading:
        attempt, step, value, n, stderr = row.tolist()
        return Reading(int(attempt), int(step), self.name, value, int(n), None if np.isnan(stderr) else stderr)


def _shorten(column: Floats, number: int) -> Floats | tuple[float, float]:
    """A block's column; values are as good as never even, and keep their bits."""
    if number != VALUE:
        first, difference = float(column[0]), float(column[1] - column[0]) if len(column) > 1 else 0.0
        difference = difference if np.isfinite(difference) else 0.0
        if np.array_equal(_lengthen((first, difference)), column, equal_nan=True):
            return first, difference
    return column.copy()


def _lengthen(column: Floats | tuple[float, float]) -> Floats:
    if isinstance(column, tuple):
        return column[0] + column[1] * np.arange(BLOCK, dtype=np.float64)
    return column


def by_name(readings: Iterable[Reading]) -> dict[str, ReadingTable]:
    """The readings of each name."""
    series: dict[str, ReadingTable] = {}
    for one in readings:
        series.setdefault(one.name, ReadingTable(one.name)).add(one.attempt, one.step, one.value, one.n, one.stderr)
    return series
