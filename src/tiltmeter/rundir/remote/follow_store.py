"""`StoreFollower`: copies of every run below an address on object storage, for a server that lists them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tiltmeter.errors import Boundary, describe_error
from tiltmeter.rundir.remote.copy import FOLLOW_SECONDS, fetch_copy
from tiltmeter.rundir.remote.objects import open_objects
from tiltmeter.rundir.remote.writer_lease import HEAD, read_head

DEPTH = 5  # names between the address and a run, as in a folder on disk
MOST_RUNS = 20_000
MOST_FOLDERS = 100_000  # that are looked into for runs
QUIET_SECONDS = 3600.0  # a run that nobody wrote to for so long is looked at rarely
SELDOM_SECONDS = 600.0

log = logging.getLogger("tiltmeter")


def find_runs(address: str) -> Iterator[str]:
    """The addresses of runs at or below one, without listing what is inside of them."""
    folder, pending, count = open_objects(address), [("", 0)], 0
    for _ in range(MOST_FOLDERS):
        if not pending or count == MOST_RUNS:
            return
        prefix, depth = pending.pop()
        inner, objects = folder.names_below(prefix)
        if HEAD in objects:
            count += 1
            yield f"{address}/{prefix}".rstrip("/")
        elif depth < DEPTH:
            pending += [(f"{prefix}{name}/", depth + 1) for name in reversed(inner)]


class StoreFollower:
    """Keeps copies of the runs below some addresses, first without their rollouts, which may be many gigabytes: those
    of a run are fetched once somebody looks at them. While the store is away, copies and their verdicts grow old."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses = addresses
        self.copies: dict[Path, str] = {}  # address by place; grows only
        self._whole: set[Path] = set()  # copies with rollouts
        self._next: dict[str, float] = {}  # when a run is looked at again
        self._stop = threading.Event()

    def start(self) -> None:
        if self.addresses:
            threading.Thread(target=self._follow, name="tiltmeter-copies", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def look(self) -> None:
        """Find runs and bring the copies up to date that are due."""
        for root in self.addresses:
            with self._noting(root):
                for address in find_runs(root):
                    if time.monotonic() >= self._next.get(address, 0.0):
                        self._update(address)

    def complete(self, path: Path) -> None:
        """Fetch the rollouts of a copy, and keep up with them from now on."""
        if (address := self.copies.get(path)) is not None and path not in self._whole:
            fetch_copy(address)
            self._whole.add(path)

    def _update(self, address: str) -> None:
        with self._noting(address):
            path = next((place for place, one in self.copies.items() if one == address), None)
            path = fetch_copy(address, steps=None if path in self._whole else 0).resolve()
            self.copies[path] = address
            quiet = time.time() - read_head(open_objects(address))[0].time > QUIET_SECONDS
            self._next[address] = time.monotonic() + (SELDOM_SECONDS if quiet else FOLLOW_SECONDS)

    @staticmethod
    def _noting(address: str) -> Boundary:
        return Boundary(lambda error: log.warning("%s: %s", address, describe_error(error)), own_thread=True)

    def _follow(self) -> None:
        while not self._stop.wait(0.0):
            self.look()
            self._stop.wait(FOLLOW_SECONDS)
