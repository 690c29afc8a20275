"""`RunList`: the runs below the folders of a server, found by scanning and addressed by opaque id."""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from tiltmeter.errors import StoreError, TiltmeterError
from tiltmeter.gold.label_files import asks_people
from tiltmeter.rundir.journal_chain.check_many import ChainChecks
from tiltmeter.rundir.locate_run import list_folder
from tiltmeter.rundir.reading_room.notes import FOLDER as NOTES
from tiltmeter.rundir.reading_room.notes import RunNotes
from tiltmeter.rundir.run_path import run_path
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line
from tiltmeter.verdict.list_entry import NAME, ListEntry, Trust, read_list_entry
from tiltmeter.view.payloads.overview import FleetRow
from tiltmeter.view.payloads.picture import RunPicture
from tiltmeter.view.screens.fleet import (
    SEVERITY,
    fleet_row,
    picture_from_file,
    problem_since,
    row_from_file,
    with_journal,
)
from tiltmeter.view.screens.run_reader import RunReader, directory_id, run_id, run_name
from tiltmeter.view.server.access import EVERY_RUN, covers
from tiltmeter.view.server.read_marks import ReadMarks

DEPTH = 5  # folders below a given one: a project, an experiment, an output directory, and its tiltmeter/
MOST_FOLDERS = 100_000  # looked at in one scan
SCAN_SECONDS = 3.0
OPEN_LIVE = 256
OPEN_ENDED = 16  # ended runs that stay open, since an open run holds its events in memory
JOURNAL_SECONDS = 0.15  # for checking journals in one request for all rows
BUDGET_SECONDS = 1.0  # for reading runs in one request for all rows
SILENT_SECONDS = 3600.0  # without data for so long, a live run is read rarely
SELDOM_SECONDS = 600.0
MANY = 500  # runs, from which on they are not looked at for every question
LOOK_SECONDS = 1.0
FEW_FILES = 64  # list entries that show how fast the storage is
SLOW_SECONDS = 0.002  # for one of them: waiting, not work
FILE_THREADS = 16
WAIT_SECONDS = 0.3  # for another thread that reads, before what is known is the answer
OLD_SECONDS = 30.0  # the row of a live run is not shown when it is older

Stamp = tuple[int, ...]


_log = logging.getLogger("tiltmeter.view.server")


class ListedRun(NamedTuple):
    """A run of the list: its row of the fleet, since when it has a problem, and whether people label it."""

    row: FleetRow
    since: float
    people: bool


class RunRows(NamedTuple):
    """The rows that are known, how many runs are still to be read, and how many cannot be.

    A row whose list entry does not settle it counts as still to be read.
    """

    listed: list[ListedRun]
    unread: int
    unreadable: int


def list_run(reader: RunReader) -> ListedRun:
    with reader.lock:
        gold = reader.run_facts.gold
        people = gold is not None and asks_people(gold)
        return ListedRun(fleet_row(reader), problem_since(reader), people)


