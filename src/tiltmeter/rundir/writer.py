"""The writer in the trainer's process: a bounded buffer and one thread that writes it to files.

A subclass of `Writer` is a kind of record: batches of a known step here, rows without one in `adapters/capture`. If the
buffer is full, the newest batch is thinned (text and tokens are dropped, all rows and numbers stay); if thinned batches
do not fit either, it is dropped. Rows are never selected by value, and losses are counted: seen = written + thinned +
dropped once the buffer is empty. Nothing ends the thread but `close`; if something does, it is started again.

A signal handler may raise on the training thread between any two calls here. So what ends a run is done by the thread
that no handler runs in, and the accounts are changed where no call is made: all of them or none.
"""

from __future__ import annotations

import logging
import math
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.util import Finalize
from queue import Empty, SimpleQueue
from typing import Any, Literal
from weakref import WeakMethod

from tiltmeter.data.batches import thin
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import Boundary, describe_error, finish_first, is_interrupt
from tiltmeter.rundir.column_copies import Columns, LostColumns, build_batch, nbytes, thin_columns
from tiltmeter.rundir.store import RunDirectory

WHOLE_BATCHES = 8  # at most so many are lost by a kill; more if they are small and fit SMALL_BYTES
SMALL_BYTES = 8 << 20
SMALL_BATCHES = 128  # a bound that holds even if the size was guessed too low
WHOLE_BYTES = 256 << 20
THIN_BATCHES = 256  # a thinned batch is some 30 bytes per row
LOOK_AT = 2  # batches that wait before anybody looks whether the thread lives: to look takes as long as to queue one
WAIT_SECONDS = 60.0  # that on_full="wait" waits for storage that does not move at all
LONGEST_PAUSE = 30.0  # seconds between two tries to write
CLOSING_SECONDS = 10.0
ACCOUNTS_SECONDS = 1.0  # of them, which are for the closing counters
HURRY_SECONDS = 1.0  # to write in that are left after a second interrupt of the end
CLOSING_LOOK = (
    0.002  # seconds between two looks whether the thread is done: to wait for it is not safe where handlers raise
)
NOT_STORED = "a batch was not stored"  # the kind of problem that `RANK.trouble.json` tells of
CLOSING_PAUSES = (0.1, 0.4)  # seconds before the closing counters are tried again

log = logging.getLogger("tiltmeter")


