"""The events of a run, of which only the newest are in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, overload

from tiltmeter.data.records import Ints
from tiltmeter.rundir.journal import Event, JournalReader, read_line
from tiltmeter.rundir.payloads import BehavioursRead

#: Events that come with every step, and make up the journal.
OF_EVERY_STEP = ("reading", "step_done", "labels_closed")


def is_rare(event: Event) -> bool:
    """Whether an event is more than what every step has: alarms, findings, actions, faults, notes."""
    return event.kind not in OF_EVERY_STEP and not (event.kind == "note" and isinstance(event.payload, BehavioursRead))


class EventLog(Sequence[Event]):
    """All events of a run by number. Earlier ones are read from the journal again whenever somebody wants them."""

    def __init__(self, folder: Path, first: int = 0, rare_lines: Mapping[str, Ints] | None = None) -> None:
        self.folder, self.first = folder, first  # number of the first event in memory
        self._lines = rare_lines or {}  # by file, where lines with a rare event begin, of those before
        self._newest: list[Event] = []

    def append(self, event: Event) -> None:
        self._newest.append(event)

    def rare(self) -> Iterator[Event]:
        """The rare events, in order."""
        return chain(self.rare_before(), filter(is_rare, self._newest))

    def rare_before(self) -> Iterator[Event]:
        """The rare events that are not in memory, in order."""
        lines = (read_line(self.folder, name, int(at)) for name, begins in self._lines.items() for at in begins)
        return iter(sorted((one for events in lines for one in events if is_rare(one)), key=lambda one: one.seq))

    def since(self, number: int) -> Iterator[Event]:
        """The events from this number on."""
        if number >= self.first:
            return islice(self._newest, number - self.first, None)
        return chain(islice(JournalReader(self.folder).poll(), number, self.first), self._newest)

    def __len__(self) -> int:
        return self.first + len(self._newest)

    def __iter__(self) -> Iterator[Event]:
        return self.since(0)

    def __reversed__(self) -> Iterator[Event]:
        yield from reversed(self._newest)
        if self.first:
            yield from reversed(list(islice(JournalReader(self.folder).poll(), self.first)))

    @overload
    def __getitem__(self, at: int) -> Event: ...
    @overload
    def __getitem__(self, at: slice) -> list[Event]: ...
    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            start, stop, stride = at.indices(len(self))
            if stride > 0 and start >= self.first:
                return self._newest[start - self.first : max(stop, self.first) - self.first : stride]
            return list(self)[at]
        number = at + len(self) if at < 0 else at
        if not 0 <= number < len(self):
            raise IndexError(at)
        return next(self.since(number))
