"""The journal: the events of a run, one JSON object per line, append only, written by the monitor alone.

Each line carries a CRC-32 of itself, so that a torn or damaged one is recognised; it is skipped and counted, wherever
it stands. Each event has an id made of its kind, its record's identity and the configuration's hash; readers
keep the first of equal ids, so a monitor that died in the middle of a step recomputes the step and nothing doubles.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from tiltmeter.data.records import Action, Alarm, Fault, Finding, Reading
from tiltmeter.rundir.atomic_write import entries, sync_folder, write_all

KINDS = ("attempt", "reading", "step_done", "labels_closed", "alarm", "finding", "action", "fault", "note")
DURABLE = frozenset({"attempt", "step_done", "labels_closed", "alarm", "action"})  # fsynced before the monitor goes on
LINE_LIMIT = 1 << 20  # an ordinary line has a few kB; a reader may refuse what is longer than this

_LONGEST = LINE_LIMIT + 64  # with its checksum and line break
_CRC = len(',"crc":"00000000"}')
_KEYS = ("id", "seq", "kind", "attempt", "step", "time", "data")


@dataclass(frozen=True, slots=True)
class Event:
    """One line: what happened, and at which step of which attempt it was written down."""

    kind: str
    attempt: int
    step: int
    data: Mapping[str, Any]
    id: str
    seq: int = -1
    time: float = 0.0  # for display; no decision reads a clock
    extra: Mapping[str, Any] = field(default_factory=dict)  # keys of a newer version, kept as they are

    def same_content(self, other: Event) -> bool:
        """Equal except for sequence number and time: how replay compares with the recorded events."""
        mine = (self.kind, self.attempt, self.step, self.id, self.data)
        return mine == (other.kind, other.attempt, other.step, other.id, other.data)

    def line(self) -> bytes:
        plain = {name: getattr(self, name) for name in _KEYS}
        text = json.dumps(plain | dict(self.extra), allow_nan=False, separators=(",", ":")).encode("ascii")
        if len(text) > LINE_LIMIT:
            raise ValueError(f"an event of kind {self.kind} has {len(text)} bytes, more than a line may have")
        return b'%b,"crc":"%08x"}\n' % (text[:-1], zlib.crc32(text))


def event(record: Alarm | Finding | Action | Fault, attempt: int, step: int, config: str) -> Event:
    """The event for a record, at a step of an attempt; its id contains the record's full identity.

    An alarm's resolution is written in the attempt that resolves it, which after a rewind may be another one, at a
    step of the same number: the attempt that writes is part of the id.
    """
    data = jsonable(asdict(record))
    key: tuple[object, ...]
    match record:
        case Alarm():
            kind, key = "alarm", (record.name, record.detector, record.direction, record.step, record.resolved)
        case Finding():
            kind, key = "finding", (record.step, record.failure)
        case Action():
            kind, key = "action", (record.id, record.state)
        case Fault():
            kind, key = "fault", (record.step, record.part, record.error)
    return Event(kind, attempt, step, data, event_id(kind, record.attempt, *key, attempt, config))


def event_id(*parts: object) -> str:
    """
    >>> event_id("alarm", 0, "gold.slope", None)
    'alarm|0|gold.slope|-'
    """
    return "|".join("-" if part is None else str(part) for part in parts)


def reading_event(
    attempt: int, step: int, measured: Iterable[Reading], derived: Iterable[Reading], config: str
) -> Event:
    """All readings of a step on one line, about 55 bytes each: 10^5 steps of 70 readings are about 400 MB."""
    data = {
        "measured": {reading.name: _compact(reading) for reading in measured},
        "derived": {reading.name: _compact(reading) for reading in derived},
    }
    return Event("reading", attempt, step, data, event_id("reading", attempt, step, config))


def readings_of(event: Event, part: str = "measured") -> list[Reading]:
    """The readings a `reading` event holds, in the order they were made."""
    return [
        Reading(
            event.attempt,
            event.step,
            name,
            packed[0],
            packed[1],
            packed[2],
            tuple(packed[3]) if len(packed) > 3 else (),
            packed[4] if len(packed) > 4 else "",
        )
        for name, packed in event.data.get(part, {}).items()
    ]


def record_of(event: Event) -> Alarm | Fault | Finding | Action:
    """The record an event wrote down; fields of a newer version are left aside."""
    kinds: dict[str, type[Any]] = {"alarm": Alarm, "fault": Fault, "finding": Finding, "action": Action}
    cls = kinds[event.kind]
    names = {f.name for f in fields(cls)}
    record: Alarm | Fault | Finding | Action = cls(
        **{name: value for name, value in event.data.items() if name in names}
    )
    return record


class Journal:
    """Appends events. Raises OSError if a line could not be written; the caller then restarts from what is on disk.

    `durable=False`: lines survive a kill, not a power cut; for events that can be recomputed from stored files.
    """

    def __init__(self, folder: Path, seq: int = 0, written_ids: Iterable[str] = (), *, durable: bool = True) -> None:
        self.folder, self.seq, self._durable = folder, seq, durable
        self._written_ids = set(written_ids)  # ids of a step that was begun and not closed
        self._handles: dict[int, int] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def append(self, event: Event) -> None:
        if event.id in self._written_ids:
            return
        entry = Event(event.kind, event.attempt, event.step, event.data, event.id, self.seq, time.time(), event.extra)
        handle = self._handle(event.attempt)
        write_all(handle, entry.line())
        if self._durable and event.kind in DURABLE:
            os.fsync(handle)
        self.seq += 1
        self._written_ids.add(event.id)
        if event.kind == "step_done":
            self._written_ids.clear()  # what follows belongs to another step and has other ids

    def _handle(self, attempt: int) -> int:
        if attempt not in self._handles:
            path = self.folder / f"{attempt}.jsonl"
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                size = os.fstat(handle).st_size
                if size and os.pread(handle, 1, size - 1) != b"\n":
                    write_all(handle, b"\n")  # or the next event would continue a torn line and be lost with it
                sync_folder(self.folder)  # also for a file that was there: whoever made it may have failed here
            except OSError:
                os.close(handle)
                raise
            self._handles[attempt] = handle
        return self._handles[attempt]

    def close(self) -> None:
        while self._handles:
            _, handle = self._handles.popitem()
            try:
                os.close(handle)
            except OSError:
                pass  # the lines that must last were fsynced; this is also called because the disk fails


class JournalReader:
    """Reads events: each `poll` yields those added since the last one, in sequence order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.skipped = 0  # lines that are not events: torn by a crash, or damaged
        self._offsets: dict[Path, int] = {}
        self._ids: set[str] = set()

    def poll(self) -> Iterator[Event]:
        paths = sorted(Path(e.path) for e in entries(self.folder) if e.name.endswith(".jsonl"))
        for item in heapq.merge(*(self._lines(path) for path in paths), key=lambda event: event.seq):
            if item.id not in self._ids:
                self._ids.add(item.id)
                yield item

    def _lines(self, path: Path) -> Iterator[Event]:
        with path.open("rb") as file:
            file.seek(self._offsets.get(path, 0))
            while line := file.readline(_LONGEST):
                whole = line.endswith(b"\n")
                if not whole and len(line) < _LONGEST:
                    break  # still being written, or torn for ever
                self._offsets[path] = self._offsets.get(path, 0) + len(line)
                if not whole:
                    continue  # too long for an event: skipped piece by piece, counted at its end
                if (item := parse(line)) is not None:
                    yield item
                elif line.strip():
                    self.skipped += 1


