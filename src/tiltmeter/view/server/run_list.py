"""`RunList`: the runs below the folders of a server, found by scanning and addressed by opaque id."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from tiltmeter.errors import StoreError, TiltmeterError
from tiltmeter.gold.people import asks_people
from tiltmeter.rundir.locate_run import list_folder
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line
from tiltmeter.view.payloads.overview import FleetRow
from tiltmeter.view.screens.fleet import fleet_row, problem_since
from tiltmeter.view.screens.run_reader import RunReader, directory_id
from tiltmeter.view.server.read_marks import ReadMarks

DEPTH = 5  # folders below a given one: a project, an experiment, an output directory, and its tiltmeter/
MOST_FOLDERS = 100_000  # looked at in one scan
SCAN_SECONDS = 3.0
OPEN_LIVE = 256
OPEN_ENDED = 16  # ended runs that stay open, since an open run holds its events in memory
BUDGET_SECONDS = 1.0  # for reading runs in one request for all rows
SILENT_SECONDS = 3600.0  # without data for so long, a live run is read rarely
SELDOM_SECONDS = 600.0
OLD_SECONDS = 30.0  # the row of a live run is not shown when it is older

Stamp = tuple[int, ...]


_log = logging.getLogger("tiltmeter.view.server")


class ListedRun(NamedTuple):
    """A run of the list: its row of the fleet, since when it has a problem, and whether people label it."""

    row: FleetRow
    since: float
    people: bool


def list_run(reader: RunReader) -> ListedRun:
    with reader.lock:
        gold = reader.run_state.gold
        people = gold is not None and asks_people(gold)
        return ListedRun(fleet_row(reader), problem_since(reader), people)


@dataclass
class _CachedRow:
    """The cached row of a run, and the stamp that detects changes of the run."""

    listed: ListedRun | None  # None: it cannot be read
    last_attempt: int  # attempt
    stamp: Stamp
    built_at: float

    def is_current(self, stamp: Stamp, now: float) -> bool:
        """Whether the row is up to date: always, if the run has ended and has not changed since."""
        if stamp != self.stamp:
            return False
        if self.listed is None or not self.listed.row.live:
            return True
        silent = (self.listed.row.age_s or 0.0) > SILENT_SECONDS
        return now - self.built_at < (SELDOM_SECONDS if silent else 0.4)


class RunList:
    """Finds runs and keeps readers open for those in use.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = RunDirectory.create(f"{folder}/project/tonight")
    ...     shelf = RunList([folder])
    ...     [shelf.reader(id).name for id in shelf.ids()]
    ['tonight']
    """

    def __init__(self, paths: Iterable[Path | str]) -> None:
        self.roots = [str(Path(path).resolve()) for path in paths]
        self._lock = threading.RLock()
        self._paths: dict[str, str] = {}
        self._readers: OrderedDict[str, RunReader] = OrderedDict()
        self._cached_rows: dict[str, _CachedRow] = {}
        self._scanned_at = float("-inf")
        self._read_lock = threading.Lock()
        self.marks = ReadMarks()

    def ids(self) -> list[str]:
        """The ids of all runs, scanned again if the last scan was some seconds ago."""
        return list(self._current_paths())

    def _current_paths(self) -> dict[str, str]:
        """The run folders by id; a later scan replaces the dictionary and does not change it."""
        with self._lock:
            if time.monotonic() - self._scanned_at > SCAN_SECONDS:
                self._scan()
            return self._paths

    def reader(self, id: str) -> RunReader:
        """The reader of a run. Raises `KeyError` for an unknown id, and `StoreError` for a run that was set aside."""
        if (why := self.marks.set_aside.get(id)) is not None:
            raise StoreError(f"{why}; look with: tiltmeter run verify --untrusted RUN")
        with self._lock:
            if id not in self._paths:
                self.ids()
            if (reader := self._readers.get(id)) is None or reader.directory_id != directory_id(Path(self._paths[id])):
                reader = self._readers[id] = RunReader(RunDirectory(self._paths[id]))
                self._close_least_used()
            self._readers.move_to_end(id)
            return reader

    def _close_least_used(self) -> None:
        """Close the readers used longest ago; those of live runs last, because opening one reads the whole run."""
        cached = {id: self._cached_rows.get(id) for id in self._readers}
        live = [
            id
            for id, cached_row in cached.items()
            if cached_row is not None and cached_row.listed is not None and cached_row.listed.row.live
        ]
        ended = [id for id in self._readers if id not in live]
        for id in [*ended[: max(0, len(ended) - OPEN_ENDED)], *live[: max(0, len(live) - OPEN_LIVE)]]:
            del self._readers[id]

    def rows(self, make_row: Callable[[RunReader], ListedRun]) -> tuple[list[ListedRun], int]:
        """The row of each run, and how many runs have none because they are unreadable or not read yet.

        Reads for at most a second; the rest is read at the next call.
        """
        with self._read_lock:  # concurrent requests must not read everything twice
            now, deadline = time.time(), time.monotonic() + BUDGET_SECONDS
            stamps = {id: self._stamp(path, self._last_attempt(id)) for id, path in self._current_paths().items()}
            due = [id for id, stamp in stamps.items() if not self._is_current(id, stamp, now)]
            for id in sorted(due, key=lambda id: self._read_priority(id, stamps[id])):
                with self.marks.reading(id):
                    self._cached_rows[id] = self._read_row(id, make_row)
                if time.monotonic() > deadline:
                    break
            cached = [self._cached_rows[id] for id in stamps if id in self._cached_rows]
            shown_rows = [
                _with_current_age(item.listed, time.time() - item.built_at)
                for item in cached
                if item.listed is not None and self._may_be_shown(item.listed.row, now - item.built_at)
            ]
            return shown_rows, len(stamps) - len(shown_rows)

    def _is_current(self, id: str, stamp: Stamp, now: float) -> bool:
        cached = self._cached_rows.get(id)
        return cached is not None and cached.is_current(stamp, now)

    def _read_priority(self, id: str, stamp: Stamp) -> tuple[float, int]:
        """Runs that are shown first, the oldest row before newer ones; then unread runs, the newest first."""
        cached = self._cached_rows.get(id)
        return (cached.built_at if cached is not None else float("inf"), -max(stamp, default=0))

    def _read_row(self, id: str, make_row: Callable[[RunReader], ListedRun]) -> _CachedRow:
        was_open, last = id in self._readers, -1
        stamp: Stamp = ()
        try:
            path = self._paths[id]
            last = max(RunDirectory(path).attempts(), default=-1)
            stamp = self._stamp(path, last)  # before reading, so that later changes are noticed
            reader = self.reader(id)
            reader.run.identity()
            reader.refresh(force=True)  # a cached verdict would be older than the stamp
            listed: ListedRun | None = make_row(reader)
        except Exception as error:  # noqa: BLE001  # a broken run must not hide the others
            if not isinstance(error, (TiltmeterError, OSError, KeyError)):
                _log.warning("%s has no line: %s: %s", id, type(error).__name__, log_line(str(error), 200))
            listed = None
        if not was_open and listed is not None and not listed.row.live and len(self._paths) > OPEN_ENDED:
            with self._lock:
                self._readers.pop(id, None)  # only the row of an ended run is needed
        return _CachedRow(listed, last, stamp, time.time())

    @staticmethod
    def _may_be_shown(row: FleetRow, row_age: float) -> bool:
        """Whether a row may be shown: that of a live run must not be old."""
        silent = (row.age_s or 0.0) > SILENT_SECONDS
        return not row.live or silent or row_age < OLD_SECONDS

    def _last_attempt(self, id: str) -> int:
        cached = self._cached_rows.get(id)
        return cached.last_attempt if cached is not None else -1

    @staticmethod
    def _stamp(path: str, last: int) -> Stamp:
        """Changes whenever an attempt begins, a step is stored, an event is written, or the run is replaced."""
        names = ("/run.json", "/rollouts", f"/rollouts/{last}", f"/events/{last}.jsonl")
        numbers = []
        for name in names:
            try:
                facts = os.stat(path + name, follow_symlinks=False)  # noqa: PTH116
            except OSError:
                numbers += [0, 0]
            else:
                numbers += [facts.st_mtime_ns, facts.st_size]
        return tuple(numbers)

    def _scan(self) -> None:
        """Scan the folders for runs, without listing folders that are known to be runs."""
        ids_by_path, paths = {path: id for id, path in self._paths.items()}, {}
        pending = [(root, 0) for root in reversed(self.roots)]
        for _ in range(MOST_FOLDERS):
            if not pending:
                break
            folder, depth = pending.pop()
            if (id := ids_by_path.get(folder)) is not None:
                paths[id] = folder
                continue
            inner, is_run = list_folder(folder)
            if is_run:
                paths[RunReader(RunDirectory(folder)).id] = folder
            elif depth < DEPTH:
                pending += [(f"{folder}/{name}", depth + 1) for name in inner]
        self._paths = paths
        for gone in [id for id in self._readers if id not in paths]:
            del self._readers[gone]
        self._cached_rows = {id: cached for id, cached in self._cached_rows.items() if id in paths}
        self._scanned_at = time.monotonic()


def _with_current_age(listed: ListedRun, row_age: float) -> ListedRun:
    age = listed.row.age_s
    if age is None:
        return listed
    return listed._replace(row=replace(listed.row, age_s=round(age + max(0.0, row_age), 1)))
