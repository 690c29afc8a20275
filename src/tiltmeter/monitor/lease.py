"""A lease in a file, for file systems without `flock`: who holds it writes a number into it that grows.

A lease whose number has not grown for `LEASE_SECONDS` of the reader's own time is free, and at once if its process is
known to be gone; no two clocks are compared. Weaker than a lock: a holder that stands still for longer than that, or a
file system that shows old content for as long, allows two monitors. The one that lost its lease ends when it sees that;
until then their events double, and readers keep the first of each.
"""

from __future__ import annotations

import os
import platform
import secrets
import threading
import time
from pathlib import Path

from msgspec import Struct, json

from tiltmeter.errors import StoreError
from tiltmeter.rundir.atomic_write import replace_file
from tiltmeter.rundir.run_path import remove
from tiltmeter.rundir.sidecar import Count, Text300, find_sidecar

LEASE_SECONDS = 30.0
RENEW_SECONDS = 5.0
SETTLE_SECONDS = 0.5  # before a lease that was taken is believed: another may have been taken at the same moment
LIMIT = 4096  # bytes


class LeaseRecord(Struct, frozen=True, kw_only=True):
    """Who holds a lease. `renewed`: the number that grows; `time`: for display."""

    owner: Text300
    pid: Count
    host: Text300
    boot: Text300
    renewed: Count
    time: float


class Lease:
    """One process's hold on a lease, or its tries to get it."""

    def __init__(self, path: Path) -> None:
        self._path, self._owner = path, secrets.token_hex(8)
        self._renewed = 0
        self._seen: tuple[str, int] | None = None  # owner and number of another's lease
        self._seen_at = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self.lost = False  # somebody else has it

    def take(self) -> bool:
        """Try to get it; called again and again it gets one whose holder is gone. Raises `OSError`."""
        record = read_lease(self._path)
        if record is not None and not self._is_free(record):
            return False
        self._write()
        time.sleep(SETTLE_SECONDS)
        record = read_lease(self._path)
        if record is None or record.owner != self._owner:
            return False
        self._thread = threading.Thread(target=self._renew, name="tiltmeter-lease", daemon=True)
        self._thread.start()
        return True

    def release(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(RENEW_SECONDS)  # or it would write the lease again
        record = read_lease(self._path)
        if record is not None and record.owner == self._owner:
            remove(self._path, missing_ok=True)

    def _is_free(self, record: LeaseRecord) -> bool:
        if holder_alive(record) is False:
            return True
        if self._seen != (record.owner, record.renewed):
            self._seen, self._seen_at = (record.owner, record.renewed), time.monotonic()
        return time.monotonic() - self._seen_at > LEASE_SECONDS

    def _write(self) -> None:
        self._renewed += 1
        record = LeaseRecord(
            owner=self._owner,
            pid=os.getpid(),
            host=platform.node()[:300],
            boot=boot_id(),
            renewed=self._renewed,
            time=time.time(),
        )
        replace_file(self._path, json.encode(record))

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            try:
                record = read_lease(self._path)
                if record is not None and record.owner != self._owner:
                    self.lost = True
                    return
                self._write()
            except OSError:
                continue  # a full disk: whoever waits takes it in a while


def read_lease(path: Path) -> LeaseRecord | None:
    """The lease as it stands; None if there is none, or none that can be read."""
    try:
        return find_sidecar(path, LeaseRecord, LIMIT)
    except StoreError:
        return None


def lease_held(path: Path) -> bool:
    """Whether somebody holds it, by one look: on another machine this goes by both clocks, so it is for display."""
    record = read_lease(path)
    if record is None:
        return False
    alive = holder_alive(record)
    return abs(time.time() - record.time) <= LEASE_SECONDS if alive is None else alive


def holder_alive(record: LeaseRecord) -> bool | None:
    """Whether the holder's process is there; None if that cannot be known here. A process of the same number may be
    another one: then the number does not grow."""
    if record.host != platform.node()[:300]:
        return None
    if record.boot != boot_id():
        return False
    try:
        os.kill(record.pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # another user's
    return None


def boot_id() -> str:
    """Changes when the machine starts; empty where it is not known."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
