"""A set of whole numbers that mostly follow each other, such as the steps of a run: kept as ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator


class NumberSet:
    """Numbers as ranges: as large as their gaps are many, not as the run is long.

    >>> steps = NumberSet([3, 1, 2, 7])
    >>> 2 in steps, 4 in steps, len(steps), list(steps), steps.ranges
    (True, False, 4, [1, 2, 3, 7], [(1, 3), (7, 7)])
    """

    __slots__ = ("_count", "_firsts", "_lasts")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._count = 0
        for number in numbers:
            self.add(number)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return list(zip(self._firsts, self._lasts, strict=True))

    def add(self, number: int) -> bool:
        """Add a number; returns whether it is new."""
        at = bisect_right(self._firsts, number)  # of the first range that begins after it
        if at and number <= self._lasts[at - 1]:
            return False
        self._count += 1
        follows = at > 0 and self._lasts[at - 1] == number - 1
        precedes = at < len(self._firsts) and self._firsts[at] == number + 1
        if follows and precedes:
            self._lasts[at - 1] = self._lasts.pop(at)
            del self._firsts[at]
        elif follows:
            self._lasts[at - 1] = number
        elif precedes:
            self._firsts[at] = number
        else:
            self._firsts.insert(at, number)
            self._lasts.insert(at, number)
        return True

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number)
        return at > 0 and number <= self._lasts[at - 1]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges:
            yield from range(first, last + 1)
