"""What the loop is given next: from a directory that is being written, or from what a recorded journal says was used.

The two sources give the same kinds of arrival, so live watching and replay are one loop. A live source decides when a
step is ready: when all its ranks are there, or three later steps are complete, or the attempt is over. What it decided
is fixed by the `step_done` event, which a recorded source follows: replay never depends on the order of arrival.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiltmeter.control import Offer, Receipt, Request, read_knobs, receipts, requests
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.evaluations import Evaluation, declared
from tiltmeter.journal import Event, record_of
from tiltmeter.ranks import account, expand
from tiltmeter.records import Fault
from tiltmeter.signing import read_token
from tiltmeter.store import RunDirectory, StepFile

PATIENCE = 3  # complete later steps before a step is measured without its missing ranks
GIVEN_UP = 16  # later steps of any rank: more than a rank's writer can be behind, so the missing one is gone


@dataclass(frozen=True, slots=True)
class Opened:
    """A trainer started, or resumed: a new attempt."""

    attempt: int
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """The files of one step, to be measured together."""

    attempt: int
    step: int
    files: tuple[StepFile, ...]
    missing: tuple[int, ...]  # ranks
    sha256: str | None = None  # what the files must be, together, when a journal says so
    unreadable: tuple[int, ...] = ()  # ranks that could not be read then, when a journal says so


@dataclass(frozen=True, slots=True)
class Ended:
    """Every rank of an attempt closed; what they saw and lost, as `ranks.account` tells it."""

    attempt: int
    step: int
    account: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Labelled:
    """Every label that a step's bets need was answered or given up: they can be settled from the files."""

    attempt: int
    step: int


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Somebody declared an evaluation."""

    evaluation: Evaluation


@dataclass(frozen=True, slots=True)
class Answered:
    """A rank of the trainer did, or refused, what was asked of it; or a person decided about a proposal."""

    told: Receipt | Request


@dataclass(frozen=True, slots=True)
class Tried:
    """An experiment on the user's reward function has ended."""

    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something about the files themselves."""

    fault: Fault


Arrival = Opened | Step | Ended | Labelled | Evaluated | Answered | Tried | Trouble
#: Parts of a fault that is about files: a replay takes it from the journal, because the files may have changed since.
FILES = ("store", "file", "label", "control")


class LiveArrivals:
    """Follows a directory. What was already handled is told by `done`, event by event, so a restart misses nothing."""

    def __init__(self, run: RunDirectory) -> None:
        self.run = run
        self._opened: set[int] = set()
        self._ended: set[int] = set()
        self._last: dict[int, int] = {}  # by attempt
        self._measured: dict[int, set[int]] = {}  # steps by attempt
        self._missing: dict[tuple[int, int], set[int]] = {}  # ranks by (attempt, step), only where some were
        self._reported: dict[int, set[str]] = {}  # file names by attempt
        self._evaluated: set[str] = set()  # file names
        self._answered: set[str] = set()  # names of receipts and of people's decisions
        self._declared: dict[int, list[Evaluation | tuple[int, int, str]]] = {}  # by attempt, those not handled

    def done(self, event: Event) -> None:
        """Take note of an event that was written down."""
        if event.kind == "attempt":
            (self._opened if event.data["state"] == "open" else self._ended).add(event.attempt)
        elif event.kind == "step_done":
            self._last[event.attempt] = max(event.step, self._last.get(event.attempt, event.step))
            self._measured.setdefault(event.attempt, set()).add(event.step)
            if event.data["missing"]:
                self._missing[event.attempt, event.step] = set(expand(event.data["missing"]))
        elif event.kind == "fault" and event.data["part"] == "store":
            name = event.data["error"].split(":")[0]
            self._reported.setdefault(event.attempt, set()).add(name)
            self._evaluated.add(name)
        elif event.kind == "note" and event.data["note"] == "evaluation":
            self._evaluated.add(event.data["file"])
        elif event.kind == "note" and event.data["note"] in ("receipt", "decision"):
            self._answered.add(event.data["file"])
        elif event.kind == "fault" and event.data["part"] == "control":
            self._answered.add(event.data["error"].split(":")[0])

    def poll(self) -> Iterator[Arrival]:
        """What is ready now, oldest attempt first. Each arrival must be handled before the next is drawn."""
        self._declared = declared(self.run, self._evaluated)
        attempts = self.run.attempts()
        for attempt in attempts:
            if attempt in self._ended and attempt != attempts[-1] and attempt not in self._declared:
                continue
            facts = self.run.attempt(attempt)
            if not facts:
                continue  # claimed a moment ago
            if attempt not in self._opened:
                yield Opened(attempt, facts)
            # Asked before listing: whatever a rank wrote before it closed is then in the list.
            ended = self.run.ended(attempt)
            yield from self._steps(attempt, int(facts.get("ranks", 1)), over=ended or attempt != attempts[-1])
            if ended and attempt not in self._ended:
                yield Ended(attempt, self._last.get(attempt, -1), account(self.run.counters(attempt)))
            yield from self._evaluations(attempt, over=ended or attempt != attempts[-1])
        if attempts:
            yield from self._answers(attempts[-1])

    def offer(self, attempt: int) -> Offer | None:
        """What this attempt's trainer lets others change; None where nothing was published that can be read."""
        try:
            return read_knobs(self.run, attempt)
        except StoreError:
            return None

    def _answers(self, attempt: int) -> Iterator[Arrival]:
        """What trainer and people have answered. Whoever may not read the token reads receipts only."""
        last = self._last.get(attempt, -1)
        told, refused = receipts(self.run, self._answered)
        try:
            token = read_token(self.run) if (self.run.path / "control" / "requests").is_dir() else None
        except AttachError:
            token = None
        decisions: list[Request] = []
        if token is not None:
            decisions, _ = requests(
                self.run, self._answered, token, attempt=attempt, step=last, mode="advise", kinds=("reject", "note")
            )
        yield from (Answered(receipt) for receipt in told)
        yield from (Answered(decision) for decision in decisions)
        for name, why, _ in refused:
            yield Trouble(Fault(attempt, last, "control", f"{name}: {why}"))

    def _evaluations(self, attempt: int, *, over: bool) -> Iterator[Arrival]:
        """Those of steps that are measured, or that will not come any more."""
        for found in self._declared.get(attempt, []):
            step = found.step if isinstance(found, Evaluation) else found[1]
            name = found.file if isinstance(found, Evaluation) else found[2].split(":")[0]
            if name in self._evaluated or not (over or step <= self._last.get(attempt, -1)):
                continue
            if isinstance(found, Evaluation):
                yield Evaluated(found)
            else:
                yield Trouble(Fault(attempt, step, "store", found[2]))

    def _steps(self, attempt: int, ranks: int, *, over: bool) -> Iterator[Arrival]:
        reported, last = self._reported.get(attempt, set()), self._last.get(attempt, -1)
        measured = self._measured.get(attempt, set())
        for name in self.run.conflicts(attempt):
            if name not in reported:
                error = f"{name}: a step was written twice by one rank; the first was kept, this one is not measured"
                yield Trouble(Fault(attempt, last, "store", error))
        for name, why in self.run.troubles(attempt).items():
            if name not in reported:
                yield Trouble(Fault(attempt, last, "store", f"{name}: {why}"))
        damaged: list[str] = []
        waiting: dict[int, list[StepFile]] = {}
        for file in self.run.files(attempt, damaged):
            if file.step > last:
                waiting.setdefault(file.step, []).append(file)
                continue
            late = file.step not in measured or file.rank in self._missing.get((attempt, file.step), ())
            if late and file.name not in reported:
                error = f"{file.name}: arrived after its step was measured; kept, not measured"
                yield Trouble(Fault(attempt, last, "store", error))
        for error in damaged:
            if error.split(":")[0] not in reported:
                yield Trouble(Fault(attempt, last, "store", error))
        complete = sorted(step for step, files in waiting.items() if len(files) >= ranks)
        for place, step in enumerate(sorted(waiting), start=1):
            files = waiting[step]
            hopeful = len(complete) - bisect_right(complete, step) < PATIENCE and len(waiting) - place < GIVEN_UP
            if len(files) < ranks and not over and hopeful:
                return
            present = {file.rank for file in files}
            yield Step(attempt, step, tuple(files), tuple(rank for rank in range(ranks) if rank not in present))
            yield from self._evaluations(attempt, over=False)