@dataclass
class _CachedRow:
    """The cached row of a run, and the stamp that detects changes of the run."""

    listed: ListedRun | None  # None: it cannot be read, or is still to be made of its list entry
    last_attempt: int  # attempt
    stamp: Stamp
    built_at: float
    content: ListEntry | None = None  # the run's list entry, if the row is made of it
    trust: Trust = "whole"
    picture: RunPicture | None = None  # drawn of it
    tags: tuple[str, ...] = ()
    archived: bool = False

    def is_current(self, stamp: Stamp, now: float) -> bool:
        """Whether the row is up to date: always, if the run has ended and has not changed since."""
        if stamp != self.stamp:
            return False
        if self.content is not None:
            return self.trust == "whole" and (not self.content.live or now < self.content.due)
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
        self._settled, self._looked_at = False, 0.0  # whether the last look left nothing to read, and when it was
        self._listed_once = False  # every run's list entry was looked at
        self.marks = ReadMarks()
        self.more_roots: Callable[[], Mapping[str, str]] = dict  # places of copies that were fetched since the start
        self._places: dict[str, str] = {}  # paths below what is served, by id
        self._ids_by_patterns: dict[tuple[str, ...], dict[str, None]] = {}  # ids by patterns, until the next scan
        self._journals = ChainChecks()

    def ids(self) -> list[str]:
        """The ids of all runs, scanned again if the last scan was some seconds ago."""
        return list(self._current_paths())

    def _current_paths(self) -> dict[str, str]:
        """The run folders by id; a later scan replaces the dictionary and does not change it."""
        with self._lock:
            if time.monotonic() - self._scanned_at > SCAN_SECONDS:
                self._scan()
            return self._paths

    def may_see(self, patterns: tuple[str, ...], id: str) -> bool:
        """Whether patterns cover a run; of an unknown one they do not."""
        self._current_paths()
        return id in self._ids_covered(patterns)

    def _ids_covered(self, patterns: tuple[str, ...]) -> AbstractSet[str]:
        with self._lock:
            if patterns == EVERY_RUN:
                return self._paths.keys()
            if patterns not in self._ids_by_patterns:
                ids = (id for id, place in self._places.items() if covers(patterns, place))
                self._ids_by_patterns[patterns] = dict.fromkeys(ids)
            return self._ids_by_patterns[patterns].keys()

    def reader(self, id: str) -> RunReader:
        """The reader of a run. Raises `KeyError` for an unknown id, and `StoreError` for a run that was set aside."""
        if (why := self.marks.set_aside.get(id)) is not None:
            raise StoreError(f"{why}; look with: tiltmeter verify --untrusted RUN")
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

    def rows(self, make_row: Callable[[RunReader], ListedRun], patterns: tuple[str, ...] = EVERY_RUN) -> RunRows:
        """The row of each run that has one by now, and is covered by the patterns.

        First every run's list entry is read, which is quick; then, for at most a second, the runs that have none or
        whose file does not speak for them, those that need a person first. The rest is read at the next call. While
        another thread reads, this answers with what is known.
        """
        if self._take_turn():
            try:
                self._read_due(make_row)
                paths = {id: path for id, path in self._paths.items() if id not in self.marks.set_aside}
                self._journals.look(paths, JOURNAL_SECONDS)
            finally:
                self._read_lock.release()
        now = time.time()
        with self._lock:
            ids, cached_rows = list(self._ids_covered(patterns)), dict(self._cached_rows)
        rows, unread, unreadable = [], 0, 0
        for id in ids:
            cached = cached_rows.get(id)
            if cached is None:
                unread += 1
            elif cached.content is not None:
                if cached.listed is None or cached.content.live or cached.trust != "whole":
                    cached.listed = self._row_from_file(id, cached.content, cached.trust, now)
                unread += cached.listed.row.unread
                age = 0.0 if cached.content.live else now - cached.built_at
                rows.append(self._complete_row(id, _with_current_age(cached.listed, age), cached))
            elif cached.listed is None:
                unreadable += 1
            elif self._may_be_shown(cached.listed.row, now - cached.built_at):
                rows.append(self._complete_row(id, _with_current_age(cached.listed, now - cached.built_at), cached))
            else:
                unread += 1
        return RunRows(rows, unread, unreadable)

    def _complete_row(self, id: str, listed: ListedRun, cached: _CachedRow) -> ListedRun:
        noted = _with_notes(listed, cached)
        return noted._replace(row=with_journal(noted.row, self._journals.state(id)))

    def _take_turn(self) -> bool:
        """Whether this thread may read; the first rows are waited for, later ones hardly."""
        while not self._read_lock.acquire(timeout=WAIT_SECONDS):
            if self._listed_once:
                return False
        return True

    def _read_due(self, make_row: Callable[[RunReader], ListedRun]) -> None:
        if self._settled and len(self._paths) > MANY and time.monotonic() - self._looked_at < LOOK_SECONDS:
            return  # several pages ask at once, and looking at thousands of runs takes a while
        now, deadline = time.time(), time.monotonic() + BUDGET_SECONDS
        paths = self._current_paths()
        due = [id for id, path in paths.items() if not self._is_current(id, path, now)]
        self._read_list_entries(due, now)
        self._listed_once = True
        unsettled = [id for id in due if not self._is_settled(id)]
        self._settled, self._looked_at = not unsettled, time.monotonic()
        for id in sorted(unsettled, key=lambda id: self._read_priority(id, paths[id])):
            with self.marks.reading(id):
                self._cached_rows[id] = self._read_row(id, make_row)
            if time.monotonic() > deadline:
                break

    def _read_list_entries(self, due: Sequence[str], now: float) -> None:
        """Read the list entries of these runs; several at once if that is slow, as over a network."""

        def read(id: str) -> None:
            if id in self.marks.set_aside:
                return
            with self.marks.reading(id):
                file = read_list_entry(paths[id], now)
            cached = self._cached_rows.get(id)
            if file is None:
                if cached is not None and cached.content is not None:
                    del self._cached_rows[id]  # it is gone: only the run itself says how it stands
                return
            content, trust = file
            if trust == "whole" or cached is None or cached.content is not None:
                stamp = self._stamp(paths[id], content.attempt)
                tags, archived = read_run_notes(paths[id])
                self._cached_rows[id] = _CachedRow(
                    None, content.attempt, stamp, now, content, trust, tags=tags, archived=archived
                )

        paths, began = self._paths, time.monotonic()
        for id in due[:FEW_FILES]:
            read(id)
        if time.monotonic() - began < FEW_FILES * SLOW_SECONDS:
            for id in due[FEW_FILES:]:
                read(id)
            return
        with ThreadPoolExecutor(FILE_THREADS) as threads:
            list(threads.map(read, due[FEW_FILES:]))

    def _row_from_file(self, id: str, content: ListEntry, trust: Trust, now: float) -> ListedRun:
        row = row_from_file(id, run_name(Path(self._paths[id])), content, trust, now)
        return ListedRun(row, content.since, content.people)

    def with_picture(self, row: FleetRow) -> FleetRow:
        """A row with its thumbnail: one by a list entry is drawn when it is shown, and kept."""
        cached = self._cached_rows.get(row.run)
        if row.picture is not None or cached is None or cached.content is None:
            return row
        if cached.picture is None:
            cached.picture = picture_from_file(row.name, cached.content)
        return replace(row, picture=cached.picture)

    @staticmethod
    def without_picture(row: FleetRow) -> FleetRow:
        return row if row.picture is None else replace(row, picture=None)

    def _is_settled(self, id: str) -> bool:
        cached = self._cached_rows.get(id)
        return cached is not None and cached.content is not None and cached.trust == "whole"

    def _is_current(self, id: str, path: str, now: float) -> bool:
        cached = self._cached_rows.get(id)
        return cached is not None and cached.is_current(self._stamp(path, cached.last_attempt), now)

    def _read_priority(self, id: str, path: str) -> tuple[object, ...]:
        """Runs whose file says that they need a person; then those shown, the oldest row before newer ones; then
        unread runs, the newest first."""
        cached = self._cached_rows.get(id)
        content = None if cached is None else cached.content
        newest = -max(self._stamp(path, -1 if cached is None else cached.last_attempt))
        if content is not None:
            return 0, SEVERITY[content.state], newest
        return (1, cached.built_at, newest) if cached is not None else (2, 0.0, newest)

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
        tags, archived = read_run_notes(self._paths[id]) if listed is not None else ((), False)
        return _CachedRow(listed, last, stamp, time.time(), tags=tags, archived=archived)

    @staticmethod
    def _may_be_shown(row: FleetRow, row_age: float) -> bool:
        """Whether a row may be shown: that of a live run must not be old."""
        silent = (row.age_s or 0.0) > SILENT_SECONDS
        return not row.live or silent or row_age < OLD_SECONDS

    @staticmethod
    def _stamp(path: str, last: int) -> Stamp:
        """Changes whenever an attempt begins, a step is stored, an event is written, the run is replaced or tagged."""
        names = (
            "/run.json", "/rollouts", f"/rollouts/{last}", f"/events/{last}.jsonl", f"/cache/{NAME}", f"/{NOTES}/run",
        )  # fmt: skip
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
        ids_by_path, copies = {path: id for id, path in self._paths.items()}, self.more_roots()
        paths: dict[str, str] = {}
        places: dict[str, str] = {}
        pending = [(root, 0, root) for root in reversed([*self.roots, *copies])]
        for _ in range(MOST_FOLDERS):
            if not pending:
                break
            folder, depth, root = pending.pop()
            id = ids_by_path.get(folder)
            inner, is_run = ([], True) if id is not None or _is_run(folder) else list_folder(folder)
            if is_run:
                id = id or run_id(folder)  # no link is on the way: the path is resolved
                paths[id] = folder
                places.setdefault(id, copies.get(root) or _place(folder, root))
            elif depth < DEPTH:
                pending += [(f"{folder}/{name}", depth + 1, root) for name in inner]
        self._paths, self._places, self._ids_by_patterns = paths, places, {}
        for gone in [id for id in self._readers if id not in paths]:
            del self._readers[gone]
        self._cached_rows = {id: cached for id, cached in self._cached_rows.items() if id in paths}
        self._scanned_at = time.monotonic()


