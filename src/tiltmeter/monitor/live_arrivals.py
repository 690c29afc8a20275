"""What has arrived in a run directory that is being written.

A step is ready when all its ranks are there, or three later steps are complete, or the attempt is over. The `step_done`
event records that decision and a replay follows it, so replay does not depend on the order of arrival.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress

from tiltmeter.data.records import Fault
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.monitor.arrivals import (
    Arrival,
    AttemptEnded,
    AttemptOpened,
    ControlReply,
    EvaluationDeclared,
    FileFault,
    StepReady,
)
from tiltmeter.rundir.evaluations import Evaluation, read_evaluations
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.payloads import AttemptEnd, AttemptOpen, DecisionRead, EvaluationRead, ReceiptRead, StepDone
from tiltmeter.rundir.rank_summary import count_losses, expand_ranges
from tiltmeter.rundir.receipts import has_receipts, read_receipts
from tiltmeter.rundir.requests import ControlOffer, ControlRequest, read_knobs, read_requests
from tiltmeter.rundir.signing import read_token
from tiltmeter.rundir.store import RunDirectory, StepFile

COMPLETE_LATER_STEPS = 3  # complete later steps before a step is measured without its missing ranks
LATER_STEPS = 16  # later steps of any rank: a rank's writer cannot lag by more, so a missing rank will not come
UNCHECKED = "receipts: not followed, since the token that signs them is not on this machine or not this user's"


class LiveArrivals:
    """Follows a run directory. `mark_handled` is called with every journal event, so a restart misses nothing."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self._opened_attempts: set[int] = set()
        self._ended_attempts: set[int] = set()
        self._last_steps: dict[int, int] = {}  # by attempt
        self._measured_steps: dict[int, set[int]] = {}  # steps by attempt
        self._missing_ranks: dict[tuple[int, int], set[int]] = {}  # ranks by (attempt, step), only where some were
        self._reported_files: dict[int, set[str]] = {}  # file names by attempt
        self._evaluation_files: set[str] = set()  # file names
        self._reply_files: set[str] = set()  # names of receipts and of people's decisions
        self._new_evaluations: dict[int, list[Evaluation | tuple[int, int, str]]] = {}  # by attempt, those not handled

    def mark_handled(self, event: Event) -> None:
        """Record that an event is in the journal, so that its input is not yielded again."""
        match event.payload:
            case AttemptOpen():
                self._opened_attempts.add(event.attempt)
            case AttemptEnd():
                self._ended_attempts.add(event.attempt)
            case StepDone(missing=missing):
                self._last_steps[event.attempt] = max(event.step, self._last_steps.get(event.attempt, event.step))
                self._measured_steps.setdefault(event.attempt, set()).add(event.step)
                if missing:
                    self._missing_ranks[event.attempt, event.step] = set(expand_ranges(missing))
            case Fault(part="store", error=error):
                name = error.split(":")[0]
                self._reported_files.setdefault(event.attempt, set()).add(name)
                self._evaluation_files.add(name)
            case Fault(part="control", error=error):
                self._reply_files.add(error.split(":")[0])
            case EvaluationRead(file=file):
                self._evaluation_files.add(file)
            case ReceiptRead(file=file) | DecisionRead(file=file):
                self._reply_files.add(file)

    def poll(self) -> Iterator[Arrival]:
        """What is ready now, oldest attempt first. Each arrival must be handled before the next is requested."""
        self._new_evaluations = read_evaluations(self.run, self._evaluation_files)
        attempts = self.run.attempts()
        for attempt in attempts:
            if attempt in self._ended_attempts and attempt != attempts[-1] and attempt not in self._new_evaluations:
                continue
            facts = self.run.attempt(attempt)
            if not facts:
                continue  # claimed a moment ago
            if attempt not in self._opened_attempts:
                yield AttemptOpened(attempt, facts)
            # Checked before listing, so that everything a rank wrote before it closed is in the list.
            ended = self.run.ended(attempt)
            yield from self._steps(attempt, int(facts.get("ranks", 1)), over=ended or attempt != attempts[-1])
            if ended and attempt not in self._ended_attempts:
                yield AttemptEnded(attempt, self._last_steps.get(attempt, -1), count_losses(self.run.counters(attempt)))
            yield from self._evaluations(attempt, over=ended or attempt != attempts[-1])
        if attempts:
            yield from self._replies(attempts[-1])

    def read_offer(self, attempt: int) -> ControlOffer | None:
        """The knobs this attempt's trainer has published; None if there are none, or they cannot be read."""
        try:
            return read_knobs(self.run, attempt)
        except StoreError:
            return None

    def _replies(self, attempt: int) -> Iterator[Arrival]:
        """Receipts of the trainer and decisions of people: what the run's token has signed."""
        last = self._last_steps.get(attempt, -1)
        if not (self.run.path / "control").is_dir():
            return
        try:
            token = read_token(self.run)
        except AttachError:
            if has_receipts(self.run) and UNCHECKED.split(":")[0] not in self._reply_files:
                yield FileFault(Fault(attempt, last, "control", UNCHECKED))
            return
        new_receipts, refusals = read_receipts(self.run, self._reply_files, token)
        decisions: list[ControlRequest]
        decisions, _ = read_requests(
            self.run, self._reply_files, token, attempt=attempt, step=last, mode="advise", kinds=("reject", "note")
        )
        yield from (ControlReply(receipt) for receipt in new_receipts)
        yield from (ControlReply(decision) for decision in decisions)
        for name, why, _ in refusals:
            yield FileFault(Fault(attempt, last, "control", f"{name}: {why}"))

    def _evaluations(self, attempt: int, *, over: bool) -> Iterator[Arrival]:
        """Declared evaluations of steps that are measured already, or that will never come."""
        for item in self._new_evaluations.get(attempt, []):
            step = item.step if isinstance(item, Evaluation) else item[1]
            name = item.file if isinstance(item, Evaluation) else item[2].split(":")[0]
            if name in self._evaluation_files or not (over or step <= self._last_steps.get(attempt, -1)):
                continue
            if isinstance(item, Evaluation):
                yield EvaluationDeclared(item)
            else:
                yield FileFault(Fault(attempt, step, "store", item[2]))

    def _list(self, attempt: int, last: int, damaged: list[str], *, over: bool) -> list[StepFile]:
        """The stored files, without a hole that only the listing has.

        While files are added, a listing may show a file and not the one that was there before it (names come in the
        order of their hashes). What was there when one listing ended is in the next: so where steps are not in a row,
        the newest step of a first listing bounds what is taken of a second.
        """
        files = self.run.files(attempt, damaged)
        new = {file.step for file in files if file.step > last}
        if over or not new or len(new) == max(new) - last:
            return files
        damaged.clear()
        return [file for file in self.run.files(attempt, damaged) if file.step <= max(new)]

    def _steps(self, attempt: int, ranks: int, *, over: bool) -> Iterator[Arrival]:
        reported, last = self._reported_files.get(attempt, set()), self._last_steps.get(attempt, -1)
        measured = self._measured_steps.get(attempt, set())
        for name in self.run.conflicts(attempt):
            if name not in reported:
                error = f"{name}: a step was written twice by one rank; the first was kept, this one is not measured"
                yield FileFault(Fault(attempt, last, "store", error))
        for name, why in self.run.troubles(attempt).items():
            if name not in reported:
                yield FileFault(Fault(attempt, last, "store", f"{name}: {why}"))
        damaged: list[str] = []
        waiting: dict[int, list[StepFile]] = {}
        for file in self._list(attempt, last, damaged, over=over):
            if file.step > last:
                waiting.setdefault(file.step, []).append(file)
                continue
            late = file.step not in measured or file.rank in self._missing_ranks.get((attempt, file.step), ())
            if late and file.name not in reported:
                error = f"{file.name}: arrived after its step was measured; kept, not measured"
                yield FileFault(Fault(attempt, last, "store", error))
        for error in damaged:
            if error.split(":")[0] not in reported:
                yield FileFault(Fault(attempt, last, "store", error))
        complete = sorted(step for step, files in waiting.items() if len(files) >= ranks)
        for position, step in enumerate(sorted(waiting), start=1):
            files = waiting[step]
            may_complete = (
                len(complete) - bisect_right(complete, step) < COMPLETE_LATER_STEPS
                and len(waiting) - position < LATER_STEPS
            )
            if len(files) < ranks and not over:
                if may_complete:
                    return
                with suppress(StoreError):  # a packed file that is damaged: said above
                    files = self.run.find(attempt, step)  # the listing may have passed a rank that has come since
            present = {file.rank for file in files}
            yield StepReady(attempt, step, tuple(files), tuple(rank for rank in range(ranks) if rank not in present))
            yield from self._evaluations(attempt, over=False)
