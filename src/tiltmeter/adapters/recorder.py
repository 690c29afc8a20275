"""One process's part of a captured run: rows in, files out, on a thread of its own.

The first process of a start opens the attempt, all others join it by the launch id in `TILTMETER_RUN`, which processes
started from here inherit. Loud when it joins; afterwards nothing is raised, and what was lost is counted and told.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Mapping
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.adapters.calls import Call, Held, Scores, columns_of, first_of, size_of
from tiltmeter.adapters.launch import LAUNCH, is_worker, place_of, word_of_this_start
from tiltmeter.adapters.loop import Run, import_lazy_parts, open_run
from tiltmeter.batches import from_columns
from tiltmeter.errors import AttachError
from tiltmeter.store import RunDirectory, read_json
from tiltmeter.unplaced import (
    Boundary,
    alone,
    folder,
    held_while_alive,
    joined,
    leave_word,
    make_folder,
    mark_worker,
    say_driven,
    write_boundary,
    write_rows,
)

OPENED = "TILTMETER_RUN_OPENED"  # the launch id again, once a process above this one has opened its run
MOST_ROWS = 65_536  # held while storage does not keep up; what comes then is counted and let go
MOST_BYTES = 256 << 20  # of text, the same
LONGEST_PAUSE = 30.0  # seconds between two tries to write
CLOSING_SECONDS = 10.0
#: What only the process that opens a run can be given.
ASKED = ("gold", "plugins", "experiment", "steps")

log = logging.getLogger("tiltmeter")


class Recorder:
    """What one process has scored and not written yet, and the thread that writes it. Every method may be called from
    the training thread, and none raises."""

    def __init__(
        self, store: RunDirectory, attempt: int, *, run: Run | None, seconds: float, rows: int, alive: int | None = None
    ) -> None:
        self.store, self.attempt, self.run = store, attempt, run
        self.fingerprint = ""
        self._seconds, self._rows = seconds, rows
        self._alive = alive  # a lock that says: whoever opened this attempt lives
        self._begin()
        atexit.register(_close_at_exit, weakref.ref(self))
        # A forked child has this object and neither its thread nor its lock: there it is another worker.
        os.register_at_fork(after_in_child=_Reborn(self))

    def _begin(self) -> None:
        self.worker = secrets.token_hex(6)
        self.counters = {"calls": 0, "rows": 0, "written": 0, "exceptions": 0, "missing": 0, "unread": 0, "dropped": 0}
        self._pid = os.getpid()
        self._held: list[Held] = []
        self._count = self._bytes = 0  # of rows among those held: they count until they are written or given up
        self._latest = 0.0
        self._next, self._seq = 0, 0  # numbers of the next row and the next file
        self._lock = threading.Lock()  # guards what is held, never during I/O
        self._writing = threading.Lock()  # one file at a time
        self._wake, self._closing = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._open = True
        self._marked = False
        self._told: set[str] = set()  # kinds of trouble
        self._words: list[str] = []  # of them, those that are still to be written down

    def __reduce__(self) -> tuple[Any, ...]:
        """Sent to another process, as part of a captured function, it is that process's own part of the same run."""
        launch = self.store.attempt(self.attempt).get("launch", "")
        return _rejoined, (str(self.store.path), launch, self._seconds, self._rows, self.fingerprint)

    def take(self, call: Call, scores: Scores, seconds: float, *, failed: bool = False) -> None:
        """Keep the rows of one call, which `failed` if it raised."""
        rows, size, why = len(call.completion), size_of(call), ""
        with self._lock:
            if not self._open:
                return
            self.counters["calls"] += 1
            self.counters["exceptions"] += failed
            self.counters["rows"] += rows
            self.counters["missing"] += sum(reward is None for reward in scores.reward)
            if self._count + rows > MOST_ROWS or self._bytes + size > MOST_BYTES:
                self.counters["dropped"] += rows
                why = "rows were dropped: storage does not keep up with the reward function"
            else:
                # Never back, even if the clock goes back: the order of a worker's rows is what places them.
                self._latest = max(self._latest, time.time())
                self._held.append(Held(call, scores, self._latest, seconds, size))
                self._count, self._bytes = self._count + rows, self._bytes + size
            full = self._count >= self._rows
            why = self._start() or why
        if full:
            self._wake.set()
        if why:
            self.tell(why)

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
            if self.run is not None:
                self.run.keep_alive()
        except Exception as error:  # noqa: BLE001  # the boundary of the trainer's process
            self.tell(f"the end of step {boundary.step} was not written: {type(error).__name__}: {error}")

    def tell(self, why: str) -> None:
        """Leave word in the run, once per kind of trouble; the monitor makes it a fault. Written by the thread, because
        a word is fsynced and the trainer must not wait for that."""
        kind = why.split(":")[0]
        with self._lock:
            if kind in self._told:
                return
            self._told.add(kind)
            self._words.append(why)
            if self._open:
                self._start()
        log.warning("%s", why)
        self._wake.set()

    def flush(self) -> bool:
        """Write what is held now; whether all of it could be. For tests and ends: the thread does it by itself."""
        with self._writing:
            written = self._write_held()
            return self._write_words() and written

    def close(self) -> None:
        """Write what is held and the end marker of this worker; where the run was opened here, close it."""
        with self._lock:
            if not self._open or os.getpid() != self._pid:
                return
            self._open = False
            thread = self._thread
        self._closing.set()
        self._wake.set()
        if thread is None:
            self._finish()
        else:
            thread.join(CLOSING_SECONDS + 1.0)  # a write that hangs must not keep the process
            if thread.is_alive():
                log.warning("storage did not answer: about %d rows were not written", self._count)
        if self.run is not None:
            self.run.close()
        self.let_go()

    def let_go(self) -> None:
        """Give back the lock of the opener, which lives no longer, or never was this process."""
        if self._alive is not None:
            os.close(self._alive)
            self._alive = None

    def _start(self) -> str:
        """See that the thread runs, with the lock held; why it does not, or nothing. Tried again at the next call."""
        if self._thread is not None:
            return ""
        thread = threading.Thread(target=self._work, name="tiltmeter-recorder", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            return f"rows wait for a thread: {error}"
        self._thread = thread
        # Children of multiprocessing leave without the interpreter's own exit.
        Finalize(None, _close_at_exit, args=(weakref.ref(self),), exitpriority=10)
        return ""

    def _work(self) -> None:
        pause = 0.0
        while self._open:
            if self._held:
                self._mark()
            self._wake.wait(self._seconds)
            self._wake.clear()
            if not self._open:
                break
            if self.flush():
                pause = 0.0
            else:  # a full disk is not asked all the time
                pause = min(LONGEST_PAUSE, max(0.5, 2.0 * pause))
                self._closing.wait(pause)
            if self.run is not None:
                self.run.keep_alive()
        self._finish()

    def _finish(self) -> None:
        """The last of this worker: its rows, for as long as there is time, and its end marker."""
        deadline = time.monotonic() + CLOSING_SECONDS
        while not self.flush() and time.monotonic() < deadline:
            time.sleep(0.1)
        with self._lock:
            self.counters["dropped"] += self._count
        try:
            mark_worker(self.store, self.attempt, self.worker, "counters", self.counters)
        except OSError as error:
            log.warning("the closing counters could not be written: %s", error)

    def _mark(self) -> None:
        """Say that rows may come from here, before they do."""
        if self._marked:
            return
        try:
            facts = {"pid": self._pid, "host": socket.gethostname()}
            mark_worker(self.store, self.attempt, self.worker, "worker", facts)
            self._marked = True
        except OSError as error:
            self.tell(f"rows could not be written yet: {error}")

    def _write_words(self) -> bool:
        while self._words:
            try:
                leave_word(folder(self.store, self.attempt), self._words[0])
            except OSError as error:
                log.warning("what was told could not be written down yet: %s", error)
                return False
            del self._words[0]
        return True

    def _write_held(self) -> bool:
        alone = 0  # calls that are written one by one, because one of them fits no file
        while True:
            with self._lock:
                held = self._held[:1] if alone else first_of(self._held)
            if not held:
                return True
            try:
                self._write(held)
            except OSError as error:
                self.tell(f"rows could not be written yet: {error}")
                return False
            except Exception as error:  # noqa: BLE001  # rows that no file can hold: they are lost, the run is not
                if len(held) > 1:
                    alone = len(held)
                    continue
                with self._lock:
                    self.counters["dropped"] += held[0].rows
                self.tell(f"rows were lost: {type(error).__name__}: {str(error)[:200]}")
            alone = max(0, alone - 1)
            with self._lock:
                del self._held[: len(held)]
                self._count -= sum(item.rows for item in held)
                self._bytes -= sum(item.size for item in held)

    def _write(self, held: list[Held]) -> None:
        self._mark()
        steps = [item.call.step for item in held]
        if None not in steps:  # what was scored by several threads is in the order of its steps again
            held = sorted(held, key=lambda item: item.call.step or 0)
        columns, beside = columns_of(held)
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
            recorder.let_go()
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
    join_only: bool = False,
) -> Recorder:
    """This process's recorder for a run: the one it has, or a new one that opens or joins the start's attempt."""
    path = place_of(directory).absolute()
    known = _OPEN.get(path)
    if known is not None and known._open and known._pid == os.getpid():
        _refuse_late(folder(known.store, known.attempt), settings)
        if driver:
            say_driven(known.store, known.attempt)
        return known
    launch = word_of_this_start()
    store = RunDirectory.create(path)
    import_lazy_parts()
    alive: int | None = None
    with alone(store):
        attempt = joined(store, launch)
        run: Run | None = None
        if attempt is None:
            if join_only or (is_worker() and os.environ.get(OPENED) == launch):
                raise AttachError(
                    f"there is no run of this start in {path}, or whoever opened it has ended: give workers the same "
                    "directory as the driver, as an absolute path, and let the driver end last"
                )
            run = open_run(path, rank=0, ranks=1, launch=launch, **settings)
            attempt = run.attempt
            alive = held_while_alive(store, attempt)
            os.environ[OPENED] = launch
        else:
            _refuse_late(folder(store, attempt), settings)
        asked = {name: repr(settings[name]) for name in ASKED if settings.get(name)}
        facts = {"batch_size": batch_size, "seconds": seconds, "driver": driver, "asked": asked}
        make_folder(store, attempt, None if run is None else facts)
        if run is None and driver:
            say_driven(store, attempt)
    _OPEN[path] = Recorder(store, attempt, run=run, seconds=seconds, rows=rows, alive=alive)
    return _OPEN[path]


def _refuse_late(path: Path, settings: Mapping[str, Any]) -> None:
    """What is asked of a run that others have opened, and is not what they asked, would be left out in silence."""
    told = read_json(path / "capture.json").get("asked")
    asked = told if isinstance(told, dict) else {}
    for name in ASKED:
        if settings.get(name) and repr(settings[name]) != asked.get(name):
            how = "without" if name not in asked else "with another"
            raise AttachError(
                f"the run was opened by another process, or another call, {how} {name}=: open it first, with "
                f"tiltmeter.capture.open(directory, {name}=...), or give it where the run is opened"
            )


def _rejoined(path: str, launch: str, seconds: float, rows: int, fingerprint: str) -> Recorder:
    os.environ.setdefault(LAUNCH, launch)
    recorder = recorder_of(path, seconds=seconds, rows=rows, settings={"monitor": False}, join_only=True)
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


def _close_at_exit(reference: weakref.ref[Recorder]) -> None:
    recorder = reference()
    if recorder is not None:
        recorder.close()
