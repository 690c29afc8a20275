"""What has arrived in a run directory that is being written.

A step is ready when all its ranks are there, or three later steps are complete, or the attempt is over. The `step_done`
event records that decision and a replay follows it, so replay does not depend on the order of arrival.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from tiltmeter.data.number_set import NumberSet
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
from tiltmeter.rundir.run_path import FolderNames, exists, folder_changed_at
from tiltmeter.rundir.signing import read_token
from tiltmeter.rundir.store import RunDirectory, StepFile

COMPLETE_LATER_STEPS = 3  # complete later steps before a step is measured without its missing ranks
LATER_STEPS = 16  # later steps of any rank: a rank's writer cannot lag by more, so a missing rank will not come
MOST_STRIDE = 16  # steps from one that is stored to the next, where the next is looked up by its name
FEW_NAMES = 2000  # in a folder, which take no time to list
SECONDS_A_NAME = 2e-4  # between two listings, for each name: about a hundred times what it takes
MOST_SECONDS = 15.0
TICK_SECONDS = 3.0  # the coarsest time of change of a file system is two
UNCHANGED_SECONDS = 60.0  # after which a folder is listed though its file system says that it has not changed
UNCHECKED = "receipts: not followed, since the token that signs them is not on this machine or not this user's"


@dataclass
class _Look:
    """When a folder was listed last, and what it was like then."""

    clock: Callable[[], float] = time.monotonic
    changed: int = -2  # as `folder_changed_at` gave it before the listing
    first_seen: float = -inf  # when that time was first seen
    at: float = -inf
    names: int = 0
    over: bool = False  # no more files were expected

    def is_due(self, changed: int, *, over: bool) -> bool:
        """Whether to list the folder: always, if it has few names or was not listed since the attempt is over.

        Otherwise after a pause, and if it may have changed. Its time of change may be coarse: one that was listed just
        after it changed may have changed again within the same tick.
        """
        now = self.clock()
        if changed != self.changed:
            self.changed, self.first_seen = changed, now
        if self.names < FEW_NAMES or (over and not self.over):
            return True
        settled = self.at > self.first_seen + TICK_SECONDS
        pause = min(self.names * SECONDS_A_NAME, MOST_SECONDS)
        return now > self.at + (UNCHANGED_SECONDS if settled else pause)

    def note(self, names: int, *, over: bool) -> None:
        self.at, self.names, self.over = self.clock(), names, over


class LiveArrivals:
    """Follows a run directory. `mark_handled` is called with every journal event, so a restart misses nothing."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self._opened_attempts: set[int] = set()
        self._ended_attempts: set[int] = set()
        self._last_steps: dict[int, int] = {}  # by attempt
        self._measured_steps: dict[int, NumberSet] = {}  # steps by attempt
        self._missing_ranks: dict[tuple[int, int], set[int]] = {}  # ranks by (attempt, step), only where some were
        self._reported_files: dict[int, set[str]] = {}  # file names by attempt
        self._strides: dict[int, int] = {}  # by attempt, from the last step but one to the last
        self._looks: dict[int, _Look] = {}  # by attempt, when its folder was listed
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
                self._measured_steps.setdefault(event.attempt, NumberSet()).add(event.step)
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

    def _is_late(self, attempt: int, last: int, step: int, rank: int) -> bool:
        """Whether a file of a step that is behind us was not measured with it."""
        measured, missing = self._measured_steps.get(attempt, NumberSet()), self._missing_ranks.get((attempt, step), ())
        return step <= last and (step not in measured or rank in missing)

    def _list(self, attempt: int, last: int, names: FolderNames, damaged: list[str], *, over: bool) -> list[StepFile]:
        """The stored files that were not measured, without a hole that only the listing has.

        While files are added, a listing may show a file and not the one that was there before it (names come in the
        order of their hashes). What was there when one listing ended is in the next: so where steps are not in a row,
        the newest step of a first listing bounds what is taken of a second.
        """

        def is_measured(step: int, rank: int) -> bool:
            return step <= last and not self._is_late(attempt, last, step, rank)

        files = self.run.files(attempt, damaged, names=names, leave_out=is_measured)
        new = {file.step for file in files if file.step > last}
        if over or not new or len(new) == max(new) - last:
            return files
        damaged.clear()
        again = self.run.files(attempt, damaged, leave_out=is_measured)
        return [file for file in again if file.step <= max(new)]

    def _steps(self, attempt: int, ranks: int, *, over: bool) -> Iterator[Arrival]:
        """The steps that are ready.

        Most are looked up by the name that the next step must have. The folder is listed for what such names do not
        tell (holes, files that come late or twice, notes of trouble), but a long one not each time.
        """
        look = self._looks.setdefault(attempt, _Look())
        while files := self._next_files(attempt, ranks):
            yield StepReady(attempt, files[0].step, tuple(files), ())
            yield from self._evaluations(attempt, over=False)
            if self._last_steps[attempt] != files[0].step:
                return  # it was not handled
        changed = folder_changed_at(self.run.path / "rollouts" / str(attempt))
        if look.is_due(changed, over=over):
            names = self.run.names(attempt)
            yield from self._listed_steps(attempt, ranks, names, over=over)
            look.note(len(names.plain), over=over)

    def _next_files(self, attempt: int, ranks: int) -> list[StepFile]:
        """The files of the next step, if all are there: it is as far from the last as that was from the one before.

        A rank writes its steps in their order. So where a step is complete, those before it are there, or never come:
        if any file of one of them is there, this step is not the next.
        """
        last, stride = self._last_steps.get(attempt, -1), self._strides.get(attempt, 1)
        files = [] if last < 0 else self.run.find_complete(attempt, last + stride, ranks)
        between = ((step, rank) for step in range(last + 1, last + stride) for rank in range(ranks))
        if files and any(exists(self.run.step_path(attempt, step, rank)) for step, rank in between):
            return []
        return files

    def _listed_steps(self, attempt: int, ranks: int, names: FolderNames, *, over: bool) -> Iterator[Arrival]:
        reported, last = self._reported_files.get(attempt, set()), self._last_steps.get(attempt, -1)
        for name in self.run.conflicts(attempt, names):
            if name not in reported:
                error = f"{name}: a step was written twice by one rank; the first was kept, this one is not measured"
                yield FileFault(Fault(attempt, last, "store", error))
        for name, why in self.run.troubles(attempt, names).items():
            if name not in reported:
                yield FileFault(Fault(attempt, last, "store", f"{name}: {why}"))
        damaged: list[str] = []
        waiting: dict[int, list[StepFile]] = {}
        for file in self._list(attempt, last, names, damaged, over=over):
            if file.step > last:
                waiting.setdefault(file.step, []).append(file)
            elif file.name not in reported:
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
            stride = step - self._last_steps.get(attempt, step - 1)
            self._strides[attempt] = stride if 0 < stride <= MOST_STRIDE else 1
            yield StepReady(attempt, step, tuple(files), tuple(rank for rank in range(ranks) if rank not in present))
            yield from self._evaluations(attempt, over=False)
