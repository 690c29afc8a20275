"""The journal: the events of a run, append only, written by the monitor alone.

One arrival is one commit, and one commit is one line: a JSON object with all its events and a CRC-32 of itself. So an
arrival is in the journal whole or not at all, and a monitor that died in the middle of a line handles that arrival
again. A torn or damaged line is skipped and counted, wherever it stands. Only the newest file is written to: those
of earlier attempts are never touched again. Each line states a hash of all before it: see `journal_links`.

Each event has an id made of its kind, its record's identity and the configuration's hash; readers keep the first of
equal ids.
"""

from __future__ import annotations

import heapq
import json
import math
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from msgspec import Raw, Struct
from msgspec.json import Decoder

from tiltmeter.data.number_set import NumberSet
from tiltmeter.data.records import Action, Alarm, Fault, Finding, Reading
from tiltmeter.errors import StoreError
from tiltmeter.rundir.atomic_write import sync_folder, write_all
from tiltmeter.rundir.journal_links import LINE_BYTES, LONGEST, ChainEnd, in_order
from tiltmeter.rundir.parquet import FORMAT
from tiltmeter.rundir.payloads import Payload, check_payload, parse_payload
from tiltmeter.rundir.run_path import entries, make_folder, open_file
from tiltmeter.rundir.sidecar import WRONG_CONTENT, refuse

KINDS = ("attempt", "reading", "step_done", "labels_closed", "alarm", "finding", "action", "fault", "note")
DURABLE = frozenset({"attempt", "step_done", "labels_closed", "alarm", "action"})  # fsynced before the monitor goes on
JOURNAL_BYTES = 4 << 30  # of one file; 10^5 steps have about 400 MB
LINE_LIMIT = LINE_BYTES  # a reader may refuse what is longer than this
MOST_PIECES = 16
_CRC = len(',"crc":"00000000"}')
_KEYS = ("id", "kind", "attempt", "step", "data")  # of an event


@dataclass(frozen=True, slots=True)
class Event:
    """What happened, and at which step of which attempt it was written down."""

    kind: str
    attempt: int
    step: int
    data: Mapping[str, Any]
    id: str
    seq: int = -1
    time: float = 0.0  # for display; no decision reads a clock
    commit: int = -1  # `seq` of the first event of its line
    extra: Mapping[str, Any] = field(default_factory=dict)  # keys of a newer version, kept as they are

    def same_content(self, other: Event) -> bool:
        """Equal except for sequence number and time: how replay compares with the recorded events."""
        mine = (self.kind, self.attempt, self.step, self.id, self.data)
        return mine == (other.kind, other.attempt, other.step, other.id, other.data)

    @property
    def payload(self) -> Payload | None:
        """The data as its type; None if this version does not know it."""
        return parse_payload(self.kind, self.data)

    def plain(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _KEYS} | dict(self.extra)

    def line(self) -> bytes:
        """A commit of this event alone."""
        return encode_commit([self], self.seq, self.time)


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


def pack_readings(measured: Iterable[Reading], derived: Iterable[Reading]) -> dict[str, Any]:
    """All readings of a step in one event, about 55 bytes each: 10^5 steps of 70 readings are about 400 MB."""
    return {
        "measured": {reading.name: _compact(reading) for reading in measured},
        "derived": {reading.name: _compact(reading) for reading in derived},
    }


def reading_event(
    attempt: int, step: int, measured: Iterable[Reading], derived: Iterable[Reading], config: str
) -> Event:
    data = pack_readings(measured, derived)
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
            tuple(packed[5]) if len(packed) > 5 else (),
            tuple((name, count) for name, count in packed[6]) if len(packed) > 6 else (),
        )
        for name, packed in event.data.get(part, {}).items()
    ]