class Writer:
    """A bounded buffer and its thread. Every public method may be called from the training thread; none raises."""

    counter_names: tuple[str, ...]
    thread_name = "tiltmeter-writer"
    unwritten = "storage did not keep up: about %d batches were not written"
    seconds: float | None = None  # after which the thread writes what there is
    _write_next: Callable[[], bool]  # one file; False: it could not be written, stays, and is tried again later
    _write_problem: Callable[[str], None]
    _write_counters: Callable[[], None]
    _unwritten: Callable[[], int]  # what was seen and is neither written nor dropped
    _count_dropped: Callable[[int], None]  # what nobody could say more of, once there is memory and stack again
    _counted: Callable[[], int]  # of those `offered`

    def _reset(self) -> None:
        """Start empty and without a thread; again in a forked child, which has neither thread nor locks."""
        self.counters = dict.fromkeys(self.counter_names, 0)
        self.uncounted = 0  # errors that could not be counted where they were met; see `Boundary`
        self.offered = (
            0  # what training handed over; raised before the first call, so that no interrupt comes before it
        )
        self._pid = os.getpid()
        self._pending: list[Any] = []
        self._count = self._bytes = 0  # of what counts towards the bounds, until it is written or dropped
        self._problems: list[str] = []  # messages still to be written
        self._problem_kinds: set[str] = set()  # kinds of problems that were recorded
        # Guards the accounts above for a few instructions, never during I/O. Reentrant: a signal handler, or the end of
        # some object, may call us while it is held.
        self._lock = threading.RLock()
        self._wake: SimpleQueue[None] = SimpleQueue()  # to `put` takes a tenth of the time of an event's `set`
        self._writing = threading.RLock()  # one file at a time
        self._thread: threading.Thread | None = None
        # Plain attributes and no `Event`, whose lock stays taken if a handler raises in the middle of it.
        self._closes = self._is_finished = False
        self._write_until = self._wait_until = math.inf  # monotonic seconds, once it closes

    @property
    def is_open(self) -> bool:
        return not self._closes and os.getpid() == self._pid

    def flush(self) -> bool:
        """Write the buffer now; whether all could be. For tests and at the end: the thread does it by itself."""
        with self._writing:
            if self.uncounted:
                lost, self.uncounted = self.uncounted, 0
                self._count_missing(lost)
            written, reported = True, self._write_problems()
            while written and self._pending:
                if time.monotonic() >= self._write_until:
                    return False
                written, reported = self._write_next(), self._write_problems()
            return written and reported

    def _count_missing(self, most: float) -> None:
        """Count as dropped what was handed over and is in no account."""
        if (missing := min(most, self.offered - self._counted())) > 0:
            self._count_dropped(int(missing))

    def close(self, timeout: float = CLOSING_SECONDS) -> bool:
        """Flush for at most `timeout` seconds and leave the closing counters; whether all of it was written.

        What signal handlers raise meanwhile is raised when this is done. After a second time `HURRY_SECONDS` are left,
        and what is not written by then is counted as lost.
        """
        with Boundary(self._report_failure):
            return finish_first(lambda interrupts: self._end(timeout, interrupts))
        return False

    def _end(self, timeout: float, interrupts: int) -> bool:
        """Let the thread finish, and wait for it. May be called again, by whoever was interrupted here."""
        if os.getpid() != self._pid or self._is_finished:
            return self._is_finished
        with self._lock:
            if not self._closes:
                self._wait_until = time.monotonic() + timeout
                self._write_until = self._wait_until - min(ACCOUNTS_SECONDS, timeout / 2.0)
                self._closes = True
            if self._thread is not None:
                self._start_thread()  # one that died cannot finish
        if interrupts > 1:
            hurry = time.monotonic() + HURRY_SECONDS
            self._write_until = min(self._write_until, hurry)
            self._wait_until = min(self._wait_until, hurry + ACCOUNTS_SECONDS)
        self._wake.put(None)
        if self._thread is None:
            self._finish()
        while not self._is_finished and time.monotonic() < self._wait_until:  # a write that hangs must not keep us
            time.sleep(CLOSING_LOOK)
        if not self._is_finished:
            log.warning(self.unwritten, max(self._count, len(self._pending)))
        return self._is_finished

    def record_problem(self, why: str) -> None:
        """Record a problem in the run, once per kind; the monitor makes it a fault. Written by the thread, because the
        file is fsynced and the trainer must not wait for that."""
        kind = why.split(":")[0]
        with self._lock:
            if kind in self._problem_kinds:
                return
            self._problem_kinds.add(kind)
            self._problems.append(why)
            if self.is_open:
                try:
                    self._start_thread()
                except RuntimeError as error:
                    if is_interrupt(error):
                        raise
        log.warning("%s", why)
        self._wake.put(None)

    def _append(self, record: Any, count: int, size: int, counters: Mapping[str, int]) -> None:
        """Queue a record with its accounts, `counters` as they are then. The lock must be held."""
        count, size, records = self._count + count, self._bytes + size, [record]
        # All or nothing: nothing below needs memory once the first line has it, and no handler runs without a call.
        self._pending += records
        self.counters |= counters
        self._count, self._bytes = count, size

    def _remove(self, records: int, count: int, size: int) -> None:
        with self._lock:
            del self._pending[:records]
            self._count, self._bytes = self._count - count, self._bytes - size

    def _start_thread(self) -> None:
        """Start the thread if it does not run; the lock must be held. Raises `RuntimeError` if there can be none."""
        if self._thread is not None and self._thread.is_alive():
            return
        first, thread = self._thread is None, threading.Thread(target=self._work, name=self.thread_name, daemon=True)
        thread.start()
        self._thread = thread
        if first:  # Children of multiprocessing leave without the interpreter's own exit.
            Finalize(None, call_if_alive(self.close), exitpriority=10)
        else:
            self.record_problem("the writer's thread ended and was started again: what it held is written now")

    def _work(self) -> None:
        pause = 0.0
        while self.is_open:
            written = False
            with Boundary(self._report_failure, own_thread=True):
                with suppress(Empty):
                    self._wake.get(timeout=self.seconds)
                with self._lock:
                    pass  # whoever woke us is queueing a record
                written = self.is_open and self.flush()
            if written:
                pause = 0.0
            else:  # wait longer before each retry
                pause = min(LONGEST_PAUSE, max(0.5, 2.0 * pause))
                again = time.monotonic() + pause
                while self.is_open and time.monotonic() < again:
                    time.sleep(0.05)
        with Boundary(self._report_failure, own_thread=True):
            self._finish()
        self._is_finished = True  # as far as it could be

    def _report_failure(self, error: BaseException) -> None:
        """For what lost no record. An interrupt on the trainer's thread is none of ours."""
        if threading.current_thread() is self._thread or not is_interrupt(error):
            self.record_problem(f"the writer failed and goes on: {describe_error(error)}")

    def _finish(self) -> None:
        """Write the last records, as long as there is time, and the closing counters: the last file, so retried. What
        was begun before an interrupt is not done twice."""
        own_thread = threading.current_thread() is self._thread
        with self._writing:
            while not self._is_finished:
                written = False
                with Boundary(self._report_failure, own_thread=own_thread):
                    written = self.flush()
                if written or time.monotonic() >= self._write_until:
                    break
                time.sleep(0.1)
            with self._lock:  # what is in no account is lost, whatever became of it
                self._count_missing(math.inf)
                self.counters["dropped"] += max(0, self._unwritten())
            with Boundary(self._report_failure, own_thread=own_thread):
                self._write_problems()
            for pause in (*CLOSING_PAUSES, None):
                if self._is_finished:
                    return
                try:
                    self._write_counters()
                    self._is_finished = True
                except FileExistsError:
                    self._is_finished = True  # written, and interrupted before that was noted
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


