"""What one server holds while it runs, and what a request is once it has passed."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tiltmeter.dashboard.access import CONTROLS_PER_SECOND, REQUESTS_PER_SECOND, Keys, Names, Person, Rate, RequestError
from tiltmeter.dashboard.rollouts import RolloutIndex
from tiltmeter.dashboard.shelf import Shelf, row_of
from tiltmeter.dashboard.stream import Stream
from tiltmeter.page.book import Book

MOST_INDEXES = 4
IDLE_SECONDS = 120.0  # after which an index makes room for another one
BUSY_INDEXES = 16  # at most, idle or not: a walk through a hundred runs would fill the memory


@dataclass
class Site:
    """The runs, the keys, the listeners, and what was asked before."""

    shelf: Shelf
    keys: Keys
    names: Names
    control: bool = False  # whether anything may be asked of a run through this server
    stream: Stream = field(init=False)
    rate: Rate = field(default_factory=lambda: Rate(REQUESTS_PER_SECOND))
    control_rate: Rate = field(default_factory=lambda: Rate(CONTROLS_PER_SECOND))
    nonces: dict[str, None] = field(default_factory=dict)  # of control requests, oldest first
    lock: threading.Lock = field(default_factory=threading.Lock)
    _indexes: OrderedDict[str, tuple[float, RolloutIndex]] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self.stream = Stream(self.shelf, row_of)

    def read_ahead(self) -> None:
        """Read every run once, while whoever started the server opens the page."""
        left, before = 0, -1
        while left != before and not self.stream.closing:
            left, before = self.shelf.rows(row_of)[1], left

    def index(self, run: str) -> RolloutIndex:
        """The table of a run's rollouts, made when first asked for. Few are kept: each holds a line per rollout."""
        book, now = self.book(run), time.monotonic()
        with self.lock:
            _, index = self._indexes.pop(run, (now, None))
            idle = [id for id, (used, _) in self._indexes.items() if now - used > IDLE_SECONDS]
            gone = [self._indexes.pop(id)[1] for id in idle[: max(0, len(self._indexes) + 1 - MOST_INDEXES)]]
            if index is not None and index.book.born != book.born:  # another run under the same path
                index.stop()
                index = None
            while len(self._indexes) >= BUSY_INDEXES:
                self._indexes.popitem(last=False)[1][1].stop()
            found = RolloutIndex(book) if index is None else index
            self._indexes[run] = (now, found)
        for old in gone:
            old.close()
        return found

    def book(self, run: str) -> Book:
        try:
            return self.shelf.book(run)
        except KeyError:
            raise RequestError(404, "no such run here: it was moved, or the address is of another server") from None


@dataclass(frozen=True)
class Asked:
    """A request that passed: what was given, parsed, and by whom."""

    site: Site
    given: Mapping[str, Any]
    person: Person | None = None
    after: str = ""  # Last-Event-ID
    cancelled: threading.Event = field(default_factory=threading.Event)  # whoever asked has gone, or it took too long

    def book(self) -> Book:
        """The run that was asked about, as it is now."""
        book = self.site.book(self.given["run"])
        book.refresh()
        return book
