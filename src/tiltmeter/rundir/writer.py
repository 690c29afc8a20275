"""The writer in the trainer's process: a bounded buffer and one thread that writes it to files.

A subclass of `Writer` is a kind of record: batches of a known step here, rows without one in `adapters/capture`. If the
buffer is full, the newest batch is thinned (text and tokens are dropped, all rows and numbers stay); if thinned batches
do not fit either, it is dropped. Rows are never selected by value, and losses are counted: seen = written + thinned +
dropped once the buffer is empty.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import replace
from multiprocessing.util import Finalize
from queue import Empty, SimpleQueue
from typing import Any
from weakref import WeakMethod

import numpy as np

from tiltmeter.data.batches import from_columns, from_tensor, thin
from tiltmeter.data.records import RAGGED_COLUMNS, TEXT_COLUMNS, Ragged, RolloutBatch
from tiltmeter.rundir.store import RunDirectory

WHOLE_BATCHES = 8  # at most so many are lost by a kill; more if they are small and fit SMALL_BYTES
SMALL_BYTES = 8 << 20
SMALL_BATCHES = 128  # a bound that holds even if the size was guessed too low
WHOLE_BYTES = 256 << 20
THIN_BATCHES = 256  # a thinned batch is some 30 bytes per row
LOCKED_COPY = 4 << 20  # bytes copied in one go without letting other threads run: below 1 ms
LONGEST_PAUSE = 30.0  # seconds between two tries to write
CLOSING_SECONDS = 10.0
CLOSING_PAUSES = (0.1, 0.4)  # seconds before the closing counters are tried again

_PLAIN = (str, int, float, type(None))

log = logging.getLogger("tiltmeter")
Columns = Mapping[str, Any]


class Writer:
    """A bounded buffer and its thread. Every public method may be called from the training thread; none raises."""

    counter_names: tuple[str, ...]
    thread_name = "tiltmeter-writer"
    unwritten = "storage did not keep up: about %d batches were not written"
    seconds: float | None = None  # after which the thread writes what there is
    _write_next: Callable[[], bool]  # one file; False: it could not be written, stays, and is tried again later
    _write_problem: Callable[[str], None]
    _write_counters: Callable[[], None]

    def _reset(self) -> None:
        """Start empty and without a thread; again in a forked child, which has neither thread nor locks."""
        self.counters = dict.fromkeys(self.counter_names, 0)
        self._pid = os.getpid()
        self._pending: list[Any] = []
        self._count = self._bytes = 0  # of what counts towards the bounds, until it is written or dropped
        self._problems: list[str] = []  # messages still to be written
        self._lock = threading.Lock()  # guards the accounts above for a few instructions, never during I/O
        self._wake: SimpleQueue[None] = SimpleQueue()  # to `put` takes a tenth of the time of an event's `set`
        self._writing, self._closing = threading.Lock(), threading.Event()  # one file at a time
        self._thread: threading.Thread | None = None

    @property
    def is_open(self) -> bool:
        return not self._closing.is_set() and os.getpid() == self._pid

    def flush(self) -> bool:
        """Write the buffer now; whether all could be. For tests and at the end: the thread does it by itself."""
        with self._writing:
            written, reported = True, self._write_problems()
            while written and self._pending:
                written, reported = self._write_next(), self._write_problems()
            return written and reported

    def close(self, timeout: float = CLOSING_SECONDS) -> bool:
        """Flush for at most `timeout` seconds and leave the closing counters; whether all of it was written."""
        with self._lock:
            if not self.is_open:
                return False
            self._closing.set()
        self._wake.put(None)
        if self._thread is None:
            self._finish()
            return True
        self._thread.join(timeout)  # a write that hangs must not keep the process
        if alive := self._thread.is_alive():
            log.warning(self.unwritten, max(self._count, len(self._pending)))
        return not alive

    def _append(self, record: Any, count: int, size: int) -> None:  # the lock must be held
        self._pending.append(record)
        self._count, self._bytes = self._count + count, self._bytes + size

    def _remove(self, records: int, count: int, size: int) -> None:
        with self._lock:
            del self._pending[:records]
            self._count, self._bytes = self._count - count, self._bytes - size

    def _start_thread(self) -> None:
        """Start the thread if it does not run; the lock must be held. Raises `RuntimeError` if there can be none."""
        if self._thread is None:
            thread = threading.Thread(target=self._work, name=self.thread_name, daemon=True)
            thread.start()
            self._thread = thread
            # Children of multiprocessing leave without the interpreter's own exit.
            Finalize(None, call_if_alive(self.close), exitpriority=10)

    def _work(self) -> None:
        pause = 0.0
        while self.is_open:
            with suppress(Empty):
                self._wake.get(timeout=self.seconds)
            if self.is_open and self.flush():
                pause = 0.0
            else:  # wait longer before each retry
                pause = min(LONGEST_PAUSE, max(0.5, 2.0 * pause))
                self._closing.wait(pause)
        self._finish()

    def _finish(self) -> None:
        """Write the last records, as long as there is time, and the closing counters: the last file, so retried."""
        deadline = time.monotonic() + CLOSING_SECONDS
        while not self.flush() and time.monotonic() < deadline:
            time.sleep(0.1)
        with self._lock:
            self.counters["dropped"] += self._count
        for pause in (*CLOSING_PAUSES, None):
            try:
                self._write_counters()
                return
            except OSError as error:
                if pause is None:
                    log.warning("the closing counters could not be written: %s", error)
                else:
                    time.sleep(pause)

    def _write_problems(self) -> bool:
        while self._problems:
            try:
                self._write_problem(self._problems[0])
            except OSError as error:
                log.warning("a problem could not be recorded yet: %s", error)
                return False
            del self._problems[0]
        return True


class StepWriter(Writer):
    """One rank's batches: whole or thinned, one file each."""

    counter_names = ("seen", "written", "thinned", "dropped", "bytes_lost", "unsynced")

    def __init__(
        self,
        run: RunDirectory,
        attempt: int,
        rank: int,
        facts: Mapping[str, Any],
        *,
        precision: str = "fp32",
        wait: bool = False,
        after_write: Callable[[], None] | None = None,
    ) -> None:
        self.run, self.attempt, self.rank = run, attempt, rank
        self.faults: list[str] = []  # the last few reasons, for the next file's metadata
        self._facts, self._precision, self._wait = dict(facts), precision, wait
        self._after_write, self._warned = after_write or (lambda: None), False
        self._reset()
        self._start_thread()

    def offer(self, item: RolloutBatch | Columns) -> None:
        """Enqueue a batch, thinned if the queue is full, and return at once."""
        size = nbytes(item)
        while not (whole := self._fits(size)) and self._wait:
            time.sleep(0.005)
        if not whole and len(self._pending) > self._count + THIN_BATCHES:
            self._count_lost(size, "the queue is full: storage does not keep up", seen=1)
            return
        record = (item if whole else thin_columns(item), size, whole)
        with self._lock:
            self.counters["seen"] += 1
            self._append(record, int(whole), size if whole else 0)
        self._wake.put(None)

    def _fits(self, size: int) -> bool:
        waiting, queued_bytes = self._count, self._bytes + size
        large = waiting < WHOLE_BATCHES and queued_bytes <= max(WHOLE_BYTES, size)
        return large or (waiting < SMALL_BATCHES and queued_bytes <= SMALL_BYTES)

    def refuse(self, error: BaseException) -> None:
        """Count a batch that could not even be queued."""
        self._count_lost(0, error, seen=1)
        self._wake.put(None)  # so that the thread reports it

    def _write_next(self) -> bool:
        item, size, whole = self._pending[0]
        try:
            self._store(item, size, whole)
        except Exception as error:  # noqa: BLE001  # the boundary of the trainer's process: a batch is lost, the run is not
            self._count_lost(size, error)
        self._remove(1, int(whole), size if whole else 0)
        try:
            self._after_write()
        except Exception as error:  # noqa: BLE001  # a failed restart of the monitor must not stop the writer
            log.warning("the monitor could not be restarted: %s: %s", type(error).__name__, error)
        return True

    def _store(self, item: RolloutBatch | Columns, size: int, whole: bool) -> None:
        batch = item if isinstance(item, RolloutBatch) else from_columns(**item)
        if batch.attempt != self.attempt:
            batch = replace(batch, attempt=self.attempt)
        if whole:
            try:
                self._write(batch, "written")
                return
            except OSError as error:
                self._add_fault(f"whole batch not written: {error}")
                batch = thin(batch)  # numbers are small; a nearly full disk may still take them
        self._write(batch, "thinned")
        with self._lock:
            self.counters["bytes_lost"] += size

    def _write(self, batch: RolloutBatch, counter: str) -> None:
        facts = {
            **self._facts,
            "counters": {**self.counters, counter: self.counters[counter] + 1},
            "faults": self.faults[-5:],
            "thinned": counter == "thinned",
            "time": time.time(),
        }
        synced = self.run.write(batch, self.rank, facts, self._precision)
        self.counters[counter] += 1
        if not synced:
            self.counters["unsynced"] += 1
            self._add_fault("a directory could not be synced: a power cut may lose the newest file")

    def _write_problem(self, why: str) -> None:
        try:
            self.run.report_trouble(self.attempt, self.rank, why)
        except OSError as error:  # not tried again, so that no batch waits for it: the next file has the count
            log.warning("a lost batch could not be reported: %s", error)

    def _write_counters(self) -> None:
        self.run.close_rank(self.attempt, self.rank, {**self.counters, "why": (self.faults or [""])[-1]})

    def _count_lost(self, size: int, why: str | BaseException, *, seen: int = 0) -> None:
        with self._lock:
            self.counters["seen"] += seen
            self.counters["dropped"] += 1
            self.counters["bytes_lost"] += size
        self._add_fault(why if isinstance(why, str) else describe_error(why))
        if not isinstance(why, str) and not self._problems:  # a full queue is told by the next file
            self._problems.append(f"a batch was not stored: {self.faults[-1]}")

    def _add_fault(self, why: str) -> None:
        self.faults = [*self.faults[-4:], why]
        if not self._warned:
            self._warned = True
            log.warning("a batch could not be kept whole (%s); training goes on, the count is shown with the run", why)


