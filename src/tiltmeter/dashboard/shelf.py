"""The runs below the folders a server was started with, found by listing, handed out by opaque id."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.durable import entries
from tiltmeter.encode import log_line
from tiltmeter.errors import TiltmeterError
from tiltmeter.gold.people import PEOPLE
from tiltmeter.page.book import Book, born
from tiltmeter.page.fleet import fleet, since
from tiltmeter.store import RunDirectory

DEPTH = 5  # folders below a given one: a project, an experiment, an output directory, and its tiltmeter/
MOST_FOLDERS = 100_000  # looked at in one scan
SCAN_SECONDS = 3.0
OPEN_LIVE = 256
OPEN_BOOKS = 16  # a run that is open holds its events; one that nobody looks at is closed again
BUDGET_SECONDS = 1.0  # spent on reading runs for one answer about all of them
SILENT_SECONDS = 3600.0  # a run without an end that has been silent for so long is looked at rarely
SELDOM_SECONDS = 600.0
OLD_SECONDS = 30.0  # a line about a run that is still going must not be shown when it is older than this

Row = dict[str, Any]
Stamp = tuple[int, ...]


_log = logging.getLogger("tiltmeter.dashboard")

#: What is kept beside a run's line and not sent with it.
OURS = ("since", "people")


def row_of(book: Book) -> Row:
    """A run's line, since when it has its problem, and whether people label it."""
    with book.lock:
        gold = book.story.gold
        people = gold is not None and gold["name"] == PEOPLE
        return {**fleet([book])["runs"][0], "since": since(book), "people": people}


@dataclass
class _Kept:
    """What was last said of a run in one line, and by what to notice that something was added."""

    row: Row | None  # None: it cannot be read
    last: int  # attempt
    stamp: Stamp
    made: float

    def good_for(self, stamp: Stamp, now: float) -> bool:
        """Whether the line still holds: for ever if the run has ended and nothing was added since."""
        if stamp != self.stamp:
            return False
        if self.row is None or not self.row["live"]:
            return True
        silent = (self.row["age_s"] or 0.0) > SILENT_SECONDS
        return now - self.made < (SELDOM_SECONDS if silent else 0.4)


