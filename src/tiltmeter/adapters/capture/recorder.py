"""Writes the captured rows of one process to the run directory, on a background thread.

The first process of a start opens the attempt, all others join it by the launch id in `TILTMETER_RUN`, which child
processes inherit. Joining may raise; afterwards nothing is raised, and lost rows are counted and recorded.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.adapters.arguments import Launch, read_gold, read_options
from tiltmeter.adapters.capture.reward_calls import (
    Call,
    CallScores,
    PendingCall,
    batch_columns,
    calls_for_one_file,
    text_bytes,
)
from tiltmeter.adapters.custom_loop import Run, import_lazy_parts, open_run
from tiltmeter.adapters.launch import LAUNCH, current_launch_id, is_worker, run_path
from tiltmeter.adapters.trainer_lock import existing_paths
from tiltmeter.data.batches import from_columns
from tiltmeter.errors import AttachError, Boundary, describe_error, finish_first, is_interrupt
from tiltmeter.monitor.parts import REWARD_AS_GOLD
from tiltmeter.rundir.staging.staged_rows import (
    StepBoundary,
    find_open_attempt,
    hold_opener_lock,
    make_staging_folder,
    mark_driven,
    mark_worker,
    opening_lock,
    read_settings,
    staging_folder,
    write_boundary,
    write_rows,
    write_trouble,
)
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.rundir.writer import CLOSING_SECONDS, Writer, call_if_alive

OPENED = "TILTMETER_RUN_OPENED"  # the launch id again, once a parent process has opened the run
MOST_ROWS = 65_536  # buffered while storage does not keep up; further rows are counted and dropped
MOST_BYTES = 256 << 20  # of text, the same

log = logging.getLogger("tiltmeter")


class Recorder(Writer):
    """The rows that one process has scored and not written yet: many calls per file, without their steps."""

    counter_names = ("calls", "rows", "written", "exceptions", "missing", "unread", "dropped")
    thread_name = "tiltmeter-recorder"
    unwritten = "storage did not answer: about %d rows were not written"

    def __init__(
        self,
        store: RunDirectory,
        attempt: int,
        *,
        run: Run | None,
        seconds: float,
        rows: int,
        opener_lock: int | None = None,
    ) -> None:
        self.store, self.attempt, self.run = store, attempt, run
        self.fingerprint = ""
        self.seconds, self._rows = seconds, rows
        # A file descriptor of a lock that is held while the process that opened the attempt lives.
        self._opener_lock = opener_lock
        self._reset()
        atexit.register(call_if_alive(self.close))
        os.register_at_fork(after_in_child=call_if_alive(self._become_another_worker))

    def _reset(self) -> None:
        super()._reset()
        self.worker = secrets.token_hex(6)
        self._latest = 0.0
        self._next, self._seq = 0, 0  # numbers of the next row and the next file
        self._one_by_one = 0  # calls to be written one by one, because a file of several failed
        self._announced = False

    def _become_another_worker(self) -> None:
        """A forked child has this object and neither its thread nor its locks."""
        self.run = None  # closed by the process that opened it
        self.release_opener_lock()
        self._reset()

    def __reduce__(self) -> tuple[Any, ...]:
        """Unpickled in another process, with a captured function, it is that process's recorder of the same run."""
        launch = self.store.attempt(self.attempt).get("launch", "")
        return _rejoin, (str(self.store.path), launch, self.seconds, self._rows, self.fingerprint)

    def add_call(self, call: Call, scores: CallScores, seconds: float, *, failed: bool = False) -> None:
        """Buffer the rows of one call. `failed`: it raised."""
        rows, size, why = len(call.completion), text_bytes(call), ""
        counters = {"calls": 1, "exceptions": int(failed), "rows": rows}
        counters["missing"] = sum(reward is None for reward in scores.reward)
        with self._lock:
            if not self.is_open:
                return
            if self._count + rows > MOST_ROWS or self._bytes + size > MOST_BYTES:
                counters["dropped"] = rows
                self.counters.update(self._increased(counters))
                why = "rows were dropped: storage does not keep up with the reward function"
            else:
                # Never back, even if the clock goes back: the order of a worker's rows is what places them.
                self._latest = max(self._latest, time.time())
                self._append(
                    PendingCall(call, scores, self._latest, seconds, size), rows, size, self._increased(counters)
                )
        with Boundary(self._report_failure):  # from here on the rows are the thread's
            if self._count >= self._rows and self._wake.empty():
                self._wake.put(None)
            try:
                with self._lock:
                    self._start_thread()
            except RuntimeError as error:
                if is_interrupt(error):
                    raise
                why = f"rows wait for a thread: {error}"
            if why:
                self.record_problem(why)

    def refuse(self, error: BaseException) -> None:
        """Count a call whose rows could not be read, and record that once."""
        if is_interrupt(error) and self.offered <= self._counted():
            return  # it was recorded before the interrupt came
        why = describe_error(error)
        self._count_unread(1)
        with Boundary(self._report_failure):
            self.record_problem(f"a call of the reward function was not recorded: {why}")

    def _increased(self, counters: Mapping[str, int]) -> dict[str, int]:
        return {name: self.counters[name] + more for name, more in counters.items()}

    def _count_unread(self, calls: int) -> None:
        with self._lock:
            self.counters |= self._increased({"calls": calls, "unread": calls})

    def _counted(self) -> int:
        return self.counters["calls"]

    def _unwritten(self) -> int:
        return self.counters["rows"] - self.counters["written"] - self.counters["dropped"]

    def _count_dropped(self, calls: int) -> None:
        self._count_unread(calls)
        self.record_problem(
            f"a call of the reward function was not recorded: {calls}, interrupted or with no memory to say why"
        )

    def step(self, boundary: StepBoundary) -> None:
        """Record that a step is over. Called in the driver."""

        def not_written(error: BaseException) -> None:
            self.record_problem(f"the end of step {boundary.step} was not written: {describe_error(error)}")

        with Boundary(not_written):
            write_boundary(self.store, self.attempt, boundary)
            if self.run is not None:
                self.run.keep_alive()

    def flush(self) -> bool:
        if self.run is not None:
            self.run.keep_alive()
        return super().flush()

    def close(self, timeout: float = CLOSING_SECONDS + 1.0) -> bool:
        """Write the buffered rows and the end marker of this worker; close the run if it was opened here."""
        with Boundary(self._report_failure):
            return finish_first(lambda interrupts: self._close_all(timeout))
        return False

    def _close_all(self, timeout: float) -> bool:
        closed = super().close(timeout)
        if self.run is not None:
            self.run.close()
        self.release_opener_lock()
        return closed

    def release_opener_lock(self) -> None:
        """Release the lock of the process that opened the attempt: it ends, or this is a forked child."""
        handle, self._opener_lock = self._opener_lock, None
        if handle is not None:
            os.close(handle)

    def _work(self) -> None:
        if self._pending:
            with Boundary(lambda error: None, own_thread=True):  # tried again, and recorded, with the first file
                self._announce()
        super()._work()

    def _announce(self) -> None:
        """Announce this worker before its first rows."""
        if not self._announced:
            facts = {"pid": self._pid, "host": socket.gethostname()}
            mark_worker(self.store, self.attempt, self.worker, "worker", facts)
            self._announced = True

    def _write_next(self) -> bool:
        with self._lock:
            calls = self._pending[:1] if self._one_by_one else calls_for_one_file(self._pending)
        errors: list[BaseException] = []
        with Boundary(errors.append, own_thread=True):
            self._write(calls)
        if errors and issubclass(type(errors[0]), OSError):
            self.record_problem(f"rows could not be written yet: {describe_error(errors[0])}")
            return False
        if errors and len(calls) > 1:
            self._one_by_one = len(calls)
            return True
        if errors:  # rows that cannot be encoded: they are lost, the run goes on
            why = describe_error(errors[0])
            with self._lock:
                self.counters["dropped"] += calls[0].rows
            self.record_problem(f"rows were lost: {why}")
        self._one_by_one = max(0, self._one_by_one - 1)
        self._remove(len(calls), sum(item.rows for item in calls), sum(item.size for item in calls))
        return True

    def _write(self, calls: list[PendingCall]) -> None:
        self._announce()
        steps = [item.call.step for item in calls]
        if None not in steps:  # what was scored by several threads is in the order of its steps again
            calls = sorted(calls, key=lambda item: item.call.step or 0)
        columns, extra_columns = batch_columns(calls)
        group = np.arange(len(extra_columns["key"]))
        batch = from_columns(0, group, attempt=self.attempt, fingerprint=self.fingerprint, **columns)
        write_rows(self.store, self.attempt, self.worker, self._seq, self._next, batch, extra_columns)
        self._seq, self._next = self._seq + 1, self._next + len(batch)
        with self._lock:
            self.counters["written"] += len(batch)

    def _write_problem(self, why: str) -> None:
        write_trouble(staging_folder(self.store, self.attempt), why)

    def _write_counters(self) -> None:
        mark_worker(self.store, self.attempt, self.worker, "counters", self.counters)


