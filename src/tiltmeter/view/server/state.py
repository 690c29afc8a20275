"""`ServerState`, the shared state of one server, and `ApiRequest`, a request that passed all checks."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server.access import (
    CONTROLS_PER_SECOND,
    REQUESTS_PER_SECOND,
    Access,
    Person,
    RateLimiter,
    RequestError,
    TrustedHosts,
)
from tiltmeter.view.server.rollouts import RolloutIndex
from tiltmeter.view.server.run_list import RunList, RunRows, list_run
from tiltmeter.view.server.stream import EventStream

MOST_INDEXES = 4
IDLE_SECONDS = 120.0  # after which an index may be closed for another one
NO_RUN = "no such run here: it was moved, or the address is of another server"
BUSY_INDEXES = 16  # at most, idle or not, to bound the memory


@dataclass
class ServerState:
    """The runs, who may see them, the event stream, the rate limits, and the used nonces."""

    run_list: RunList
    access: Access
    hosts: TrustedHosts
    root: str = ""  # the path below which a proxy serves this, without the last slash
    complete_copy: Callable[[Path], None] = lambda _: None  # gets the rollouts of a copy that lacks them
    stream: EventStream = field(init=False)
    rate: RateLimiter = field(default_factory=lambda: RateLimiter(REQUESTS_PER_SECOND))
    control_rate: RateLimiter = field(default_factory=lambda: RateLimiter(CONTROLS_PER_SECOND))
    nonces: dict[str, None] = field(default_factory=dict)  # of control requests, oldest first
    lock: threading.Lock = field(default_factory=threading.Lock)
    _indexes: OrderedDict[str, tuple[float, RolloutIndex]] = field(default_factory=OrderedDict)

    def __post_init__(self) -> None:
        self.stream = EventStream(self.run_list, list_run, self.access)

    def read_ahead(self) -> None:
        """Read every run once, while the user opens the page."""
        while self.run_list.rows(list_run).unread and not self.stream.closing:
            time.sleep(0.01)  # others want the lock as well

    def index(self, run: str) -> RolloutIndex:
        """The rollout index of a run, created on first use. Few are kept, because each has a row per rollout."""
        reader, now = self.reader(run), time.monotonic()
        self.complete_copy(reader.run.path)
        with self.lock:
            _, index = self._indexes.pop(run, (now, None))
            idle = [id for id, (used, _) in self._indexes.items() if now - used > IDLE_SECONDS]
            closed = [self._indexes.pop(id)[1] for id in idle[: max(0, len(self._indexes) + 1 - MOST_INDEXES)]]
            if (
                index is not None and index.reader.directory_id != reader.directory_id
            ):  # another run under the same path
                index.stop()
                index = None
            while len(self._indexes) >= BUSY_INDEXES:
                self._indexes.popitem(last=False)[1][1].stop()
            current = RolloutIndex(reader, self.run_list.marks) if index is None else index
            self._indexes[run] = (now, current)
        for old in closed:
            old.close()
        return current

    def reader(self, run: str) -> RunReader:
        try:
            return self.run_list.reader(run)
        except KeyError:
            raise RequestError(404, NO_RUN) from None


@dataclass(frozen=True)
class VisibleRuns:
    """The runs that a person may see, label and act on. There is no other way from a request to a run."""

    state: ServerState
    patterns: tuple[str, ...]

    def reader(self, run: str) -> RunReader:
        self._check(run)
        return self.state.reader(run)

    def index(self, run: str) -> RolloutIndex:
        self._check(run)
        return self.state.index(run)

    def rows(self) -> RunRows:
        return self.state.run_list.rows(list_run, self.patterns)

    def _check(self, run: str) -> None:
        """A run that one may not see is answered as one that is not there."""
        if not self.state.run_list.may_see(self.patterns, run):
            raise RequestError(404, NO_RUN)


@dataclass(frozen=True)
class ApiRequest:
    """A request that passed all checks: its parsed parameters and the person."""

    state: ServerState
    params: Mapping[str, Any]
    person: Person | None = None
    last_event_id: str = ""  # Last-Event-ID
    cancelled: threading.Event = field(default_factory=threading.Event)  # the client disconnected, or it took too long

    @property
    def runs(self) -> VisibleRuns:
        return VisibleRuns(self.state, self.person.runs if self.person else ())

    def reader(self) -> RunReader:
        """The refreshed reader of the requested run."""
        reader = self.runs.reader(self.params["run"])
        reader.refresh()
        return reader
