"""The rows of one attempt that are not assigned to a step yet, by worker, as read from the staging folder."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from tiltmeter.data.records import Floats, Ints
from tiltmeter.errors import StoreError
from tiltmeter.rundir.run_path import entries, remove
from tiltmeter.rundir.sidecar import read_sidecar
from tiltmeter.rundir.staging.staged_rows import (
    BOUNDARY,
    ROWS,
    WORKER,
    CaptureSettings,
    StepBoundary,
    WorkerNote,
    read_boundary,
    read_order,
    read_settings,
    report_trouble,
    staging_folder,
)
from tiltmeter.rundir.store import RunDirectory

FLUSH_SECONDS = 1.0  # default interval after which a worker writes its rows
SILENT_SECONDS = 600.0  # without a file for so long, a worker that has not closed is considered lost
RETRY_SECONDS = 60.0  # how long reading a file is retried after an I/O error


@dataclass(slots=True)
class WorkerBuffer:
    """One worker's rows and how many of them are assigned to steps; rows are numbered over the worker's life."""

    files: list[tuple[Path, int, int]] = field(default_factory=list)  # path, first row, end row (exclusive)
    start: int = 0  # number of the first row in `times`
    times: Floats = field(default_factory=lambda: np.zeros(0))
    steps: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    next_row: int = 0
    closed: bool = False
    written: int = -1  # total rows, known once it has closed
    broken: bool = False  # one of its files could not be read
    last_seen: float = 0.0  # time of its last file, by this process's clock
    pid: int = 0  # of a worker on this machine; 0: elsewhere

    @property
    def stop(self) -> int:
        return self.start + len(self.times)

    def row_at(self, moment: float, side: str = "right") -> int:
        """The first row after `moment`, but never one that is assigned already."""
        offset = int(np.searchsorted(self.times, moment, side))  # type: ignore[call-overload]
        return max(self.next_row, self.start + offset)


@dataclass(frozen=True, slots=True)
class StepRows:
    """The rows of one step by worker, and up to which row each worker is then read; others belong to no step."""

    step: int
    by: str
    end: float
    rows: Mapping[str, Ints]
    upto: Mapping[str, int]
    scalars: Mapping[str, float] = field(default_factory=dict)
    late: int = 0


class PendingRows:
    """The rows of one attempt that are in no step file yet, by worker, and the step boundaries the driver wrote.

    The newest step file records how far each worker was read, so a restarted monitor continues there.
    """

    def __init__(self, run: RunDirectory, attempt: int, clock: Callable[[], float]) -> None:
        self.run, self.attempt, self._clock = run, attempt, clock
        self.path = staging_folder(run, attempt)
        self.by_worker: dict[str, WorkerBuffer] = {}
        self.settings = CaptureSettings()
        self.boundaries: dict[int, StepBoundary] = {}
        self.driver = False
        self._first_seen: dict[str, float] = {}  # file name to time first seen, by this process's clock
        self._refreshed = False
        self._some_removed = False  # a worker that had closed, with all rows assigned, was removed
        self._unreadable_since: dict[Path, float] = {}  # files that cannot be read at the moment, since when
        self.last, self.end, self.by, self.upto = self._read_progress()

    def _read_progress(self) -> tuple[int, float, str, dict[str, int]]:
        """The newest step, its end time, how it was found, and how far each worker was read, from its step file."""
        files = self.run.files(self.attempt)
        if files:
            progress = self.run.read(files[-1], ("group",))[1].get("placed", {})
            return (
                files[-1].step,
                float(progress.get("end", 0.0)),
                str(progress.get("by", "")),
                dict(progress.get("upto", {})),
            )
        return -1, 0.0, "", {}

    def refresh(self, *, over: bool = False) -> None:
        """Read what is new in the staging folder, each worker's files in order. `over`: the attempt has ended."""
        now = self._clock()
        if over:
            self._first_seen.setdefault("over", now)
        if self.settings == CaptureSettings():
            self.settings = read_settings(self.path)
        for name in sorted(entry.name for entry in entries(self.path)):
            if name in self._first_seen:
                continue
            if match := WORKER.fullmatch(name):
                self._first_seen[name] = now
                self._read_worker_file(match[1], match[2], self.path / name)
            self.driver = self.driver or name == "driver.json"
            if (match := ROWS.fullmatch(name)) and self._add_file(match[1], self.path / name):
                self._first_seen[name] = now
            elif match := BOUNDARY.fullmatch(name):
                if int(match[1]) <= self.last:
                    remove(self.path / name)
                    if self._refreshed or int(match[1]) < self.last:  # else a killed monitor has left it
                        why = f"{int(match[1])} after {self.last}; what was scored for it is in the next new step"
                        report_trouble(self.path, f"steps go back: {why}: number them on, or start the run anew")
                    continue
                self._first_seen[name] = now
                try:
                    self.boundaries[int(match[1])] = read_boundary(self.path / name)
                except StoreError as error:
                    report_trouble(self.path, f"the end of a step was left out: {error}")
        self._refreshed = True

    def _read_worker_file(self, worker: str, word: str, path: Path) -> None:
        buffer = self._buffer(worker)
        buffer.last_seen = self._clock()
        try:
            note = read_sidecar(path, WorkerNote)
        except StoreError as error:
            report_trouble(self.path, f"a note of a worker was left out: {error}")
            note = WorkerNote()
        if word == "worker" and note.host == socket.gethostname():
            buffer.pid = min(note.pid, 2**31 - 1)
        if word == "counters":
            buffer.closed = True
            buffer.written = note.written
            if note.dropped > 0:
                text = f"{note.dropped} of {note.rows} that {worker} scored"
                report_trouble(self.path, f"rows were dropped by a worker: {text}")

    def _buffer(self, worker: str) -> WorkerBuffer:
        read_before = int(self.upto.get(worker, 0))
        return self.by_worker.setdefault(worker, WorkerBuffer(start=read_before, next_row=read_before))

    def _add_file(self, worker: str, path: Path) -> bool:
        """Add a worker's file; False if it is not the next one: a listing may miss the one written before it."""
        buffer = self._buffer(worker)
        try:
            begin, times, steps = read_order(path)
        except StoreError as error:
            if self.should_retry(path, error):
                return False
            report_trouble(self.path, f"rows were left out: {error}")
            buffer.broken = True
            return True
        if begin > buffer.stop and buffer.broken and buffer.next_row == buffer.stop:
            buffer.start = buffer.next_row = begin  # the rows in between are in a file that cannot be read
            buffer.times, buffer.steps, buffer.files, buffer.broken = times[:0], steps[:0], [], False
        if begin > buffer.stop or (buffer.files and begin != buffer.stop):
            return False
        if not buffer.files:
            buffer.start, buffer.times, buffer.steps = begin, times[:0], steps[:0]
        buffer.times, buffer.steps = np.concatenate((buffer.times, times)), np.concatenate((buffer.steps, steps))
        buffer.files.append((path, begin, buffer.stop))
        buffer.last_seen = self._clock()
        self.clear_retry(path)
        return True

    def should_retry(self, path: Path, error: StoreError) -> bool:
        """Whether to retry: an I/O error may go away, a damaged file stays damaged."""
        if not isinstance(error.__cause__, OSError) or isinstance(error.__cause__, FileNotFoundError):
            return False
        return self._clock() - self._unreadable_since.setdefault(path, self._clock()) < RETRY_SECONDS

    def clear_retry(self, path: Path) -> None:
        self._unreadable_since.pop(path, None)

    def is_old(self, name: str) -> bool:
        """Whether a file is old enough that every worker has since written the rows it had at that time."""
        pause = self.settings.seconds or FLUSH_SECONDS
        return self._clock() - self._first_seen[name] >= 2.0 * pause + 1.0

    def all_closed(self) -> bool:
        return (bool(self.by_worker) or self._some_removed) and all(buffer.closed for buffer in self.by_worker.values())

    def is_quiet(self) -> bool:
        """Whether no more rows will come after the end: workers may go on scoring after the driver has ended."""
        now = self._clock()
        silent = all(
            p.closed or self.has_died(p) or now - p.last_seen >= SILENT_SECONDS for p in self.by_worker.values()
        )
        return self.all_closed() or (silent and all(self.is_old(name) for name in self._first_seen))

    @staticmethod
    def has_died(buffer: WorkerBuffer) -> bool:
        """Whether a worker on this machine has ended without closing."""
        try:
            if buffer.pid:
                os.kill(buffer.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # alive, under another user
            return False
        return False

    def remove_assigned(self, choice: StepRows) -> None:
        """Remove the rows that are in a step file now; a file that cannot be removed is skipped at the next start."""
        self.last, self.end, self.by = choice.step, max(self.end, choice.end), choice.by
        self.upto = {**self.upto, **choice.upto}
        self.boundaries = {step: item for step, item in self.boundaries.items() if step > choice.step}
        remove(self.path / f"{choice.step:06d}.step.json", missing_ok=True)
        self._first_seen.pop(f"{choice.step:06d}.step.json", None)
        for name, buffer in self.by_worker.items():
            buffer.next_row = choice.upto[name]
            for path, _, end in buffer.files:
                if end <= buffer.next_row and path not in self._unreadable_since:  # an unreadable file is kept
                    remove(path, missing_ok=True)
                    self._first_seen.pop(path.name, None)
            buffer.files = [item for item in buffer.files if item[2] > buffer.next_row]
            keep = buffer.files[0][1] if buffer.files else buffer.stop
            buffer.times, buffer.steps, buffer.start = (
                buffer.times[keep - buffer.start :],
                buffer.steps[keep - buffer.start :],
                keep,
            )
        for name in [
            name for name, buffer in self.by_worker.items() if buffer.closed and buffer.next_row == buffer.written
        ]:
            self._remove_worker(name)

    def _remove_worker(self, worker: str) -> None:
        """Remove a worker that has closed, with all rows assigned: a run may have thousands of them."""
        for word in ("worker", "counters"):  # in this order: a half-removed worker then still counts as closed
            remove(self.path / f"{worker}.{word}.json", missing_ok=True)
            self._first_seen.pop(f"{worker}.{word}.json", None)
        if not any(path.name.startswith(f"{worker}-") for path in self._unreadable_since):
            self.upto.pop(worker, None)
        del self.by_worker[worker]
        self._some_removed = True
