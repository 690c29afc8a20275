"""`RunReader`: a run opened for reading and kept up to date: its verdict, its state and all readings as columns."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from tiltmeter.data.records import Alarm, Floats, Ints
from tiltmeter.data.slices import PREFIX as SLICES
from tiltmeter.errors import StoreError, TiltmeterError
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.journal_chain.check import ChainCheck
from tiltmeter.rundir.reading_room.notes import RunNotes
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.event_log import EventLog
from tiltmeter.verdict.page_snapshot import page_snapshot_time, read_page_snapshot
from tiltmeter.verdict.reading_blocks import ReadingBlock, RecordedColumn
from tiltmeter.verdict.run_facts import RunFacts, alarm_id
from tiltmeter.verdict.verdict import RunWatcher, Verdict

Value = TypeVar("Value")
REFRESH_SECONDS = 0.5  # a refresh sooner than this returns the last verdict, because it lists the run's files
MOST_EVENTS = 20_000  # in memory, where a snapshot has the others
_BLOCK = 256  # records gathered at once
_NOTHING = RecordedColumn(*(np.empty(0, kind) for kind in ("q", "q", "q", "d", "q", "d")))

log = logging.getLogger("tiltmeter")


class ReadingSeries(NamedTuple):
    """One reading over steps, in step order; `stderr` is NaN where there are too few groups to estimate it."""

    steps: Ints
    values: Floats
    n: Ints
    stderr: Floats


class StoredSeries(NamedTuple):
    """One reading as it was recorded, abandoned steps included, in journal order."""

    attempts: Ints
    steps: Ints
    values: Floats
    n: Ints
    stderr: Floats


@dataclass
class _SeriesBuffer:
    """The values of one reading in one record group, and how many of its records have been read."""

    rows_read: int = 0
    values: array[float] = field(default_factory=lambda: array("d"))
    n: array[int] = field(default_factory=lambda: array("q"))
    stderr: array[float] = field(default_factory=lambda: array("d"))


@dataclass
class _RecordGroup:
    """Journal records that hold the same set of readings, in journal order."""

    names: frozenset[str]
    records: list[Mapping[str, Any]] = field(default_factory=list)
    positions: array[int] = field(default_factory=lambda: array("q"))  # among the records of all groups
    attempts: array[int] = field(default_factory=lambda: array("q"))
    steps: array[int] = field(default_factory=lambda: array("q"))
    series: dict[str, _SeriesBuffer] = field(default_factory=dict)

    def gather(self, names: Iterable[str]) -> None:
        """Bring these readings up to date, record by record, because a record's readings lie together in memory."""
        behind: dict[int, list[str]] = {}
        for name in self.names.intersection(names):
            start_row = self.series.setdefault(name, _SeriesBuffer()).rows_read
            if start_row < len(self.records):
                behind.setdefault(start_row, []).append(name)
        for start_row, group_names in behind.items():
            for start in range(start_row, len(self.records), _BLOCK):
                self._read_block(group_names, start, min(start + _BLOCK, len(self.records)))

    def column(self, name: str) -> RecordedColumn:
        """A reading that was gathered."""
        buffer = self.series[name]
        return RecordedColumn(
            np.array(self.positions, np.int64),
            np.array(self.attempts, np.int64),
            np.array(self.steps, np.int64),
            np.array(buffer.values, np.float64),
            np.array(buffer.n, np.int64),
            np.array(buffer.stderr, np.float64),
        )

    def _read_block(self, names: Sequence[str], start: int, stop: int) -> None:
        packed = [readings[name] for readings in self.records[start:stop] for name in names]
        table = (stop - start, len(names))
        values = np.array([one[0] for one in packed], np.float64).reshape(table)
        counts = np.array([one[1] for one in packed], np.int64).reshape(table)
        errors = np.array([one[2] for one in packed], np.float64).reshape(table)  # None becomes NaN
        for column, name in enumerate(names):
            buffer = self.series[name]
            buffer.values.frombytes(values[:, column].tobytes())
            buffer.n.frombytes(counts[:, column].tobytes())
            buffer.stderr.frombytes(errors[:, column].tobytes())
            buffer.rows_read = stop


