"""Faults that can be put over one optimiser step of a watched TRL run, and taken away again: `trl_faults.py` uses them.

Each is a context manager over a `ServerState` that calls `site.meet()` when the fault was really met.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import tiltmeter.adapters.monitor_process
import tiltmeter.rundir.atomic_write
from tiltmeter.errors import AttachError
from tiltmeter.rundir.requests import ControlRequest, Kind, Who, write_request
from tiltmeter.rundir.signing import read_token


@dataclass
class Site:
    """Where faults are injected: a trainer that is about to train, watched."""

    run: Any
    home: Path  # of this training run; the run directory is inside
    rng: random.Random
    step: int = 0  # that is about to be made
    numbers: Iterator[int] = field(default_factory=itertools.count)
    met: int = 0  # how often the fault that is on now was met

    @property
    def directory(self) -> Path:
        directory: Path = self.run.directory
        return directory

    @property
    def monitor(self) -> subprocess.Popen[bytes]:
        process: subprocess.Popen[bytes] = self.run._callback.run._monitor.process
        return process

    def meet(self, *_: object) -> None:
        self.met += 1

    def drained(self) -> bool:
        told = self.run.counters
        return bool(told["seen"] == told["written"] + told["thinned"] + told["dropped"])


Fault = Callable[[Site], AbstractContextManager[None]]

# -- storage ----------------------------------------------------------------------------------------------------------


class FailingOs:
    """Stands where the storage has `os`: calls of some names fail, or take long."""

    def __init__(
        self, site: Site, names: tuple[str, ...], code: int, *, torn: bool = False, seconds: float = 0.0
    ) -> None:
        self._site, self._names, self._code, self._torn, self._seconds = site, names, code, torn, seconds

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        return (lambda *args, **kwargs: self._call(real, *args, **kwargs)) if name in self._names else real

    def _call(self, real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._site.meet()
        if self._seconds:
            time.sleep(self._seconds)
            return real(*args, **kwargs)
        if self._torn and len(args[1]) > 1:
            self._torn = False
            return real(args[0], memoryview(args[1])[: len(args[1]) // 2])  # a disk that fills up writes short first
        raise OSError(self._code, os.strerror(self._code))


def storage(*names: str, code: int = errno.ENOSPC, torn: bool = False, seconds: float = 0.0) -> Fault:
    @contextmanager
    def fault(site: Site) -> Iterator[None]:
        module: Any = tiltmeter.rundir.atomic_write
        module.os = FailingOs(site, names, code, torn=torn, seconds=seconds)
        try:
            yield
        finally:
            module.os = os

    return fault


@contextmanager
def directory_away(site: Site) -> Iterator[None]:
    """The run directory is not there for a step; who had it open goes on writing into what was moved."""
    place, aside = site.directory, site.home / "moved away"
    place.rename(aside)
    site.meet()
    try:
        yield
    finally:
        if place.exists():  # somebody made a folder in its place
            shutil.rmtree(place)
        aside.rename(place)


@contextmanager
def file_for_folder(site: Site) -> Iterator[None]:
    folder, aside = site.directory / "rollouts" / str(site.run.attempt), site.home / "rollouts aside"
    folder.rename(aside)
    folder.write_bytes(b"not a folder")
    site.meet()
    try:
        yield
    finally:
        folder.unlink()
        aside.rename(folder)


@contextmanager
def directory_gone(site: Site) -> Iterator[None]:
    """Removed for good, as by somebody who cleans up."""
    for _ in range(20):  # the monitor may be writing into it
        shutil.rmtree(site.directory, ignore_errors=True)
        if not site.directory.exists():
            break
    site.meet()
    yield


# -- processes --------------------------------------------------------------------------------------------------------


@contextmanager
def monitor_killed(site: Site) -> Iterator[None]:
    if site.monitor.poll() is None:
        site.monitor.kill()
        site.meet()
    yield


@contextmanager
def monitor_stopped(site: Site) -> Iterator[None]:
    process = site.monitor
    if process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        site.meet()
    yield
    process.send_signal(signal.SIGCONT)


@contextmanager
def monitor_cannot_start(site: Site) -> Iterator[None]:
    """It is killed, and no process can be made in its place."""

    def refused(*args: Any, **kwargs: Any) -> Any:
        site.meet()
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    beside: Any = tiltmeter.adapters.monitor_process
    real = beside.subprocess.Popen
    beside.subprocess.Popen = refused
    site.monitor.kill()
    site.monitor.wait()
    try:
        yield
    finally:
        beside.subprocess.Popen = real


# -- what others put into the directory -------------------------------------------------------------------------------

GARBAGE: tuple[bytes, ...] = (
    b"", b"\0" * 100, b"{", b"[" * 4_000, b"\xff\xfe", b"null", b"1e999", b'{"request": {}, "signature": ""}',
    b'{"request": null, "signature": 3}', b"x" * 1_000_000, '{"id": "\ud800"}'.encode("utf-8", "surrogatepass"),
)  # fmt: skip


def garbage(*folders: str, suffix: str = ".json") -> Fault:
    """Something that is no file of ours, under a name that one of ours could have."""

    @contextmanager
    def fault(site: Site) -> Iterator[None]:
        for folder in folders:
            place = site.directory / folder.replace("ATTEMPT", str(site.run.attempt))
            place.mkdir(parents=True, exist_ok=True)
            path = place / f"{site.step + 1:06d}-0{suffix}"
            if path.exists() or path.is_symlink():
                path = place / f"{10**5 + next(site.numbers)}-0{suffix}"
            _plant(path, site.rng)
            site.meet()
        yield

    return fault


def _plant(path: Path, rng: random.Random) -> None:
    way = rng.randrange(len(GARBAGE) + 4)
    if way < len(GARBAGE):
        path.write_bytes(GARBAGE[way])
    elif way == len(GARBAGE):
        path.symlink_to("/dev/zero")
    elif way == len(GARBAGE) + 1:
        os.mkfifo(path)
    elif way == len(GARBAGE) + 2:
        path.mkdir()
    else:
        path.write_bytes(rng.randbytes(500))


def unwelcome(kind: Kind, who: Who, *, forged: bool) -> Fault:
    """A request that must not be followed: signed, but not heard in this mode; or by somebody without the token."""

    @contextmanager
    def fault(site: Site) -> Iterator[None]:
        store = site.run._callback.run.store
        try:
            token = site.rng.choice((b"", b"x" * 64)) if forged else read_token(store)
        except AttachError:
            token = b""  # training began on a full disk, and nobody has one
        knobs = (("stop", 1.0), ("beta", 0.5), ("learning_rate", 1e-5), ("reward_weight.odd", 0.0))
        knob, value = site.rng.choice(knobs)
        name = f"{site.run.attempt}-{next(site.numbers)}-{knob}"
        request = ControlRequest(f"{name}.{kind}", name, site.run.attempt, knob, value, kind, who, expires_step=10**6)
        write_request(store, request, token)
        site.meet()
        yield

    return fault


# -- our own code -----------------------------------------------------------------------------------------------------


def our_error(module: str, owner: str, name: str) -> Fault:
    """The next call of one of our own functions raises."""

    @contextmanager
    def fault(site: Site) -> Iterator[None]:
        target = getattr(import_module(module), owner) if owner else import_module(module)
        real, error = (
            vars(target)[name],
            site.rng.choice((KeyError, MemoryError, RecursionError, AssertionError, OSError)),
        )

        def raising(*args: Any, **kwargs: Any) -> Any:
            if site.met:
                return real(*args, **kwargs)
            site.meet()
            raise error("on order")

        setattr(target, name, raising)
        try:
            yield
        finally:
            setattr(target, name, real)

    return fault


@contextmanager
def keep_alive_raises(site: Site) -> Iterator[None]:
    """Looking after the monitor fails, on the writer's thread."""
    writer = site.run._callback.run._writer
    real = writer._after_write

    def raising() -> None:
        site.meet()
        raise RuntimeError("on order")

    writer._after_write = raising
    try:
        yield
    finally:
        writer._after_write = real


