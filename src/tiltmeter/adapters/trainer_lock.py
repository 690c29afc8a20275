"""One trainer writes a run directory at a time: it holds a lock in it, and a second one gets a directory of its own.

The lock is the kernel's and ends with its process, so that a trainer that is started again after a crash continues in
the same directory. Ranks other than 0 hold none: they look for the attempt of their launch, wherever rank 0 went.
"""

from __future__ import annotations

import fcntl
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from weakref import WeakSet, finalize

from msgspec import Struct, json

from tiltmeter.errors import AttachError, StoreError, warn_user
from tiltmeter.monitor.lease import boot_id
from tiltmeter.rundir.remote.address import spool_path
from tiltmeter.rundir.remote.objects import open_objects
from tiltmeter.rundir.remote.spool import open_spool
from tiltmeter.rundir.remote.writer_lease import read_head
from tiltmeter.rundir.run_path import make_folder, open_file, run_path
from tiltmeter.rundir.sidecar import Count, Text300, find_sidecar
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line

LOCK = "trainer.lock"
LIMIT = 4096  # bytes of it
WAIT_SECONDS = 5.0  # for a trainer that is about to end: one that is started again at once must not get another place
TRIES = 10  # to take it, before another trainer is assumed
JOIN_SECONDS = 60.0  # of a rank for rank 0


class LockHolder(Struct, frozen=True, kw_only=True):
    """The process that holds a lock. `space`: its process numbers; `started`: in ticks since the machine's start."""

    pid: Count = 0
    host: Text300 = ""
    boot: Text300 = ""
    space: Text300 = ""
    started: Count = 0

    @classmethod
    def this_process(cls) -> LockHolder:
        pid, host = os.getpid(), platform.node()[:300]
        return cls(pid=pid, host=host, boot=boot_id(), space=_process_space(), started=_start_of(pid))

    @property
    def is_this_process(self) -> bool:
        return self == LockHolder.this_process()

    @property
    def is_gone(self) -> bool:
        """Whether it has surely ended: a process that it forked behind Python's back may still have its lock."""
        here = LockHolder.this_process()
        same = (self.host, self.boot, self.space) == (here.host, here.boot, here.space)
        return same and bool(self.space and self.started) and _start_of(self.pid) != self.started


class TrainerLock:
    """A trainer's hold on a run directory, until it is released, collected or its process ends.

    Where the file system has no locks nobody can tell, and nothing is refused.
    """

    def __init__(self, handle: int | None) -> None:
        self._handle = handle
        # For one that is forgotten; no `__del__`, in which an interrupt would be lost after the lock was released too.
        self._collected = finalize(self, _close, handle)
        self._collected.atexit = False
        _HELD.add(self)

    def release(self) -> None:
        """May be called again, also by whoever was interrupted here."""
        self._collected.detach()
        handle, self._handle = self._handle, None
        _close(handle)

    @classmethod
    def take(cls, path: Path) -> TrainerLock | LockHolder:
        """The lock of a run directory, or who holds it."""
        try:
            handle = open_file(make_folder(run_path(path), "cache") / LOCK, os.O_RDWR | os.O_CREAT)
        except OSError:
            return cls(None)
        for tries in range(TRIES, 0, -1):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if tries > 1:  # it may be one that looks who has it, as this one did
                    time.sleep(0.02)
                    continue
                os.close(handle)
                holder = _read_holder(path)
                return cls(None) if holder.is_gone else holder
            except OSError:
                os.close(handle)
                return cls(None)
        with suppress(OSError):  # it is held, whoever can read by whom
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.encode(LockHolder.this_process()), 0)
        return cls(handle)


def _close(handle: int | None) -> None:
    if handle is not None:
        os.close(handle)


#: Of this process. A forked child (a data loader's worker) shares them and may live longer: it lets go at once.
_HELD: WeakSet[TrainerLock] = WeakSet()


def _release_in_child() -> None:
    for lock in list(_HELD):
        lock.release()


os.register_at_fork(after_in_child=_release_in_child)


