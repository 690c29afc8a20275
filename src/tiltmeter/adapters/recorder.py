"""One process's part of a captured run: rows in, files out, on a thread of its own.

The first process of a start opens the attempt, all others join it by the launch id in `TILTMETER_RUN`, which processes
started from here inherit. Loud when it joins; afterwards nothing is raised, and what was lost is counted and told.
"""

from __future__ import annotations

import atexit
import fcntl
import hashlib
import logging
import multiprocessing
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.adapters.calls import Call, Scores
from tiltmeter.adapters.loop import Run, launch_id, open_run, place_of
from tiltmeter.batches import from_columns
from tiltmeter.errors import AttachError
from tiltmeter.store import RunDirectory
from tiltmeter.unplaced import Boundary, make_folder, mark_worker, write_boundary, write_rows

LAUNCH = "TILTMETER_RUN"
MOST_ROWS = 65_536  # held while storage does not keep up; what comes then is counted and let go
CLOSING_SECONDS = 10.0

log = logging.getLogger("tiltmeter")


@dataclass(slots=True)
class Held:
    """Rows of one call that are not written yet."""

    call: Call
    scores: Scores
    moment: float  # when the call ended, seconds since 1970
    seconds: float


class Recorder:
    """What one process has scored and not written yet, and the thread that writes it. Every method may be called from
    the training thread, and none raises."""

    def __init__(self, store: RunDirectory, attempt: int, *, run: Run | None, seconds: float, rows: int) -> None:
        self.store, self.attempt, self.run = store, attempt, run
        self.fingerprint = ""
        self._seconds, self._rows = seconds, rows
        self._begin()
        atexit.register(_close_at_exit, weakref.ref(self))
        # A forked child has this object and neither its thread nor its lock: there it is another worker.
        os.register_at_fork(after_in_child=_Reborn(self))

    def _begin(self) -> None:
        self.worker = secrets.token_hex(6)
        self.counters = {"calls": 0, "rows": 0, "written": 0, "exceptions": 0, "missing": 0, "unread": 0, "dropped": 0}
        self._pid = os.getpid()
        self._held: list[Held] = []
        self._count = 0  # rows among those held
        self._latest = 0.0
        self._next, self._seq = 0, 0  # numbers of the next row and the next file
        self._lock = threading.Lock()  # guards what is held, never during I/O
        self._writing = threading.Lock()  # one file at a time
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._open = True
        self._told = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to another process, as part of a captured function, it is that process's own part of the same run."""
        launch = self.store.attempt(self.attempt).get("launch", "")
        return _rejoined, (str(self.store.path), launch, self._seconds, self._rows, self.fingerprint)

    def take(self, call: Call, scores: Scores, seconds: float, *, failed: bool = False) -> None:
        """Keep the rows of one call, which `failed` if it raised."""
        rows = len(call.completion)
        with self._lock:
            if not self._open:
                return
            if self._thread is None:
                self._start()
            self.counters["calls"] += 1
            self.counters["exceptions"] += failed
            self.counters["rows"] += rows
            self.counters["missing"] += sum(reward is None for reward in scores.reward)
            if self._count + rows > MOST_ROWS:
                self.counters["dropped"] += rows
            else:
                # Never back, even if the clock goes back: the order of a worker's rows is what places them.
                self._latest = max(self._latest, time.time())
                self._held.append(Held(call, scores, self._latest, seconds))
                self._count += rows
            full = self._count >= self._rows
        if full:
            self._wake.set()

    def count(self, what: str, why: str) -> None:
        """Count a call whose rows are not known, and say so once."""
        with self._lock:
            self.counters["calls"] += 1
            self.counters[what] += 1
        if what == "unread":
            self.tell(f"a call of the reward function was not recorded: {why}")

    def step(self, boundary: Boundary) -> None:
        """The driver's word that a step is over."""
        try:
            write_boundary(self.store, self.attempt, boundary)
        except Exception as error:  # noqa: BLE001  # the boundary of the trainer's process
            self.tell(f"the end of step {boundary.step} was not written: {type(error).__name__}: {error}")

    def tell(self, why: str) -> None:
        """Leave word in the run, the first time; the monitor makes it a fault."""
        if self._told:
            return
        self._told = True
        log.warning("%s", why)
        try:
            self.store.tell_trouble(self.attempt, int(self.worker, 16), why)
        except OSError as error:
            log.warning("and that could not be written down: %s", error)

    def flush(self) -> bool:
        """Write what is held now; whether all of it could be. For tests and ends: the thread does it by itself."""
        with self._writing:
            with self._lock:
                held, self._held, self._count = self._held, [], 0
            if not held:
                return True
            try:
                self._write(held)
            except OSError as error:
                with self._lock:
                    self._held = [*held, *self._held]
                    self._count += sum(len(item.call.completion) for item in held)
                self.tell(f"rows could not be written yet: {error}")
                return False
            except Exception as error:  # noqa: BLE001  # rows that no file can hold: they are lost, the run is not
                with self._lock:
                    self.counters["dropped"] += sum(len(item.call.completion) for item in held)
                self.tell(f"rows were lost: {type(error).__name__}: {str(error)[:200]}")
            return True

    def close(self) -> None:
        """Write what is held and the end marker of this worker; where the run was opened here, close it."""
        if not self._open or os.getpid() != self._pid:
            return
        with self._lock:
            self._open = False
        self._wake.set()
        deadline = time.monotonic() + CLOSING_SECONDS
        while not self.flush() and time.monotonic() < deadline:
            time.sleep(0.1)
        try:
            mark_worker(self.store, self.attempt, self.worker, "counters", self.counters)
        except OSError as error:
            log.warning("the closing counters could not be written: %s", error)
        if self.run is not None:
            self.run.close()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="tiltmeter-recorder", daemon=True)
        self._thread.start()
        # Children of multiprocessing leave without the interpreter's own exit.
        Finalize(None, _close_at_exit, args=(weakref.ref(self),), exitpriority=10)

    def _work(self) -> None:
        try:
            mark_worker(
                self.store, self.attempt, self.worker, "worker", {"pid": self._pid, "host": socket.gethostname()}
            )
        except OSError as error:
            self.tell(f"rows could not be written yet: {error}")
        while self._open:
            self._wake.wait(self._seconds)
            self._wake.clear()
            self.flush()

    def _write(self, held: list[Held]) -> None:
        columns, beside = _columns(held)
        batch = from_columns(
            0, np.arange(len(beside["key"])), attempt=self.attempt, fingerprint=self.fingerprint, **columns
        )
        write_rows(self.store, self.attempt, self.worker, self._seq, self._next, batch, beside)
        self._seq, self._next = self._seq + 1, self._next + len(batch)
        with self._lock:
            self.counters["written"] += len(batch)