class Journal:
    """Writes commits. Raises OSError if one could not be written; the caller then restarts from what is on disk.

    `durable=False`: lines survive a kill, not a power cut; for events that can be recomputed from stored files.
    `chain`: what lines state of those before them; None: nothing.
    """

    def __init__(self, folder: Path, seq: int = 0, *, durable: bool = True, chain: ChainEnd | None = None) -> None:
        self.folder, self.seq, self._durable, self._chain = folder, seq, durable, chain
        self._handle, self._number = -1, -1  # of the newest file
        make_folder(folder.parent, folder.name)

    def commit(self, events: Iterable[Event]) -> None:
        """Write the events of one arrival: all of them or, if this raises or is killed, none."""
        events = list(events)
        if not events:
            return
        handle = self._open(events[0].attempt)
        write_all(handle, encode_commit(events, self.seq, time.time(), self._chain))
        if self._durable and any(item.kind in DURABLE for item in events):
            os.fsync(handle)
        self.seq += len(events)

    def _open(self, attempt: int) -> int:
        """The newest file. An attempt begins the next one; labels that come late for an older attempt do not."""
        if self._handle >= 0 and attempt <= self._number:
            return self._handle
        names = [path.name.removesuffix(".jsonl") for path in list_journal(self.folder)]
        number = max([attempt, *(int(name) for name in names if name.isdecimal())])
        handle = open_file(self.folder / f"{number}.jsonl", os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                # Or the next commit would continue a torn line and be lost with it. Not a line break alone: a commit
                # that lacked nothing else would come back, though its arrival was not counted and is handled again.
                write_all(handle, b"~\n")
            sync_folder(self.folder)  # also for a file that was there: whoever made it may have failed here
            if self._chain is not None:
                files = in_order(list_journal(self.folder))
                self._chain.go_on(files[: [path.name for path in files].index(f"{number}.jsonl") + 1])
        except OSError:
            os.close(handle)
            raise
        self.close()
        self._handle, self._number = handle, number
        return handle

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            try:
                os.close(handle)
            except OSError:
                pass  # the lines that must last were fsynced; this is also called because the disk fails


def encode_commit(events: Sequence[Event], seq: int = 0, when: float = 0.0, chain: ChainEnd | None = None) -> bytes:
    """The line of a commit, which is added to the chain; `parse` is its inverse."""
    plain = {"format": FORMAT, "seq": seq, "time": when, "events": [item.plain() for item in events]}
    text = json.dumps(plain, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(text) > LINE_LIMIT:
        raise ValueError(f"a commit with {events[-1].kind} has {len(text)} bytes, more than a line may have")
    body = text[:-1] if chain is None else text[:-1] + chain.extend(text[:-1])
    return b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(b"}", zlib.crc32(body)))


def list_journal(folder: Path) -> list[Path]:
    """The journal's files."""
    return sorted(folder / entry.name for entry in entries(folder) if entry.name.endswith(".jsonl"))


class SeenIds:
    """Ids of events. Those that differ in their step alone are kept as ranges of steps, for a long run has many.

    >>> ids = SeenIds()
    >>> [ids.add(name) for name in ("reading|0|7|c", "reading|0|8|c", "reading|0|7|c", "note|x|y", "note|x|y")]
    [True, True, False, True, False]
    """

    def __init__(self) -> None:
        self._others: set[str] = set()
        self._steps: dict[tuple[str, str], NumberSet] = {}

    def add(self, name: str) -> bool:
        """Add an id; returns whether it is new."""
        parts = name.split("|", 3)
        step = parts[2] if len(parts) > 3 else ""
        if not (len(step) < 16 and step.isascii() and step.isdecimal()) or (step[0] == "0" and step != "0"):
            if name in self._others:
                return False
            self._others.add(name)
            return True
        key = (f"{parts[0]}|{parts[1]}", parts[3])
        steps = self._steps.get(key)
        if steps is None:
            steps = self._steps[key] = NumberSet()
        return steps.add(int(step))


class JournalReader:
    """Reads events: each `poll` yields those added since the last one, in sequence order.

    `bare_before`: before this number, the events that hold a step's readings come without them, which is most to parse.
    """

    def __init__(self, folder: Path, bare_before: int = 0) -> None:
        self.folder, self._bare_before = folder, bare_before
        self.skipped = 0  # lines that are not events: torn by a crash, or damaged
        self.offsets: dict[str, int] = {}  # by file, how much of it was read
        self.ids = SeenIds()
        self.line = ("", 0)  # of the event that came last: its file, and where in it the line begins

    def poll(self) -> Iterator[Event]:
        files = (self._lines(path) for path in list_journal(self.folder))
        for item, name, offset in heapq.merge(*files, key=lambda one: one[0].seq):
            if self.ids.add(item.id):
                self.line = (name, offset)
                yield item

    def _lines(self, path: Path) -> Iterator[tuple[Event, str, int]]:
        with os.fdopen(open_file(path), "rb") as file:
            if (size := os.fstat(file.fileno()).st_size) > JOURNAL_BYTES:
                raise refuse(path, f"has {size} bytes, more than {JOURNAL_BYTES}")
            file.seek(self.offsets.get(path.name, 0))
            pieces = 0  # of a line that is too long
            while line := file.readline(LONGEST):
                whole = line.endswith(b"\n")
                if not whole and len(line) < LONGEST:
                    break  # still being written, or torn for ever
                begins = self.offsets.get(path.name, 0)
                self.offsets[path.name] = begins + len(line)
                pieces = 0 if whole else pieces + 1
                if pieces > MOST_PIECES:
                    raise refuse(path, f"a line of more than {MOST_PIECES * LONGEST} bytes")
                if not whole:
                    continue  # too long for an event: skipped piece by piece, counted at its end
                if events := parse(line, self._bare_before):
                    for item in events:
                        _check(item, path)
                        yield item, path.name, begins
                elif line.strip():
                    self.skipped += 1


def read_line(folder: Path, name: str, offset: int) -> list[Event]:
    """The events on the line of a file that begins at this place; none if that is no line that was written."""
    path = folder / name
    with os.fdopen(open_file(path), "rb") as file:
        file.seek(offset)
        events = parse(file.readline(LONGEST))
    for item in events:
        _check(item, path)
    return events


def read_events(folder: Path) -> list[Event]:
    """Every event so far."""
    return list(JournalReader(folder).poll())


class _BareEvent(Struct):
    id: str
    kind: str
    attempt: int
    step: int
    data: Raw


class _BareCommit(Struct):
    seq: int
    time: float
    events: list[_BareEvent]


_BARE = Decoder(_BareCommit)


def _parse_bare(text: bytes, before: int) -> list[Event]:
    """The events of a commit before a number, without readings; none if it comes later, or has another format."""
    try:
        commit = _BARE.decode(text)
        if commit.seq >= before:
            return []
        data = [
            {"measured": {}, "derived": {}}
            if one.kind == "reading"
            else json.loads(bytes(one.data), parse_constant=_refuse_constant)
            for one in commit.events
        ]
        return [
            Event(one.kind, one.attempt, one.step, content, one.id, commit.seq + position, commit.time, commit.seq)
            for position, (one, content) in enumerate(zip(commit.events, data, strict=True))
        ]
    except (ValueError, RecursionError):
        return []


def parse(line: bytes, bare_before: int = 0) -> list[Event]:
    """The events on a line; none if it is torn, or changed since it was written. `bare_before`: see `JournalReader`."""
    line = line.rstrip(b"\n")
    text = line[:-_CRC] + b"}"
    if line[-_CRC:] != b',"crc":"%08x"}' % zlib.crc32(text):
        return []
    if bare_before and (bare := _parse_bare(text, bare_before)):
        return bare
    try:
        raw = json.loads(text, parse_constant=_refuse_constant)
        seq, when = raw["seq"], raw["time"]
        return [_event(item, seq + position, when, seq) for position, item in enumerate(raw["events"])]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []


def _check(item: Event, path: Path) -> None:
    """Raise for an event whose content is not what its kind says: an alarm must not be passed over."""
    try:
        check_payload(item.kind, item.data)
    except WRONG_CONTENT as error:
        raise refuse(path, f"event {item.seq}: {error}") from error


@contextmanager
def as_journal_errors(folder: Path) -> Iterator[None]:
    """Turn what recorded events of other content than expected cause into `StoreError`."""
    try:
        yield
    except (StoreError, OSError):
        raise
    except WRONG_CONTENT as error:
        raise refuse(folder, f"{type(error).__name__}: {error}") from error


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no number")  # nobody writes one


def _event(raw: dict[str, Any], seq: int, when: float, commit: int) -> Event:
    item = Event(**{key: raw.pop(key) for key in _KEYS}, seq=seq, time=when, commit=commit, extra=raw)
    sound = isinstance(item.data, dict) and isinstance(item.seq, int) and isinstance(item.kind, str)
    sound = sound and isinstance(item.id, str) and isinstance(item.time, (int, float))
    if not (sound and isinstance(item.attempt, int) and isinstance(item.step, int)):
        raise ValueError("this is no event")
    return item


def jsonable(value: Any) -> Any:
    """Tuples as lists, and a number that is not finite as its flag: JSON has no NaN, and null alone would hide why."""
    if isinstance(value, float) and not math.isfinite(value):
        return {"value": None, "flag": "nan" if math.isnan(value) else "+inf" if value > 0 else "-inf"}
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    return [jsonable(item) for item in value] if isinstance(value, (list, tuple)) else value


def _compact(reading: Reading) -> list[Any]:
    packed: list[Any] = [reading.value, reading.n, reading.stderr]
    if reading.slices:
        return [*packed, list(reading.values), reading.against, list(reading.keys), list(map(list, reading.slices))]
    if reading.keys:
        return [*packed, list(reading.values), reading.against, list(reading.keys)]
    if reading.against:
        return [*packed, list(reading.values), reading.against]
    return [*packed, list(reading.values)] if reading.values else packed
