"""The writer in the trainer's process: a bounded queue and one thread that writes batches to files.

`offer` enqueues a batch and returns: no I/O and no waiting. If the queue is full, the newest batch is thinned (text and
tokens are dropped, all rows and numbers stay); if thinned batches do not fit either, it is dropped. Rows are never
selected by value, and both are counted: seen = written + thinned + dropped once the queue is empty.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import replace
from typing import Any

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
FLUSH_SECONDS = 10.0
CLOSING_PAUSES = (0.1, 0.4)  # seconds before the closing counters are tried again

_PLAIN = (str, int, float, type(None))

log = logging.getLogger("tiltmeter")
Columns = Mapping[str, Any]
WAKE: tuple[Any, int, bool] = ({}, 0, True)  # an entry that holds no batch


class Writer:
    """One rank's queue and thread. Every public method may be called from the training thread; none raises."""

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
        self.counters = {"seen": 0, "written": 0, "thinned": 0, "dropped": 0, "bytes_lost": 0, "unsynced": 0}
        self.faults: list[str] = []  # the last few reasons, for the next file's metadata
        self._facts, self._precision, self._wait = dict(facts), precision, wait
        self._after_write = after_write
        self._queue: queue.SimpleQueue[tuple[RolloutBatch | Columns, int, bool] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()  # guards the accounts below for a few instructions, never during I/O
        self._put = [0, 0]  # whole batches and their bytes, ever put; written by callers
        self._got = [0, 0]  # the same, ever finished; written by the thread
        self._warned = False
        self._thread = threading.Thread(target=self._work, name="tiltmeter-writer", daemon=True)
        self._thread.start()

    def offer(self, item: RolloutBatch | Columns) -> None:
        """Enqueue a batch, thinned if the queue is full, and return at once."""
        size = nbytes(item)
        while True:
            with self._lock:
                waiting, queued_bytes = self._put[0] - self._got[0], self._put[1] - self._got[1] + size
                whole = waiting < WHOLE_BATCHES and queued_bytes <= max(WHOLE_BYTES, size)
                whole = whole or (waiting < SMALL_BATCHES and queued_bytes <= SMALL_BYTES)
                if whole or not self._wait:
                    self.counters["seen"] += 1
                    if whole:
                        self._put[0] += 1
                        self._put[1] += size
                    break
            time.sleep(0.005)
        if whole:
            self._queue.put((item, size, False))
        elif self._queue.qsize() < waiting + THIN_BATCHES:
            self._queue.put((thin_columns(item), size, True))
        else:
            self._count_lost("dropped", size, "the queue is full: storage does not keep up")

    def refuse(self, error: BaseException) -> None:
        """Count a batch that could not even be queued."""
        with self._lock:
            self.counters["seen"] += 1
        self._count_lost("dropped", 0, f"{type(error).__name__}: {str(error)[:200]}")
        self._queue.put(WAKE)  # so that the thread reports it

    def close(self, timeout: float = FLUSH_SECONDS) -> bool:
        """Flush for at most `timeout` seconds and leave the closing counters; whether all of it was written."""
        self._queue.put(None)
        self._thread.join(timeout)
        if self._thread.is_alive():
            log.warning("storage did not keep up: about %d batches were not written", self._queue.qsize())
        return not self._thread.is_alive()

    def _work(self) -> None:
        while (entry := self._queue.get()) is not None:
            if entry is WAKE:
                self._report_trouble()
                continue
            item, size, thinner = entry
            try:
                self._store(item, size, thinner)
            except Exception as error:  # noqa: BLE001  # the boundary of the trainer's process: a batch is lost, the run is not
                self._count_lost("dropped", size, f"{type(error).__name__}: {str(error)[:200]}")
                self._report_trouble()
            finally:
                if not thinner:
                    self._got[0] += 1
                    self._got[1] += size
            try:
                if self._after_write is not None:
                    self._after_write()
            except Exception as error:  # noqa: BLE001  # a failed restart of the monitor must not stop the writer
                log.warning("the monitor could not be restarted: %s: %s", type(error).__name__, error)
        # A lost batch is reported in the next file; these counters are the last file, so they are retried.
        for pause in (*CLOSING_PAUSES, None):
            try:
                self.run.close_rank(self.attempt, self.rank, {**self.counters, "why": (self.faults or [""])[-1]})
                return
            except OSError as error:
                if pause is None:
                    log.warning("the closing counters could not be written: %s", error)
                else:
                    time.sleep(pause)

    def _report_trouble(self) -> None:
        try:
            self.run.report_trouble(self.attempt, self.rank, f"a batch was not stored: {self.faults[-1]}")
        except OSError as error:
            log.warning("a lost batch could not be reported: %s", error)

    def _store(self, item: RolloutBatch | Columns, size: int, thinner: bool) -> None:
        batch = item if isinstance(item, RolloutBatch) else from_columns(**item)
        if batch.attempt != self.attempt:
            batch = replace(batch, attempt=self.attempt)
        if not thinner:
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
        counters = {**self.counters, counter: self.counters[counter] + 1}
        facts = {
            **self._facts,
            "counters": counters,
            "faults": self.faults[-5:],
            "thinned": counter == "thinned",
            "time": time.time(),
        }
        synced = self.run.write(batch, self.rank, facts, self._precision)
        self.counters[counter] += 1
        if not synced:
            self.counters["unsynced"] += 1
            self._add_fault("a directory could not be synced: a power cut may lose the newest file")

    def _count_lost(self, counter: str, size: int, why: str) -> None:
        with self._lock:
            self.counters[counter] += 1
            self.counters["bytes_lost"] += size
        self._add_fault(why)

    def _add_fault(self, why: str) -> None:
        self.faults = [*self.faults[-4:], why]
        if not self._warned:
            self._warned = True
            log.warning("a batch could not be kept whole (%s); training goes on, the count is shown with the run", why)


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