def read_events(folder: Path) -> list[Event]:
    """Every event so far."""
    return list(JournalReader(folder).poll())


def parse(line: bytes) -> Event | None:
    """The event on a line, or None if it is not one: torn, or changed since it was written."""
    line = line.rstrip(b"\n")
    text = line[:-_CRC] + b"}"
    if line[-_CRC:] != b',"crc":"%08x"}' % zlib.crc32(text):
        return None
    try:
        raw = json.loads(text)
        event = Event(**{key: raw.pop(key) for key in _KEYS}, extra=raw)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    sound = isinstance(event.data, dict) and isinstance(event.seq, int) and isinstance(event.kind, str)
    return event if sound and isinstance(event.attempt, int) and isinstance(event.step, int) else None


def jsonable(value: Any) -> Any:
    """Tuples as lists, and a number that is not finite as its flag: JSON has no NaN, and null alone would hide why."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"value": None, "flag": "nan" if math.isnan(value) else "+inf" if value > 0 else "-inf"}
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    return [jsonable(item) for item in value] if isinstance(value, (list, tuple)) else value


def _compact(reading: Reading) -> list[Any]:
    packed: list[Any] = [reading.value, reading.n, reading.stderr]
    if reading.against:
        return [*packed, list(reading.values), reading.against]
    return [*packed, list(reading.values)] if reading.values else packed