class Shelf:
    """Finds runs and keeps those open that are looked at.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = RunDirectory.create(f"{folder}/project/tonight")
    ...     shelf = Shelf([folder])
    ...     [shelf.book(id).name for id in shelf.ids()]
    ['tonight']
    """

    def __init__(self, paths: Iterable[Path | str]) -> None:
        self.roots = [str(Path(path).resolve()) for path in paths]
        self._lock = threading.RLock()
        self._paths: dict[str, str] = {}
        self._books: OrderedDict[str, Book] = OrderedDict()
        self._kept: dict[str, _Kept] = {}
        self._scanned = float("-inf")
        self._reading = threading.Lock()

    def ids(self) -> list[str]:
        """Every run there is, listed again if the last time was some seconds ago."""
        return list(self._listed())

    def _listed(self) -> dict[str, str]:
        """Their folders by id; a later scan makes another one and leaves this as it is."""
        with self._lock:
            if time.monotonic() - self._scanned > SCAN_SECONDS:
                self._scan()
            return self._paths

    def book(self, id: str) -> Book:
        """The open run. Raises `KeyError` for an id that stands for none."""
        with self._lock:
            if id not in self._paths:
                self.ids()
            if (book := self._books.get(id)) is None or book.born != born(Path(self._paths[id])):
                book = self._books[id] = Book(RunDirectory(self._paths[id]))
                self._make_room()
            self._books.move_to_end(id)
            return book

    def _make_room(self) -> None:
        """Close what was looked at longest ago; runs that are going last, since opening one reads all of it."""
        kept = {id: self._kept.get(id) for id in self._books}
        live = [id for id, line in kept.items() if line is not None and line.row is not None and line.row["live"]]
        ended = [id for id in self._books if id not in live]
        for id in [*ended[: max(0, len(ended) - OPEN_BOOKS)], *live[: max(0, len(live) - OPEN_LIVE)]]:
            del self._books[id]

    def rows(self, row_of: Callable[[Book], Row]) -> tuple[list[Row], int]:
        """A line about each run, and how many runs have none: unreadable, or not read yet.

        Reads for at most a second; what is left over is read when somebody asks again.
        """
        with self._reading:  # two who ask at once must not read everything twice
            now, deadline = time.time(), time.monotonic() + BUDGET_SECONDS
            stamps = {id: self._stamp(path, self._last(id)) for id, path in self._listed().items()}
            due = [id for id, stamp in stamps.items() if not self._good(id, stamp, now)]
            for id in sorted(due, key=lambda id: self._order(id, stamps[id])):
                self._kept[id] = self._read(id, row_of)
                if time.monotonic() > deadline:
                    break
            kept = [self._kept[id] for id in stamps if id in self._kept]
            shown = [self._aged(item, time.time()) for item in kept if self._shows(item, now)]
            return shown, len(stamps) - len(shown)

    def _good(self, id: str, stamp: Stamp, now: float) -> bool:
        kept = self._kept.get(id)
        return kept is not None and kept.good_for(stamp, now)

    def _order(self, id: str, stamp: Stamp) -> tuple[float, int]:
        """Runs that are shown and may have changed first, the longest ago of them first; then the newest."""
        kept = self._kept.get(id)
        return (kept.made if kept is not None else float("inf"), -max(stamp, default=0))

    def _read(self, id: str, row_of: Callable[[Book], Row]) -> _Kept:
        known, last = id in self._books, -1
        stamp: Stamp = ()
        try:
            path = self._paths[id]
            last = max(RunDirectory(path).attempts(), default=-1)
            stamp = self._stamp(path, last)  # before anything is read: what comes later then differs
            book = self.book(id)
            book.run.identity()
            book.refresh(impatient=True)  # one that is half a second old would be kept with a newer stamp
            row: Row | None = row_of(book)
        except Exception as error:  # noqa: BLE001  # whatever is wrong with one run, the others are shown
            if not isinstance(error, (TiltmeterError, OSError, KeyError)):
                _log.warning("%s has no line: %s: %s", id, type(error).__name__, log_line(str(error), 200))
            row = None
        if not known and row is not None and not row["live"] and len(self._paths) > OPEN_BOOKS:
            with self._lock:
                self._books.pop(id, None)  # its line is all that is asked of a run that has ended
        return _Kept(row, last, stamp, time.time())

    @staticmethod
    def _shows(kept: _Kept, now: float) -> bool:
        """A line that says a run is well must not outlive what it was made from."""
        if kept.row is None:
            return False
        silent = (kept.row["age_s"] or 0.0) > SILENT_SECONDS
        return not kept.row["live"] or silent or now - kept.made < OLD_SECONDS

    @staticmethod
    def _aged(kept: _Kept, now: float) -> Row:
        row = kept.row or {}
        age = row.get("age_s")
        return row if age is None else {**row, "age_s": round(age + max(0.0, now - kept.made), 1)}

    def _last(self, id: str) -> int:
        kept = self._kept.get(id)
        return kept.last if kept is not None else -1

    @staticmethod
    def _stamp(path: str, last: int) -> Stamp:
        """Changes whenever an attempt begins, a step is stored or an event is written, and when it is another run."""
        places = ("/run.json", "/rollouts", f"/rollouts/{last}", f"/events/{last}.jsonl")
        found = []
        for place in places:
            try:
                facts = os.stat(path + place, follow_symlinks=False)  # noqa: PTH116
            except OSError:
                found += [0, 0]
            else:
                found += [facts.st_mtime_ns, facts.st_size]
        return tuple(found)

    def _scan(self) -> None:
        """List every folder but those that are known to be runs: they are looked into when somebody asks for them."""
        known, found = {path: id for id, path in self._paths.items()}, {}
        waiting = [(root, 0) for root in reversed(self.roots)]
        for _ in range(MOST_FOLDERS):
            if not waiting:
                break
            folder, depth = waiting.pop()
            if (id := known.get(folder)) is not None:
                found[id] = folder
                continue
            inner, is_run = _listed(folder)
            if is_run:
                found[Book(RunDirectory(folder)).id] = folder
            elif depth < DEPTH:
                waiting += [(f"{folder}/{name}", depth + 1) for name in inner]
        self._paths = found
        for gone in [id for id in self._books if id not in found]:
            del self._books[gone]
        self._kept = {id: kept for id, kept in self._kept.items() if id in found}
        self._scanned = time.monotonic()


def _listed(folder: str) -> tuple[list[str], bool]:
    """The folders in a folder, links left out, last name first, and whether it is a run."""
    inner = []
    try:
        for entry in entries(Path(folder)):
            if entry.name == "run.json" and entry.is_file(follow_symlinks=False):
                return [], True
            if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False):
                inner.append(entry.name)
    except OSError:
        return [], False  # not ours to look into
    return sorted(inner, reverse=True), False