@dataclass(slots=True, eq=False)
class QueuedBatch:
    """A batch that waits for the thread, and how far the thread has come with it."""

    item: RolloutBatch | Columns
    size: int
    whole: bool
    lost: LostColumns  # columns that are not in it
    state: Literal["waiting", "begun", "counted"] = "waiting"


class StepWriter(Writer):
    """One rank's batches: whole or thinned, one file each."""

    counter_names = ("seen", "written", "thinned", "dropped", "bytes_lost", "unsynced", "columns_lost")

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
        self._stuck_at: QueuedBatch | None = None  # the record that storage did not take for WAIT_SECONDS
        self._reset()
        self._start_thread()

    def offer(self, item: RolloutBatch | Columns, lost: LostColumns | None = None) -> None:
        """Enqueue a batch, thinned if the queue is full, and return at once. `lost`: columns that are not in it.

        Raises if it could not; it is then not counted. Whoever calls this has a `Boundary` that counts.
        """
        size = nbytes(item)
        whole = self._fits(size) or (self._wait and self._wait_for_room(size))
        if not whole and len(self._pending) > self._count + THIN_BATCHES:
            self._count_lost(size, "the queue is full: storage does not keep up", seen=1)
            return
        record = QueuedBatch(item if whole else thin_columns(item), size, whole, {} if lost is None else lost)
        with self._lock:
            self._wake.put(None)  # first, because it may fail; the thread waits for the lock
            self._append(record, int(whole), size if whole else 0, {"seen": self.counters["seen"] + 1})
        if len(self._pending) > LOOK_AT and not (self._thread and self._thread.is_alive()):
            with Boundary(self._report_failure), self._lock:  # the batch is queued, whatever becomes of this
                self._start_thread()

    def _fits(self, size: int) -> bool:
        waiting, queued_bytes = self._count, self._bytes + size
        large = waiting < WHOLE_BATCHES and queued_bytes <= max(WHOLE_BYTES, size)
        return large or (waiting < SMALL_BATCHES and queued_bytes <= SMALL_BYTES)

    def _wait_for_room(self, size: int) -> bool:
        """Wait until a batch fits; not on our own thread, and not for storage that has not moved for long."""
        first, deadline = self._pending[:1], time.monotonic() + WAIT_SECONDS
        while not self._fits(size):
            with self._lock:
                self._start_thread()
            now = self._pending[:1]
            if now and first and now[0] is not first[0]:
                first, deadline = now, time.monotonic() + WAIT_SECONDS
            if (now and now[0] is self._stuck_at) or threading.current_thread() is self._thread:
                return False
            if time.monotonic() > deadline:
                self._stuck_at = now[0] if now else None
                self._add_fault(f"storage took nothing for {WAIT_SECONDS:g} s: training goes on without waiting")
                return False
            time.sleep(0.005)
        return True

    def refuse(self, error: BaseException) -> None:
        """Count a batch that could not even be queued; not one that was, before an interrupt came."""
        if is_interrupt(error) and self.offered <= self._counted():
            return
        self._count_lost(0, error, seen=1)
        with Boundary(lambda error: None):  # it is counted
            self._wake.put(None)  # so that the thread reports it

    def _write_next(self) -> bool:
        record: QueuedBatch = self._pending[0]
        if record.state == "waiting":
            record.state = "begun"
            with Boundary(lambda error: self._count_lost(record.size, error), own_thread=True):
                self._store(record)
        elif record.state == "begun":  # something ended the thread meanwhile: it must not do so again
            self._count_lost(record.size, "the writer's thread ended while this was written")
        record.state = "counted"
        self._remove(1, int(record.whole), record.size if record.whole else 0)
        with Boundary(self._report_restart, own_thread=True):
            self._after_write()
        return True

    def _report_restart(self, error: BaseException) -> None:
        log.warning("the monitor could not be restarted: %s", describe_error(error))

    def _store(self, record: QueuedBatch) -> None:
        item, lost = record.item, record.lost
        batch = item if isinstance(item, RolloutBatch) else build_batch(item, lost)
        if lost:
            why = "; ".join(f"{name}: {error}" for name, error in lost.items())[:300]
            with self._lock:
                self.counters["columns_lost"] += len(lost)
            self._add_fault(f"columns were left out: {why}")
            self.record_problem(f"columns were left out: of step {batch.step}: {why}")
        if batch.attempt != self.attempt:
            batch = replace(batch, attempt=self.attempt)
        if record.whole:
            try:
                self._write(batch, "written")
                return
            except OSError as error:
                self._add_fault(f"whole batch not written: {error}")
                batch = thin(batch)  # numbers are small; a nearly full disk may still take them
        self._write(batch, "thinned")
        with self._lock:
            self.counters["bytes_lost"] += record.size

    def _write(self, batch: RolloutBatch, counter: str) -> None:
        facts = {
            **self._facts,
            "counters": {**self.counters, counter: self.counters[counter] + 1},
            "faults": self.faults[-5:],
            "thinned": counter == "thinned",
            "time": time.time(),
        }
        synced = self.run.write(batch, self.rank, facts, self._precision)
        with self._lock:
            self.counters[counter] += 1
        if not synced:
            self.counters["unsynced"] += 1
            self._add_fault("a directory could not be synced: a power cut may lose the newest file")

    def _write_problem(self, why: str) -> None:
        kind = why.split(":")[0]
        name = "" if kind == NOT_STORED else re.sub(r"[^a-z]+", "-", kind)
        try:
            self.run.report_trouble(self.attempt, self.rank, why, name)
        except FileExistsError:
            pass  # another thread was first
        except OSError as error:  # not tried again, so that no batch waits for it: the next file has the count
            self._problem_kinds.discard(kind)
            log.warning("a lost batch could not be reported: %s", error)

    def _write_counters(self) -> None:
        self.run.close_rank(self.attempt, self.rank, {**self.counters, "why": (self.faults or [""])[-1]})

    def _counted(self) -> int:
        return self.counters["seen"]

    def _unwritten(self) -> int:
        counts = self.counters
        return counts["seen"] - counts["written"] - counts["thinned"] - counts["dropped"]

    def _count_dropped(self, batches: int) -> None:
        for _ in range(batches):
            self._count_lost(
                0, RuntimeError("a batch was interrupted, or there was no memory or stack to say why"), seen=1
            )

    def _count_lost(self, size: int, why: str | BaseException, *, seen: int = 0) -> None:
        text = why if type(why) is str else describe_error(why)  # type: ignore[arg-type]  # an error may lie about its class
        with self._lock:
            counters = self.counters
            changed = {
                "seen": counters["seen"] + seen,
                "dropped": counters["dropped"] + 1,
                "bytes_lost": counters["bytes_lost"] + size,
            }
            self.counters |= changed
        with Boundary(lambda error: None):  # it is counted, and told with the next file
            self._add_fault(text)
            if text is not why and not self._problems:  # a full queue is told by the next file
                self._problems.append(f"{NOT_STORED}: {text}")

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