def call_if_alive(method: Callable[[], Any]) -> Callable[[], None]:
    """A callback for the end of the process, or a fork, that does not keep the method's object alive until then."""
    reference = WeakMethod(method)

    def call() -> None:
        if (alive := reference()) is not None:
            alive()

    return call


def describe_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"


def copy_columns(item: Columns) -> dict[str, Any]:
    """The columns with numeric data copied, because trainers reuse buffers; strings cannot change and stay shared."""
    return {name: _copy(value) for name, value in item.items()}


def thin_columns(item: RolloutBatch | Columns) -> RolloutBatch | Columns:
    """The columns without text and tokens; lengths are kept, computed from the tokens if necessary."""
    if isinstance(item, RolloutBatch):
        return thin(item)
    columns = {name: value for name, value in item.items() if name not in (*TEXT_COLUMNS, *RAGGED_COLUMNS)}
    rows = item.get("tokens") if item.get("tokens") is not None else item.get("logprob")
    if columns.get("length") is None and rows is not None:
        columns["length"] = rows.lengths if isinstance(rows, Ragged) else [len(row) for row in rows]
    return columns


def nbytes(item: RolloutBatch | Columns) -> int:
    """About how much memory a batch holds. It runs on the training thread and must be fast: a list counts as if
    each of its items were as large as the largest of three samples."""
    columns = vars(item).values() if isinstance(item, RolloutBatch) else item.values()
    total = 0
    for value in columns:
        size = getattr(value, "nbytes", None)
        if size is None and type(value) in (list, tuple) and value:
            size = len(value) * max(map(_item_bytes, (value[0], value[len(value) // 2], value[-1])))
        total += size or 64
    return total


def _item_bytes(value: Any) -> int:
    return len(value) + 56 if type(value) is str else 8 * len(value) if hasattr(value, "__len__") else 8


def _copy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _copy_array(value)
    if isinstance(value, Ragged):
        twin = copy(value)  # not by its constructor, whose checks have been made and would let go of the lock
        object.__setattr__(twin, "values", _copy_array(value.values))
        object.__setattr__(twin, "offsets", _copy_array(value.offsets))
        return twin
    if isinstance(value, (list, tuple)):
        nested = bool(value) and not isinstance(value[0], _PLAIN)
        return [_copy(part) for part in value] if nested else list(value)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, (dict, Mapping)):
        return {name: _copy(part) for name, part in value.items()}
    if hasattr(value, "__array__") and not np.isscalar(value):
        return _copy_array(from_tensor(value))  # a tensor: always a copy, and never one of its storage
    return value


def _copy_array(array: Any) -> Any:
    """A copy that nobody else holds. `ndarray.copy` lets go of the interpreter lock, and with our own thread busy,
    getting it back takes up to the switch interval of 5 ms: twenty times the copy. `tobytes` keeps it."""
    plain = type(array) is np.ndarray and array.dtype.kind in "biuf" and array.flags.c_contiguous
    if plain and array.nbytes <= LOCKED_COPY:
        return np.ndarray(array.shape, array.dtype, array.tobytes())
    return array.copy()
