"""Which runs are being read at this moment, in memory that outlives the process that reads them."""

from __future__ import annotations

import mmap
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

SLOTS = 256  # reads at once that are noted; more go on unnoted
_SLOT = struct.Struct("<d?16s")  # when it began, whether it may take long, the id of the run


class ReadMark(NamedTuple):
    """A run that is being read."""

    run: str
    began: float  # monotonic, the same clock in all processes of a machine
    patient: bool


class ReadMarks:
    """Notes each read of a run while it lasts. After a fork the parent sees what the child notes.

    Suspects are read one at a time: of several that were being read when a process died, the guilty one is found so.

    >>> marks = ReadMarks()
    >>> with marks.reading("5f2a"):
    ...     [mark.run for mark in marks.current()]
    ['5f2a']
    >>> marks.current()
    []
    """

    def __init__(self) -> None:
        self.suspects: set[str] = set()
        self.set_aside: dict[str, str] = {}  # runs that are not read any more, and why
        self._alone = threading.RLock()
        self._memory = mmap.mmap(-1, SLOTS * _SLOT.size)
        self._lock = threading.Lock()
        self._free = list(range(SLOTS))

    @contextmanager
    def reading(self, run: str, *, patient: bool = False) -> Iterator[None]:
        """`patient`: it may take as long as it takes, and holds up nobody."""
        with self._alone if run in self.suspects else nullcontext(), self._noted(run, patient):
            yield

    @contextmanager
    def _noted(self, run: str, patient: bool) -> Iterator[None]:
        with self._lock:
            slot = self._free.pop() if self._free else None
        if slot is None:
            yield
            return
        at = slot * _SLOT.size
        self._memory[at : at + _SLOT.size] = _SLOT.pack(time.monotonic(), patient, run.encode("ascii", "replace"))
        try:
            yield
        finally:
            self._memory[at : at + _SLOT.size] = bytes(_SLOT.size)
            with self._lock:
                self._free.append(slot)

    def current(self) -> list[ReadMark]:
        """The reads that have begun and not ended."""
        slots = (_SLOT.unpack_from(self._memory, slot * _SLOT.size) for slot in range(SLOTS))
        return [ReadMark(run.rstrip(b"\0").decode("ascii"), began, patient) for began, patient, run in slots if began]

    def clear(self) -> None:
        """Forget what a process that is gone had noted."""
        self._memory[:] = bytes(len(self._memory))