class _Reborn:
    """Makes a recorder a new one in a forked child, as long as it lives."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = weakref.ref(recorder)

    def __call__(self) -> None:
        recorder = self._recorder()
        if recorder is not None:
            recorder.run = None  # closed by the process that opened it
            recorder._begin()


_OPEN: dict[Path, Recorder] = {}


def recorder_of(
    directory: str | os.PathLike[str],
    *,
    batch_size: int | None = None,
    driver: bool = False,
    seconds: float,
    rows: int,
    settings: Mapping[str, Any],
) -> Recorder:
    """This process's recorder for a run: the one it has, or a new one that opens or joins the start's attempt."""
    path = place_of(directory).absolute()
    known = _OPEN.get(path)
    if known is not None and known._open and known._pid == os.getpid():
        return known
    launch = _launch()
    store = RunDirectory.create(path)
    with _alone(store):
        attempt = _joined(store, launch)
        run: Run | None = None
        if attempt is None:
            run = open_run(path, rank=0, ranks=1, launch=launch, **settings)
            attempt = run.attempt
        make_folder(
            store, attempt, None if run is None else {"batch_size": batch_size, "seconds": seconds, "driver": driver}
        )
    _OPEN[path] = Recorder(store, attempt, run=run, seconds=seconds, rows=rows)
    return _OPEN[path]


def _rejoined(path: str, launch: str, seconds: float, rows: int, fingerprint: str) -> Recorder:
    os.environ.setdefault(LAUNCH, launch)
    recorder = recorder_of(path, seconds=seconds, rows=rows, settings={"monitor": False})
    recorder.fingerprint = fingerprint
    return recorder


def current(directory: str | os.PathLike[str] | None = None) -> Recorder:
    """The recorder of this process; with several runs open, `directory` says which."""
    living = [recorder for recorder in _OPEN.values() if recorder._open and recorder._pid == os.getpid()]
    if directory is not None:
        living = [recorder for recorder in living if recorder.store.path == place_of(directory).absolute()]
    if len(living) != 1:
        raise AttachError(
            f"{len(living)} captured runs are open in this process: call tiltmeter.capture.open(directory) in the "
            "driver before workers start, and name directory= where there are several"
        )
    return living[0]


def _launch() -> str:
    if word := os.environ.get(LAUNCH):
        return word
    if multiprocessing.parent_process() is not None or "RAY_RAYLET_PID" in os.environ:
        raise AttachError(
            "this is a worker process and nobody said which start it belongs to: call "
            "tiltmeter.capture.open(directory) in the driver before workers are started (before ray.init), or set "
            f"{LAUNCH} to a new word for every start"
        )
    os.environ[LAUNCH] = launch_id(1)  # for the processes that are started from here
    return os.environ[LAUNCH]


def _joined(store: RunDirectory, launch: str) -> int | None:
    """The attempt of this start, if somebody has opened it and it goes on."""
    for attempt in reversed(store.attempts()):
        if store.attempt(attempt).get("launch") == launch and not store.ended(attempt):
            return attempt
    return None


@contextmanager
def _alone(store: RunDirectory) -> Iterator[None]:
    """One process at a time looks for an attempt and opens it."""
    (store.path / "cache").mkdir(exist_ok=True)
    handle = os.open(store.path / "cache" / "capture.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _columns(held: list[Held]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of a batch and what stands beside them, from calls that may not all tell the same."""
    sizes = [len(item.call.completion) for item in held]
    names = dict.fromkeys(name for item in held for name in item.scores.parts)
    columns: dict[str, Any] = {
        "completion": [text for item in held for text in item.call.completion],
        "reward": [reward for item in held for reward in item.scores.reward],
        "rewards": {
            name: [part for item in held for part in item.scores.parts.get(name, [None] * len(item.call.completion))]
            for name in names
        },
    }
    for name in ("prompt", "facts", "length"):
        parts = [getattr(item.call, name) for item in held]
        if name == "length" and any(part is None for part in parts):
            continue
        if any(part is not None for part in parts):
            columns[name] = [value for part, size in zip(parts, sizes, strict=True) for value in part or [None] * size]
    keys = [key for item in held for key in _keys(item.call)]
    beside = {
        "key": _hashed(keys),
        "time": np.repeat([item.moment for item in held], sizes),
        "step": np.repeat([-1 if item.call.step is None else item.call.step for item in held], sizes),
        "seconds": np.repeat([item.seconds for item in held], sizes),
    }
    return columns, beside


def _keys(call: Call) -> list[str]:
    """What makes rows one group; a row of which nothing is known is alone."""
    if call.group is not None:
        return [f"group {key}" for key in call.group]
    texts = call.prompt or [None] * len(call.completion)
    return [f"prompt {text}" if text is not None else f"row {secrets.token_hex(8)}" for text in texts]


def _hashed(keys: list[str]) -> Any:
    digests = (hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest() for key in keys)
    return np.array([int.from_bytes(digest) >> 1 for digest in digests], np.int64)


def _close_at_exit(reference: weakref.ref[Recorder]) -> None:
    recorder = reference()
    if recorder is not None:
        recorder.close()