_RECORDERS: dict[Path, Recorder] = {}


def open_recorder(
    directory: str | os.PathLike[str],
    *,
    batch_size: int | None = None,
    driver: bool = False,
    seconds: float,
    rows: int,
    settings: Mapping[str, Any],
    join_only: bool = False,
) -> Recorder:
    """This process's recorder for a run: the existing one, or a new one that opens or joins the attempt."""
    if str(name := read_gold(settings.get("gold")).source).startswith(REWARD_AS_GOLD):
        raise AttachError(f"gold={name!r}: a captured row has no gold of its own; name a function or 'auto'")
    path = run_path(directory)
    existing = _RECORDERS.get(path)
    if existing is not None and existing.is_open:
        _refuse_late_settings(staging_folder(existing.store, existing.attempt), settings)
        if driver:
            mark_driven(existing.store, existing.attempt)
        return existing
    launch = current_launch_id()
    store = RunDirectory.create(path)
    import_lazy_parts()
    opener_lock: int | None = None
    with opening_lock(store):
        attempt, run = None, None
        for place in existing_paths(path):  # a second trainer's run is beside the first one's
            store = RunDirectory(place)
            if (attempt := find_open_attempt(store, launch)) is not None:
                break
        if attempt is None:
            if join_only or (is_worker() and os.environ.get(OPENED) == launch):
                raise AttachError(
                    f"there is no run of this start in {path}, or whoever opened it has ended: give workers the same "
                    "directory as the driver, as an absolute path, and let the driver end last"
                )
            run = open_run(path, **{**settings, "launch": Launch(0, 1, launch)})
            assert run.store is not None  # not disabled, as callers have looked up
            store, attempt = run.store, run.attempt
            opener_lock = hold_opener_lock(store, attempt)
            os.environ[OPENED] = launch
        else:
            _refuse_late_settings(staging_folder(store, attempt), settings)
        requested = _opener_parts(settings)
        facts = {"batch_size": batch_size, "seconds": seconds, "driver": driver, "asked": requested}
        make_staging_folder(store, attempt, None if run is None else facts)
        if run is None and driver:
            mark_driven(store, attempt)
    _RECORDERS[path] = Recorder(store, attempt, run=run, seconds=seconds, rows=rows, opener_lock=opener_lock)
    return _RECORDERS[path]