class ReadingColumns:
    """Every reading of a run by name, as arrays, updated as events arrive.

    >>> columns = ReadingColumns()
    >>> measured = {"reward.mean": [0.5, 64, 0.1]}
    >>> columns.add(Event("reading", 0, 3, {"measured": measured, "derived": {}}, "id"), RunFacts())
    >>> columns.branch_series(0, "reward.mean").values.tolist()
    [0.5]
    """

    def __init__(
        self, blocks: Sequence[ReadingBlock] = (), records: int = 0, on_damage: Callable[[], None] = lambda: None
    ) -> None:
        self._on_damage = on_damage  # of a block
        self._groups: dict[tuple[str, ...], _RecordGroup] = {}
        self._record_count = records
        self._groups_by_name: dict[str, list[_RecordGroup]] = {}
        self._blocks_by_name: dict[str, list[ReadingBlock]] = {}
        for block in blocks:
            for name in block.names:
                self._blocks_by_name.setdefault(name, []).append(block)
        self._spans: Mapping[int, float] = {}
        self._cache: dict[tuple[object, ...], ReadingSeries] = {}

    def add(self, event: Event, run_facts: RunFacts) -> None:
        """Add the readings of an event; the lineage is updated when an attempt begins or a step is done."""
        for part in ("measured", "derived"):
            if readings := event.data.get(part):
                group = self._groups.get(tuple(readings)) or self._new_group(tuple(readings))
                group.positions.append(self._record_count)
                group.attempts.append(event.attempt)
                group.steps.append(event.step)
                group.records.append(readings)
                self._record_count += 1
        if event.kind in ("attempt", "step_done"):
            self.follow(run_facts)

    def follow(self, run_facts: RunFacts) -> None:
        """Take the current lineage from the state of the run."""
        self._spans = run_facts.spans()

    def _new_group(self, names: tuple[str, ...]) -> _RecordGroup:
        group = self._groups[names] = _RecordGroup(frozenset(names))
        for name in names:
            self._groups_by_name.setdefault(name, []).append(group)
        return group

    def names(self) -> list[str]:
        return [name for name in self.all_names() if not name.startswith(SLICES)]

    def all_names(self) -> list[str]:
        """Those of slices too."""
        return list(dict.fromkeys([*self._blocks_by_name, *self._groups_by_name]))

    def stored_series(self, name: str) -> Iterator[StoredSeries]:
        """A reading in every attempt, in parts."""
        for column in self._columns(name):
            yield StoredSeries(*column[1:])

    def _columns(self, name: str) -> Iterator[RecordedColumn]:
        """A reading in parts: of the blocks on disk, then of what came since."""
        try:
            yield from [block.column(name) for block in self._blocks_by_name.get(name, [])]
        except StoreError:
            self._on_damage()
            raise
        self.gather([name])  # on first use: few of a hundred readings are drawn
        for group in self._groups_by_name.get(name, []):
            yield group.column(name)

    def gather(self, names: Iterable[str]) -> None:
        """Read several readings in one pass; one by one, each would go through the whole run."""
        present = [name for name in names if name in self._groups_by_name]
        for group in {id(group): group for name in present for group in self._groups_by_name[name]}.values():
            group.gather(present)

    def lineage_series(self, name: str) -> ReadingSeries:
        """A reading along the current lineage."""
        parts = [(attempt, 0.0, limit) for attempt, limit in self._spans.items()]
        return self._select_series(("line", name, tuple(parts)), name, parts)

    def branch_series(self, attempt: int, name: str) -> ReadingSeries:
        """A reading at the abandoned steps of an attempt: those from which a later attempt branched off. For an attempt
        that has no step on the lineage, all its steps."""
        parts = [(attempt, self._spans.get(attempt, 0.0), float("inf"))]
        return self._select_series(("branch", name, tuple(parts)), name, parts)

    def _select_series(
        self, key: tuple[object, ...], name: str, parts: Sequence[tuple[int, float, float]]
    ) -> ReadingSeries:
        """Those steps of each attempt that lie from `low` to below `high`, in step order."""
        key = (*key, sum(len(group.records) for group in self._groups_by_name.get(name, [])))
        if key not in self._cache:
            parts_of_name = list(self._columns(name)) or [_NOTHING]
            column = RecordedColumn(*(np.concatenate(numbers) for numbers in zip(*parts_of_name, strict=True)))
            attempts, steps = column.attempts, column.steps
            selected = np.zeros(len(steps), bool)
            for attempt, low, high in parts:
                selected |= (attempts == attempt) & (steps >= low) & (steps < high)
            rows = np.flatnonzero(selected)
            order = rows[np.lexsort((column.positions[rows], steps[rows]))]
            if len(self._cache) > 4096:
                self._cache.clear()  # keys contain lengths, so old entries accumulate in a long run
            self._cache[key] = ReadingSeries(steps[order], column.values[order], column.n[order], column.stderr[order])
        return self._cache[key]