ROLLOUTS, ADAPTER, CONTROL = (
    "tiltmeter.adapters.trl.rollouts",
    "tiltmeter.adapters.trl.attach",
    "tiltmeter.adapters.trl.control",
)
FAULTS: dict[str, Fault] = {
    "disk_full": storage("write"),
    "disk_fills_up": storage("write", torn=True),
    "quota_exceeded": storage("write", "link", code=errno.EDQUOT),
    "sync_fails": storage("fsync", code=errno.EIO),
    "no_links": storage("link", code=errno.EPERM),
    "read_only": storage("open", "link", code=errno.EROFS),
    "no_descriptors": storage("open", code=errno.EMFILE),
    "slow_disk": storage("fsync", seconds=0.15),
    "directory_away": directory_away,
    "file_for_folder": file_for_folder,
    "monitor_stopped": monitor_stopped,
    "garbage_requests": garbage("control/requests", "control/receipts"),
    "garbage_labels": garbage("gold/labels/ATTEMPT", "gold/requests/ATTEMPT", "evaluations"),
    "garbage_rollouts": garbage("rollouts/ATTEMPT", suffix=".parquet"),
    "request_not_heard": unwelcome("apply", "monitor", forged=False),
    "request_forged": unwelcome("approve", "operator", forged=True),
    "our_take_raises": our_error(ROLLOUTS, "Rollouts", "_record_generation"),
    "our_hear_raises": our_error(ROLLOUTS, "Rollouts", "_record_loss"),
    "our_finish_raises": our_error(ROLLOUTS, "Generation", "to_columns"),
    "our_log_raises": our_error(ADAPTER, "Callback", "_record_logs"),
    "our_poll_raises": our_error(CONTROL, "TrlControl", "poll"),
    "our_keep_alive_raises": keep_alive_raises,
    "our_columns_raise": our_error("tiltmeter.rundir.column_copies", "", "from_columns"),
    "our_offer_raises": our_error("tiltmeter.rundir.writer", "", "nbytes"),
}
#: While training begins.
FIRST: dict[str, Fault] = {
    "begin_disk_full": storage("write"),
    "begin_read_only": storage("open", code=errno.EROFS),
    "our_begin_raises": our_error(CONTROL, "TrlControl", "begin"),
}
#: After these nothing of the kind can be met any more, so they come last.
LAST: dict[str, Fault] = {"directory_gone": directory_gone, "monitor_cannot_start": monitor_cannot_start}
ALL = {**FIRST, **FAULTS, **LAST, "monitor_killed": monitor_killed}
KILLS = 4  # a monitor is started again at once three times an hour