def _opener_parts(settings: Mapping[str, Any]) -> dict[str, str]:
    """What the opener decides and later callers may only repeat, part by part."""
    gold, options = read_gold(settings.get("gold")), read_options(settings.get("options"))
    parts = {
        "gold": gold.source, "gold.share": gold.share, "gold.steps": gold.steps, "options.plugins": options.plugins,
        "options.experiment": options.experiment,
    }  # fmt: skip
    return {name: repr(value) for name, value in parts.items() if value}


def _refuse_late_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Refuse settings that differ from those the run was opened with: they would be ignored silently."""
    requested = read_settings(path).asked
    for name, text in _opener_parts(settings).items():
        if text != requested.get(name):
            how = "without" if name not in requested else "with another"
            raise AttachError(
                f"the run was opened by another process, or another call, {how} {name}: open it first, with "
                f"tiltmeter.capture.open(directory, {name.partition('.')[0]}=...), or give it where the run is opened"
            )


def _rejoin(path: str, launch: str, seconds: float, rows: int, fingerprint: str) -> Recorder:
    os.environ.setdefault(LAUNCH, launch)
    recorder = open_recorder(path, seconds=seconds, rows=rows, settings={"monitor": False}, join_only=True)
    recorder.fingerprint = fingerprint
    return recorder


def current_recorder(directory: str | os.PathLike[str] | None = None) -> Recorder:
    """The recorder of this process; with several runs open, `directory` says which."""
    wanted = None if directory is None else run_path(directory)
    recorders = [
        recorder
        for path, recorder in _RECORDERS.items()
        if recorder.is_open and wanted in (None, path, recorder.store.path)
    ]
    if len(recorders) != 1:
        raise AttachError(
            f"{len(recorders)} captured runs are open in this process: call tiltmeter.capture.open(directory) in the "
            "driver before workers start, and name directory= where there are several"
        )
    return recorders[0]
