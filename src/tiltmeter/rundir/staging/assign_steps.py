"""Assign captured rows, which were scored without a step number, to steps, and write each step's file.

A captured reward function runs in many worker processes. Each worker writes what it scored to files of its own, in the
order in which it scored; the driver, if it takes part, writes one small file per step. The monitor joins them: it
decides which rows are a step, writes the ordinary step file, and records in that file's metadata how far it has read
each worker. A row is used once a step file contains it, and not before: if the monitor is killed at any moment, no row
is lost or counted twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tiltmeter.data.batches import INFRA, MISSING, by_group, from_columns, join, take
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.rundir.atomic_write import sweep
from tiltmeter.rundir.sidecar import find_sidecar, read_sidecar
from tiltmeter.rundir.staging.pending_rows import SILENT_SECONDS, PendingRows, StepRows
from tiltmeter.rundir.staging.staged_rows import (
    InferredSize,
    StepBoundary,
    read_rows,
    report_trouble,
    staging_folder,
    write_once,
)
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.stats.bursts import burst_size

DEFAULT_BATCH_SIZE = 64  # rows per step, if it is not given and cannot be inferred
MAX_UNSPLIT_ROWS = 4096  # rows without regular pauses, after which the default is used


class StepAssembler:
    """Assembles step files from captured rows, for all attempts of a run; the monitor calls it at every poll."""

    def __init__(self, run: RunDirectory, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.run, self._clock = run, clock
        self._done: set[int] = set()  # attempts that are finished
        self._by_attempt: dict[int, StagedRows] = {}

    def assemble(self, *, over: bool = False) -> bool:
        """Write the step files that are ready; returns whether more may become ready. `over`: no process writes to the
        newest attempt any more."""
        waiting = False
        if (self.run.path / "rollouts").is_symlink():
            return False  # an audit: its rollouts belong to another run
        attempts = self.run.attempts()
        for attempt in attempts:
            path = staging_folder(self.run, attempt)
            if attempt in self._done or path.is_symlink() or not path.is_dir():
                continue  # a link would lead into another run
            last = over or attempt != attempts[-1]
            try:
                if attempt not in self._by_attempt:
                    self._by_attempt[attempt] = StagedRows(self.run, attempt, self._clock)
                more = self._by_attempt[attempt].assemble(over=last)
            except StoreError as error:  # damaged step files; their readers report the details
                report_trouble(staging_folder(self.run, attempt), f"rows could not be placed: {error}")
                more = False
            waiting |= more
            if not more and attempt != attempts[-1]:
                self._done.add(attempt)
        return waiting


class StagedRows:
    """The captured rows of one attempt: decides which of them are a step, and writes the step file."""

    def __init__(self, run: RunDirectory, attempt: int, clock: Callable[[], float]) -> None:
        self.run, self.attempt = run, attempt
        self.pending = PendingRows(run, attempt, clock)
        self.path = self.pending.path

    def assemble(self, *, over: bool) -> bool:
        self.pending.refresh(over=over)
        while (choice := self._choose(over)) is not None:
            if not self._publish(choice):
                return True
            self.pending.remove_assigned(choice)
        waiting = bool(self.pending.boundaries) or any(
            buffer.stop > buffer.next_row for buffer in self.pending.by_worker.values()
        )
        if over and self.pending.is_quiet():
            if rows := sum(buffer.stop - buffer.next_row for buffer in self.pending.by_worker.values()):
                why = f"{rows} were scored after the last step that ended; kept, not measured"
                report_trouble(self.path, f"rows left over: {why}")
            if unclosed := sum(
                not buffer.closed and not self.pending.has_died(buffer) for buffer in self.pending.by_worker.values()
            ):
                why = (
                    f"{unclosed} had not closed and wrote nothing for {SILENT_SECONDS / 60:.0f} minutes "
                    "after the run's end"
                )
                report_trouble(self.path, f"workers were given up: {why}")
            sweep(self.path)
            return False
        waiting = waiting or (over and any(not buffer.closed for buffer in self.pending.by_worker.values()))
        if over and not waiting:
            sweep(self.path)
        return waiting

    def _next_step_number(self) -> int:
        """The number of the next step if it is not given; a resumed run continues from its resume step."""
        if self.pending.last >= 0:
            return self.pending.last + 1
        facts = self.run.attempt(self.attempt)
        if facts.get("resume_step") is None and facts.get("parent") is not None:
            return max((file.step for file in self.run.files(int(facts["parent"]))), default=-1) + 1
        return int(facts.get("resume_step") or 0)

    # -- choosing ---------------------------------------------------------------------------------------------------

    def _choose(self, over: bool) -> StepRows | None:
        steps = [buffer.steps[buffer.next_row - buffer.start :] for buffer in self.pending.by_worker.values()]
        if any(len(part) and part.max() >= 0 for part in steps):
            return self._by_step(over)
        if self.pending.boundaries:
            return self._by_boundary(self.pending.boundaries[min(self.pending.boundaries)])
        has_driver = self.pending.settings.driver or self.pending.driver or self.pending.by == "boundary"
        return None if has_driver else self._by_count(over)

    def _by_step(self, over: bool) -> StepRows | None:
        """Rows that carry a step number; a step is over when every worker has gone on to a later one."""
        pending = {
            name: buffer.steps[buffer.next_row - buffer.start :] for name, buffer in self.pending.by_worker.items()
        }
        heads = [
            int(part[part > self.pending.last][0]) for part in pending.values() if (part > self.pending.last).any()
        ]
        if not heads:
            return None  # all of them came after their steps were closed: kept, and reported when the run ends
        step = min(heads)
        ready = over and self.pending.is_quiet()
        if not ready:
            later = [name for name, part in pending.items() if (part > step).any()]
            ready = all(name in later or buffer.closed for name, buffer in self.pending.by_worker.items()) or any(
                end > self.pending.by_worker[name].next_row
                and self.pending.is_old(path.name)
                and self._step_of(name, end - 1) > step
                for name in later
                for path, _, end in self.pending.by_worker[name].files
            )
        if not ready:
            return None
        upto = {}
        for name, buffer in self.pending.by_worker.items():
            after = np.flatnonzero(pending[name] > step)
            upto[name] = buffer.next_row + int(after[0]) if len(after) else buffer.stop
        choice = self._step_rows(step, "step", upto)
        own = {name: pending[name][: len(rows)] for name, rows in choice.rows.items()}
        used_rows = {name: rows[(own[name] == step) | (own[name] < 0)] for name, rows in choice.rows.items()}
        late = sum(len(rows) - len(used_rows[name]) for name, rows in choice.rows.items())
        if late:
            report_trouble(
                self.path, f"rows came after their step was over: {late} by step {step}; left out of what is measured"
            )
        return replace(choice, rows=used_rows, late=late)

    def _step_of(self, worker: str, row: int) -> int:
        buffer = self.pending.by_worker[worker]
        return int(buffer.steps[row - buffer.start])

    def _by_boundary(self, boundary: StepBoundary) -> StepRows | None:
        upto = {name: buffer.row_at(boundary.end) for name, buffer in self.pending.by_worker.items()}
        begin_rows = dict.fromkeys(upto, 0)
        if boundary.begin is not None:
            begin_rows = {
                name: buffer.row_at(boundary.begin, "left") for name, buffer in self.pending.by_worker.items()
            }
        late = {
            name: min(upto[name], buffer.row_at(self.pending.end)) for name, buffer in self.pending.by_worker.items()
        }
        count_so_far = sum(max(0, upto[name] - max(begin_rows[name], late[name])) for name in upto)
        enough = boundary.rows is not None and count_so_far >= boundary.rows
        if not (enough or self.pending.all_closed() or self.pending.is_old(f"{boundary.step:06d}.step.json")):
            return None
        choice = self._step_rows(boundary.step, "boundary", upto, end=boundary.end, scalars=boundary.scalars)
        used_rows = {name: rows[(rows < late[name]) | (rows >= begin_rows[name])] for name, rows in choice.rows.items()}
        count = sum(int((rows < late[name]).sum()) for name, rows in used_rows.items()) if self.pending.end else 0
        return replace(choice, rows=used_rows, late=count)

    def _by_count(self, over: bool) -> StepRows | None:
        """The next `batch_size` rows in the order of scoring, once no worker can still add an earlier one."""
        alone = len(self.pending.by_worker) == 1
        final = over and self.pending.is_quiet()
        record = find_sidecar(self.path / "inferred.json", InferredSize)
        row_limit = self.pending.settings.batch_size or (MAX_UNSPLIT_ROWS if record is None else record.batch_size)
        rows: list[tuple[float, str, int]] = []
        for name, buffer in self.pending.by_worker.items():
            ends = [
                end
                for path, _, end in buffer.files
                if alone or self.pending.all_closed() or self.pending.is_old(path.name)
            ]
            stop = buffer.stop if final else max([*ends, 0])
            ready = range(buffer.next_row, min(stop, buffer.next_row + row_limit))
            rows += [(float(buffer.times[row - buffer.start]), name, row) for row in ready]
        if not rows:
            return None
        rows.sort()
        size, by = self._rows_per_step(np.array([moment for moment, _, _ in rows]), final)
        if size is None or (len(rows) < size and not final):
            return None
        chosen = rows[:size]
        upto = {
            name: max((r + 1 for _, of, r in chosen if of == name), default=p.next_row)
            for name, p in self.pending.by_worker.items()
        }
        return self._step_rows(self._next_step_number(), by, upto, end=chosen[-1][0])

    def _rows_per_step(self, times: Floats, final: bool) -> tuple[int | None, str]:
        """Rows per step: as given, inferred from pauses between calls, or the default. An inferred size is stored."""
        if self.pending.settings.batch_size:
            return self.pending.settings.batch_size, "count"
        path = self.path / "inferred.json"
        record = find_sidecar(path, InferredSize)
        if record is None:
            size, why = burst_size(times), "told from the pauses between calls"
            if size is None and (final or len(times) >= MAX_UNSPLIT_ROWS):
                size, why = DEFAULT_BATCH_SIZE, "guessed, because there are no regular pauses between calls"
            if size is None:
                return None, ""
            write_once(path, {"batch_size": size, "why": why})
            record = read_sidecar(path, InferredSize)
            report_trouble(
                self.path,
                f"steps are inferred: {record.batch_size} rows each, {record.why}; "
                "give capture(..., batch_size=), or call tiltmeter.capture.step(...) in the driver",
            )
        return record.batch_size, "inferred"

    def _step_rows(
        self,
        step: int,
        by: str,
        upto: Mapping[str, int],
        end: float | None = None,
        scalars: Mapping[str, float] | None = None,
    ) -> StepRows:
        rows = {name: np.arange(buffer.next_row, upto[name]) for name, buffer in self.pending.by_worker.items()}
        last = [
            float(p.times[upto[n] - 1 - p.start]) for n, p in self.pending.by_worker.items() if upto[n] > p.next_row
        ]
        return StepRows(
            step, by, max(last, default=self.pending.end) if end is None else end, rows, upto, scalars or {}
        )

    # -- publishing -------------------------------------------------------------------------------------------------

    def _publish(self, choice: StepRows) -> bool:
        """Write the step file. The rows count as used once it exists under its name. False if a file cannot be read at
        the moment."""
        parts, seconds = [], []
        for name, rows in choice.rows.items():
            for path, begin, end in self.pending.by_worker[name].files:
                inside = rows[(rows >= begin) & (rows < end)] - begin
                if len(inside):
                    try:
                        whole, took = read_rows(path, self.attempt, choice.step)
                    except StoreError as error:
                        if self.pending.should_retry(path, error):
                            return False
                        report_trouble(self.path, f"rows were left out: {error}")
                        continue
                    self.pending.clear_retry(path)
                    parts.append(take(whole, inside))
                    seconds.append(took[inside])
        scalars = dict(choice.scalars)
        batch = from_columns(choice.step, np.zeros(0, np.int64), attempt=self.attempt)
        if parts:
            batch = join(parts, shared_groups=True)
            scalars = {**_reward_scalars(batch, np.concatenate(seconds)), **scalars}
        batch = replace(by_group(batch), scalars=scalars)
        counters = {
            "seen": choice.step + 1,
            "written": choice.step + 1,
            "thinned": 0,
            "dropped": 0,
            "bytes_lost": 0,
            "unsynced": 0,
        }
        progress = {
            "by": choice.by,
            "end": choice.end,
            "upto": {**self.pending.upto, **choice.upto},
            "late": choice.late,
        }
        facts = {
            "groups": "rank",
            "counters": counters,
            "faults": [],
            "thinned": False,
            "time": time.time(),
            "placed": progress,
        }
        self.run.write(batch, 0, facts)
        return True


def _reward_scalars(batch: RolloutBatch, seconds: Floats) -> dict[str, float]:
    """Mean call time of the reward function, and its shares of errors and missing rewards."""
    codes = batch.flags.get("reward", np.zeros(len(batch), np.uint8))
    return {
        "reward_seconds": float(seconds.mean()),
        "reward_error_share": float((codes == INFRA).mean()),
        "reward_missing_share": float((codes == MISSING).mean()),
    }