def claim_directory(place: Path | str) -> tuple[RunDirectory, TrainerLock]:
    """The run at a path or address, and this trainer's hold on it; while another trainer writes there, a new one
    beside it, `PLACE-2` or the next free name, which is said. Raises `AttachError`."""
    rival: LockHolder | None = None
    for number in count(1):
        here = numbered(place, number)
        path = local_path(here)
        if number > 1 and _is_taken(here):
            continue
        holder = _wait_for(path, WAIT_SECONDS if number == 1 else 0.0)
        if holder is None:
            if isinstance(here, str):
                open_spool(here)
            run = RunDirectory.create(path)
            lock = TrainerLock.take(run.path)
            if isinstance(lock, TrainerLock):
                if rival is not None:
                    warn_user(_say_rival(rival, place, here), 0)
                return run, lock
            holder = lock
        rival = rival or holder
    raise AssertionError("numbers do not end")


def join_directory(place: Path | str, launch: str, rank: int) -> tuple[RunDirectory, int]:
    """The run and attempt that rank 0 of the same launch opened, at a place or beside it. Raises `AttachError`."""
    first = RunDirectory(open_spool(place, rank)) if isinstance(place, str) else RunDirectory.create(place)
    deadline = time.monotonic() + JOIN_SECONDS
    while True:
        for path in existing_paths(place):
            run = RunDirectory(path)
            if (attempt := run.claim_attempt(launch=launch, rank=rank)) is not None:
                return run, attempt
        if time.monotonic() > deadline:
            return first, first.join_attempt(launch=launch, rank=rank, timeout=0.0)
        time.sleep(0.05)


@contextmanager
def released_if_it_fails(lock: TrainerLock | None) -> Iterator[None]:
    """Let go of a directory in which no run came to be."""
    try:
        yield
    except BaseException:
        if lock is not None:
            lock.release()
        raise


def existing_paths(place: Path | str) -> Iterator[Path]:
    """The directory of a place, and those beside it that second trainers were given."""
    for number in count(1):
        path = local_path(numbered(place, number))
        if number > 1 and not os.path.lexists(path):
            return
        yield path


def numbered(place: Path | str, number: int) -> Path | str:
    """A place, or the one beside it of this number.

    >>> numbered(Path("runs/tonight"), 2), numbered("s3://bucket/tonight", 1)
    (PosixPath('runs/tonight-2'), 's3://bucket/tonight')
    """
    if number == 1:
        return place
    return f"{place}-{number}" if isinstance(place, str) else place.with_name(f"{place.name}-{number}")


def local_path(place: Path | str) -> Path:
    return spool_path(place) if isinstance(place, str) else place


def _is_taken(place: Path | str) -> bool:
    """Whether anything stands at a place."""
    if os.path.lexists(local_path(place)):
        return True
    try:
        return isinstance(place, str) and read_head(open_objects(place))[1] is not None
    except (OSError, StoreError) as error:
        raise AttachError(f"{place} cannot be read: {error}") from error


def _wait_for(path: Path, seconds: float) -> LockHolder | None:
    """Who writes a run, after a while in which another process may end; None if nobody does or nobody can tell."""
    deadline = time.monotonic() + seconds
    while (holder := _find_holder(path)) is not None:
        if holder.is_this_process or time.monotonic() > deadline:
            return holder
        time.sleep(0.1)
    return None


def _find_holder(path: Path) -> LockHolder | None:
    try:
        handle = open_file(run_path(path) / "cache" / LOCK)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = _read_holder(path)
        return None if holder.is_gone else holder
    except OSError:
        return None
    else:
        return None
    finally:
        os.close(handle)


def _read_holder(path: Path) -> LockHolder:
    """Who says to hold the lock; nobody known where that cannot be read."""
    try:
        return find_sidecar(run_path(path) / "cache" / LOCK, LockHolder, LIMIT) or LockHolder()
    except (OSError, StoreError):
        return LockHolder()


def _say_rival(rival: LockHolder, place: Path | str, here: Path | str) -> str:
    if rival.is_this_process:
        who, fix = "this process", "close() the first run before you open the next one there"
    else:
        who = f"process {rival.pid} on {log_line(rival.host, 100)}" if rival.pid else "another process"
        fix = "end it before you resume there, or give each trainer its own directory"
    return f"{who} is writing a run in {place}: this one is kept in {here}; {fix}"


def _process_space() -> str:
    """Process numbers mean the same where this is the same; empty where it is not known."""
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - a name that is no path
    except OSError:
        return ""


def _start_of(pid: int) -> int:
    """When a process started, in ticks since the machine did; 0 if there is none, or that is not known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return 0