def directory_id(path: Path) -> tuple[int, int] | None:
    """Identifies a run directory; it differs if the run was deleted and created again there. None: no run."""
    try:
        facts = (path / "run.json").stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns


class Fold(Protocol):
    """Receives every event of a run, in order, and keeps what it needs. One with `of_rare` receives of what came before
    it was made only events that are rare: others are many."""

    def add(self, event: Event, /) -> None: ...


FoldType = TypeVar("FoldType", bound=Fold)


def run_id(path: Path | str) -> str:
    """The opaque id of a run by its resolved path."""
    return hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:12]


def run_name(path: Path) -> str:
    """Inside a trainer's output directory every run is named `tiltmeter`, so the directory's name is used."""
    return path.parent.name if path.name == "tiltmeter" else path.name


class RunReader:
    """One run, opened for reading. `refresh` reads what was added since; everything else works from memory.

    `cached=False`: for who goes through all events again and again, so that all are in memory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     book = RunReader(RunDirectory.create(f"{folder}/tonight"))
    ...     book.refresh().state, book.name
    ('STALE', 'tonight')
    """

    def __init__(self, run: RunDirectory, *, cached: bool = True) -> None:
        path = run.path.resolve()
        self.run, self.lock = run, threading.RLock()
        self.id, self.name = run_id(path), run_name(path)
        self.directory_id = directory_id(path)
        self.notes = RunNotes(run.path)  # what people wrote on it; whoever looks polls it first
        self._cache_is_sound = cached
        self._chain = ChainCheck(run)  # goes on when the rest begins again: what it named stays named
        self._reset()

    def _reset(self) -> None:
        self._snapshot_time = page_snapshot_time(self.run)
        snapshot, blocks = read_page_snapshot(self.run) if self._cache_is_sound else None, list[ReadingBlock]()
        try:
            blocks = [] if snapshot is None else [ReadingBlock(self.run, snapshot.key, one) for one in snapshot.blocks]
        except StoreError as error:
            log.warning("the journal is read in full: %s", error)
            snapshot = None
        self.watcher = RunWatcher(self.run, snapshot, self._chain)
        self.columns = ReadingColumns(blocks, 0 if snapshot is None else snapshot.records, self._leave_cache)
        self.columns.follow(self.run_facts)
        self._events_read = self.watcher.events.first
        self._refreshed_at = float("-inf")
        self._verdict: Verdict | None = None
        self._event_cache: dict[Hashable, tuple[int, Any]] = {}
        self._lru_caches: dict[str, OrderedDict[Hashable, Any]] = {}
        self._folds: dict[Hashable, tuple[int, Any]] = {}

    @property
    def run_facts(self) -> RunFacts:
        return self.watcher.run_facts

    @property
    def events(self) -> EventLog:
        return self.watcher.events

    @property
    def verdict(self) -> Verdict:
        """As of the last refresh."""
        return self._verdict if self._verdict is not None else self.refresh()

    def date_alarm(self, alarm: Alarm) -> Alarm:
        """An alarm or warning of any time as it is shown: while it is open, as the verdict dates it."""
        known = (*self.verdict.alarms, *self.verdict.warnings)
        return next((one for one in known if alarm_id(one) == alarm_id(alarm)), alarm)

    def refresh(self, *, force: bool = False) -> Verdict:
        """The verdict now, at most half a second old; with `force`, never from the cache.

        Raises `StoreError` for a run that cannot be read. The next call then reads it from its beginning: a refresh
        that failed may have skipped an event, and that may have been an alarm.
        """
        with self.lock:
            if not force and self._verdict is not None and time.monotonic() - self._refreshed_at < REFRESH_SECONDS:
                return self._verdict
            try:
                self._begin_at_newer_snapshot()
                self._verdict = self.watcher.update()
                for event in self.events.since(self._events_read):
                    self.columns.add(event, self.run_facts)
            except Exception as error:
                self._reset()
                if isinstance(error, TiltmeterError):
                    raise
                why = f"{type(error).__name__}: {str(error)[:200]}"
                raise StoreError(f"{self.run.path} cannot be read: {why}") from error
            self._events_read = len(self.events)
            self._refreshed_at = time.monotonic()
            return self._verdict

    def _leave_cache(self) -> None:
        """A block on disk is not what it was: from the next refresh on only the journal is read."""
        with self.lock:
            self._cache_is_sound = False
            self._reset()

    def _begin_at_newer_snapshot(self) -> None:
        """Of a run that is followed for long, keep no more events in memory than a newer snapshot leaves."""
        if len(self.events) - self.events.first > MOST_EVENTS and page_snapshot_time(self.run) > self._snapshot_time:
            self._reset()

    def cache_until_event(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The result of `make`, cached until an event is added. Keys are fixed names, never input of a client."""
        with self.lock:
            event_count, value = self._event_cache.get(key, (-1, None))
            if event_count != len(self.events):
                value = make()
                self._event_cache[key] = (len(self.events), value)
            return cast(Value, value)

    def cache_lru(self, kind: str, key: Hashable, make: Callable[[], Value], size: int) -> Value:
        """The result of `make`, cached by key in a least-recently-used cache for each kind."""
        with self.lock:
            cache = self._lru_caches.setdefault(kind, OrderedDict())
            if key in cache:
                cache.move_to_end(key)
                return cast(Value, cache[key])
        value = make()  # outside the lock: it reads files, and computing it twice does no harm
        with self.lock:
            cache[key] = value
            while len(cache) > size:
                cache.popitem(last=False)
        return value

    def get_fold(self, key: Hashable, make: Callable[[], FoldType]) -> FoldType:
        """A fold that has received every event so far: created once, then given only the new events."""
        with self.lock:
            start, fold = self._folds.pop(key, None) or (0, make())  # one that fails half-way is created again
            rare = start == 0 and getattr(fold, "of_rare", False)
            for event in self.events.rare() if rare else self.events.since(start):
                fold.add(event)
            self._folds[key] = (len(self.events), fold)
            return cast(FoldType, fold)

    @property
    def age(self) -> float | None:
        """Seconds since the newest rollouts were written; None: there are none, or the run was not read yet."""
        last = self.watcher.ages
        if last is None or (not self.run_facts.recent and not any(self.run.files(a, []) for a in self.run.attempts())):
            return None
        return max(0.0, time.time() - self.watcher.updated_at + last.data)