class RecordedArrivals:
    """Follows a journal: the same files in the same order, checked against the hashes it recorded."""

    def __init__(self, run: RunDirectory, events: Sequence[Event]) -> None:
        self.run, self.events = run, events

    def done(self, event: Event) -> None:
        pass

    def offer(self, attempt: int) -> Offer | None:
        """As the journal has it: the file may be gone, or be another one by now."""
        told = (item.data for item in self.events if item.data.get("note") == "offer" and item.attempt == attempt)
        return next((Offer.of(data["offer"]) for data in told), None)

    def poll(self) -> Iterator[Arrival]:
        for event in self.events:
            if event.kind == "attempt" and event.data["state"] == "open":
                yield Opened(event.attempt, event.data["facts"])
            elif event.kind == "attempt":
                yield Ended(event.attempt, event.step, {key: event.data[key] for key in ("seen", "lost")})
            elif event.kind == "fault" and event.data["part"] in FILES:
                fault = record_of(event)
                assert isinstance(fault, Fault)
                yield Trouble(fault)
            elif event.kind == "labels_closed":
                yield Labelled(event.attempt, event.step)
            elif event.kind == "note" and event.data["note"] == "evaluation":
                name, value, n = (event.data[key] for key in ("name", "value", "n"))
                yield Evaluated(Evaluation(event.attempt, event.step, name, value, n))
            elif event.kind == "note" and event.data["note"] == "receipt":
                yield Answered(Receipt(**event.data["told"]))
            elif event.kind == "note" and event.data["note"] == "decision":
                yield Answered(Request(**event.data["told"]))
            elif event.kind == "note" and event.data["note"] == "experiment":
                yield Tried(event.data)
            elif event.kind == "step_done":
                yield self._step(event)

    def _step(self, event: Event) -> Step:
        known = {file.rank: file for file in self.run.find(event.attempt, event.step)}
        ranks = expand(event.data["ranks"])
        if lost := [rank for rank in ranks if rank not in known]:
            where = f"step {event.step} of attempt {event.attempt}"
            raise StoreError(f"{where} cannot be replayed: the file of rank {lost[0]} is gone")
        files = tuple(known[rank] for rank in ranks)
        missing, unreadable = expand(event.data["missing"]), expand(event.data["unreadable"])
        return Step(event.attempt, event.step, files, tuple(missing), event.data["sha256"], tuple(unreadable))
