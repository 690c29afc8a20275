"""The inputs of the monitor loop, in order: from a run directory that is being written, or from a recorded journal.

Both sources yield the same kinds of arrival, so live monitoring and replay share one loop. A live source decides when a
step is ready: when all its ranks are there, or three later steps are complete, or the attempt is over. The `step_done`
event records that decision and a recorded source follows it, so replay does not depend on the order of arrival.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiltmeter.data.records import Fault
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.evaluations import Evaluation, read_evaluations
from tiltmeter.rundir.journal import Event, record_of
from tiltmeter.rundir.rank_summary import count_losses, expand_ranges
from tiltmeter.rundir.requests import ControlOffer, ControlRequest, Receipt, read_knobs, read_receipts, read_requests
from tiltmeter.rundir.signing import read_token
from tiltmeter.rundir.store import RunDirectory, StepFile

COMPLETE_LATER_STEPS = 3  # complete later steps before a step is measured without its missing ranks
LATER_STEPS = 16  # later steps of any rank: a rank's writer cannot lag by more, so a missing rank will not come


@dataclass(frozen=True, slots=True)
class AttemptOpened:
    """A trainer started, or resumed: a new attempt."""

    attempt: int
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepReady:
    """The files of one step, to be measured together."""

    attempt: int
    step: int
    files: tuple[StepFile, ...]
    missing: tuple[int, ...]  # ranks
    sha256: str | None = None  # combined hash of the files, if a journal recorded it
    unreadable: tuple[int, ...] = ()  # ranks that could not be read, if a journal recorded it


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """Every rank of an attempt has closed; batches seen and lost, as `count_losses` gives them."""

    attempt: int
    step: int
    counts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LabelsComplete:
    """Every label requested for a step was answered or has timed out: its labels can be read from the files."""

    attempt: int
    step: int


@dataclass(frozen=True, slots=True)
class EvaluationDeclared:
    """Somebody declared an evaluation."""

    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class ControlReply:
    """A rank of the trainer applied or refused a request, or a person decided about a proposal."""

    message: Receipt | ControlRequest


@dataclass(frozen=True, slots=True)
class ExperimentDone:
    """An experiment on the user's reward function has ended."""

    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class FileFault:
    """A problem with the files themselves."""

    fault: Fault


Arrival = (
    AttemptOpened
    | StepReady
    | AttemptEnded
    | LabelsComplete
    | EvaluationDeclared
    | ControlReply
    | ExperimentDone
    | FileFault
)
#: Values of `Fault.part` for problems with files. Replay takes them from the journal: the files may have changed since.
FILE_PARTS = ("store", "file", "label", "control")


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
        if event.kind == "attempt":
            (self._opened_attempts if event.data["state"] == "open" else self._ended_attempts).add(event.attempt)
        elif event.kind == "step_done":
            self._last_steps[event.attempt] = max(event.step, self._last_steps.get(event.attempt, event.step))
            self._measured_steps.setdefault(event.attempt, set()).add(event.step)
            if event.data["missing"]:
                self._missing_ranks[event.attempt, event.step] = set(expand_ranges(event.data["missing"]))
        elif event.kind == "fault" and event.data["part"] == "store":
            name = event.data["error"].split(":")[0]
            self._reported_files.setdefault(event.attempt, set()).add(name)
            self._evaluation_files.add(name)
        elif event.kind == "note" and event.data["note"] == "evaluation":
            self._evaluation_files.add(event.data["file"])
        elif event.kind == "note" and event.data["note"] in ("receipt", "decision"):
            self._reply_files.add(event.data["file"])
        elif event.kind == "fault" and event.data["part"] == "control":
            self._reply_files.add(event.data["error"].split(":")[0])

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
        """Receipts of the trainer and decisions of people. Without access to the token, receipts only."""
        last = self._last_steps.get(attempt, -1)
        new_receipts, refusals = read_receipts(self.run, self._reply_files)
        try:
            token = read_token(self.run) if (self.run.path / "control" / "requests").is_dir() else None
        except AttachError:
            token = None
        decisions: list[ControlRequest] = []
        if token is not None:
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
        for file in self.run.files(attempt, damaged):
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
            if len(files) < ranks and not over and may_complete:
                return
            present = {file.rank for file in files}
            yield StepReady(attempt, step, tuple(files), tuple(rank for rank in range(ranks) if rank not in present))
            yield from self._evaluations(attempt, over=False)


class RecordedArrivals:
    """Follows a journal: the same files in the same order, checked against the hashes it recorded."""

    def __init__(self, run: RunDirectory, events: Sequence[Event]) -> None:
        self.run, self.events = run, events

    def mark_handled(self, event: Event) -> None:
        pass

    def read_offer(self, attempt: int) -> ControlOffer | None:
        """As recorded in the journal: the file may have changed or be gone."""
        notes = (item.data for item in self.events if item.data.get("note") == "offer" and item.attempt == attempt)
        return next((ControlOffer.of(data["offer"]) for data in notes), None)

    def poll(self) -> Iterator[Arrival]:
        for event in self.events:
            if event.kind == "attempt" and event.data["state"] == "open":
                yield AttemptOpened(event.attempt, event.data["facts"])
            elif event.kind == "attempt":
                yield AttemptEnded(event.attempt, event.step, {key: event.data[key] for key in ("seen", "lost")})
            elif event.kind == "fault" and event.data["part"] in FILE_PARTS:
                fault = record_of(event)
                assert isinstance(fault, Fault)
                yield FileFault(fault)
            elif event.kind == "labels_closed":
                yield LabelsComplete(event.attempt, event.step)
            elif event.kind == "note" and event.data["note"] == "evaluation":
                name, value, n = (event.data[key] for key in ("name", "value", "n"))
                yield EvaluationDeclared(Evaluation(event.attempt, event.step, name, value, n))
            elif event.kind == "note" and event.data["note"] == "receipt":
                yield ControlReply(Receipt(**event.data["told"]))
            elif event.kind == "note" and event.data["note"] == "decision":
                yield ControlReply(ControlRequest(**event.data["told"]))
            elif event.kind == "note" and event.data["note"] == "experiment":
                yield ExperimentDone(event.data)
            elif event.kind == "step_done":
                yield self._step(event)

    def _step(self, event: Event) -> StepReady:
        by_rank = {file.rank: file for file in self.run.find(event.attempt, event.step)}
        ranks = expand_ranges(event.data["ranks"])
        if lost := [rank for rank in ranks if rank not in by_rank]:
            where = f"step {event.step} of attempt {event.attempt}"
            raise StoreError(f"{where} cannot be replayed: the file of rank {lost[0]} is gone")
        files = tuple(by_rank[rank] for rank in ranks)
        missing, unreadable = expand_ranges(event.data["missing"]), expand_ranges(event.data["unreadable"])
        return StepReady(event.attempt, event.step, files, tuple(missing), event.data["sha256"], tuple(unreadable))