def _place(folder: str, root: str) -> str:
    """The path of a run below what is served; the name of a run that is served itself.

    >>> _place("/data/runs/math/a", "/data/runs"), _place("/data/runs/a", "/data/runs/a")
    ('math/a', 'a')
    """
    return folder.removeprefix(root).strip("/") or folder.rpartition("/")[2]


def _is_run(folder: str) -> bool:
    try:
        return stat.S_ISREG(os.stat(f"{folder}/run.json", follow_symlinks=False).st_mode)  # noqa: PTH116 - thousands
    except OSError:
        return False


def read_run_notes(path: str) -> tuple[tuple[str, ...], bool]:
    """The tags of a run, and whether a person has archived it; what cannot be read hides nothing."""
    notes = RunNotes(run_path(path), ("run",))
    notes.poll()
    return tuple(notes.tags_of("")), notes.archived


def _with_notes(listed: ListedRun, cached: _CachedRow) -> ListedRun:
    """A run that is live, or not read yet, stays in sight, archived or not: nobody would see it turn."""
    if not (cached.tags or cached.archived):
        return listed
    row = listed.row
    return listed._replace(
        row=replace(row, tags=list(cached.tags), archived=cached.archived and not (row.live or row.unread))
    )


def _with_current_age(listed: ListedRun, row_age: float) -> ListedRun:
    age = listed.row.age_s
    if age is None:
        return listed
    return listed._replace(row=replace(listed.row, age_s=round(age + max(0.0, row_age), 1)))
