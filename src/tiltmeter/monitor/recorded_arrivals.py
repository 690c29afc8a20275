"""What had arrived, from a journal: for a replay the arrivals, for a restart the inputs that were read from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from msgspec import convert

from tiltmeter.data.records import Fault
from tiltmeter.errors import StoreError
from tiltmeter.monitor.arrivals import (
    FILE_PARTS,
    Arrival,
    AttemptEnded,
    AttemptOpened,
    ControlReply,
    EvaluationDeclared,
    ExperimentDone,
    FileFault,
    Input,
    LabelsComplete,
    LabelsSettled,
    PastEstimated,
    PastLabelled,
    RecordedStep,
    StepMeasured,
    StepReady,
)
from tiltmeter.monitor.panel import InstrumentResult
from tiltmeter.rundir.evaluations import Evaluation
from tiltmeter.rundir.journal import Event, as_journal_errors, readings_of
from tiltmeter.rundir.payloads import (
    AttemptEnd,
    AttemptOpen,
    BaselineChosen,
    BehavioursRead,
    DecisionRead,
    EvaluationRead,
    ExperimentRead,
    KnobsOffered,
    LabelsClosed,
    OnsetEstimated,
    ReceiptRead,
    StepDone,
)
from tiltmeter.rundir.rank_summary import expand_ranges
from tiltmeter.rundir.requests import ControlOffer, ControlRequest, parse_receipt
from tiltmeter.rundir.step_files import read_step
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.stats.checkpoint_falls import UNKNOWN

OUTSIDE_PANEL = (*FILE_PARTS, "writer", "sampler", "counsel", "reference")  # parts of faults that are not the panel's


class RecordedArrivals:
    """Follows a journal for a replay: the same files in the same order, checked against the hashes it recorded."""

    def __init__(self, run: RunDirectory, events: Sequence[Event]) -> None:
        self.run, self.events = run, events

    def mark_handled(self, event: Event) -> None:
        pass

    def read_offer(self, attempt: int) -> ControlOffer | None:
        """As recorded in the journal: the file may have changed or be gone."""
        return recorded_offer(item for item in self.events if item.attempt == attempt)

    def poll(self) -> Iterator[Arrival]:
        for event in self.events:
            with as_journal_errors(self.run.path / "events"):
                arrival = self._arrival(event)
            if arrival is not None:
                yield arrival

    def _arrival(self, event: Event) -> Arrival | None:
        match event.payload:
            case LabelsClosed():
                return LabelsComplete(event.attempt, event.step)
            case OnsetEstimated():
                return PastLabelled(event.attempt, event.step)
            case StepDone() as done:
                return self._step(event, done)
        return arrival_of(event)

    def _step(self, event: Event, done: StepDone) -> StepReady:
        by_rank = {file.rank: file for file in self.run.find(event.attempt, event.step)}
        ranks = expand_ranges(done.ranks)
        if lost := [rank for rank in ranks if rank not in by_rank]:
            where = f"step {event.step} of attempt {event.attempt}"
            raise StoreError(f"{where} cannot be replayed: the file of rank {lost[0]} is gone")
        files = tuple(by_rank[rank] for rank in ranks)
        missing, unreadable = expand_ranges(done.missing), expand_ranges(done.unreadable)
        return StepReady(event.attempt, event.step, files, tuple(missing), done.sha256, tuple(unreadable))


def arrival_of(
    event: Event,
) -> AttemptOpened | AttemptEnded | EvaluationDeclared | ControlReply | ExperimentDone | FileFault | None:
    """The arrival that an event wrote down, where no file has to be read again; None if it is no such event."""
    match event.payload:
        case AttemptOpen(facts=facts):
            return AttemptOpened(event.attempt, facts)
        case AttemptEnd() as end:
            return AttemptEnded(event.attempt, event.step, {"seen": end.seen, "lost": end.lost})
        case Fault() as fault if fault.part in FILE_PARTS:
            return FileFault(fault)
        case EvaluationRead(name=name, value=value, n=n, env=env) as read:
            bets = () if env else read.measured.get(f"eval.{name}", ())[3:4]
            values = tuple(None if value == UNKNOWN else value for value in bets[0]) if bets else ()
            one = Evaluation(
                event.attempt,
                event.step,
                name,
                value,
                n,
                env or "",
                values,
                read.judge or "",
                read.missed or 0,
                read.unknown or 0,
            )
            return EvaluationDeclared(one)
        case ReceiptRead(message=message):
            return ControlReply(parse_receipt(message))
        case DecisionRead(message=message):
            return ControlReply(convert(message, ControlRequest))
        case ExperimentRead():
            return ExperimentDone(event.data)
    return None


def recorded_inputs(run: RunDirectory, events: Iterable[Event]) -> Iterator[tuple[Input, list[Event]]]:
    """Every input of a journal in its order, with its events.

    A commit that ends with `step_done` is a step; of every other commit the first event says what came, and the rest
    are conclusions.
    """
    for _, commit in groupby(events, key=lambda one: one.commit):
        together = list(commit)
        first, last = together[0], together[-1]
        item: Input | None
        match last.payload, first.payload:
            case StepDone() as done, _:
                item = _recorded_step(run, together, done)
            case _, LabelsClosed():
                item = LabelsSettled(first.attempt, first.step, tuple(readings_of(first)), first.data)
            case _, OnsetEstimated() as onset:
                item = PastEstimated(first.attempt, first.step, onset)
            case _:
                item = arrival_of(first)
        if item is not None:  # it is None where other settings were noted
            yield item, together


def recorded_offer(events: Iterable[Event]) -> ControlOffer | None:
    """The knobs that the trainer had published, if these events say so."""
    offers = (item.payload for item in events if item.kind == "note")
    return next((ControlOffer.of(item.offer) for item in offers if isinstance(item, KnobsOffered)), None)


def _recorded_step(run: RunDirectory, events: Sequence[Event], done: StepDone) -> StepMeasured:
    last, payloads = events[-1], [item.payload for item in events]
    at = next((position for position, item in enumerate(events) if item.kind == "reading"), None)
    faults = [item for item in payloads if isinstance(item, Fault)]
    # The panel's faults follow its readings.
    own = [] if at is None else [item for item in payloads[at:] if isinstance(item, Fault)]
    recorded = RecordedStep(
        last.seq,
        tuple(fault for fault in own if fault.part not in OUTSIDE_PANEL),
        any(fault.part == "counsel" for fault in faults),
        next((item.source for item in payloads if isinstance(item, BaselineChosen)), ""),
        any(fault.part == "reference" for fault in faults),
    )
    return StepMeasured(
        last.attempt,
        last.step,
        done,
        None if at is None else (InstrumentResult("", tuple(readings_of(events[at]))),),
        lambda: read_step(run, last.attempt, last.step, done.ranks),
        behaviours=next((tuple(item.seen) for item in payloads if isinstance(item, BehavioursRead)), ()),
        recorded=recorded,
    )
