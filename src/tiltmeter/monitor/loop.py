"""The monitor loop: read a step, measure it, run the detectors, write the events. Read this file first.

`MonitorLoop.advance` handles every input, live and in replay. The loop's state is a function of the journal, so a
restart reads the journal again. Instruments and detectors run in `monitor/panel.py`; `monitor/arrivals.py` decides when
a step is ready; `advisor.py` gives advice and starts interventions. The file is long because restoring an input is kept
beside handling it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tiltmeter.data.baseline import Comparison
from tiltmeter.data.records import Alarm, Fault, Reading, RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.label_queue import LabelQueue
from tiltmeter.monitor.advisor import Advisor
from tiltmeter.monitor.arrivals import (
    FILE_PARTS,
    Arrival,
    AttemptEnded,
    AttemptOpened,
    ControlReply,
    EvaluationDeclared,
    ExperimentDone,
    FileFault,
    LabelsComplete,
    LiveArrivals,
    StepReady,
)  # fmt: skip
from tiltmeter.monitor.arrivals import RecordedArrivals as Recorded
from tiltmeter.monitor.measure_step import InProcess, Measurer, Rollouts, StepMeasurement
from tiltmeter.monitor.panel import InstrumentPanel
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.journal import (
    Event,
    Journal,
    JournalReader,
    event,
    event_id,
    jsonable,
    reading_event,
    readings_of,
    record_of,
)
from tiltmeter.rundir.lineage import lineage
from tiltmeter.rundir.rank_summary import LostBatches, combine_hashes, count_losses, rank_ranges
from tiltmeter.rundir.requests import ControlOffer, ControlRequest, Receipt
from tiltmeter.rundir.step_files import closed_steps, read_step
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_state import AlarmNote

OUTSIDE_PANEL = ("writer", "sampler", "counsel")  # parts of faults that do not come from the panel


class MonitorLoop:
    """The loop of one run; it writes the run's own journal or, for replay, another one."""

    def __init__(
        self,
        run: RunDirectory,
        config: Config,
        *,
        events_folder: Path | None = None,
        source: LiveArrivals | Recorded | None = None,
        reward: FunctionSource | None = None,
        measurer: Measurer | None = None,
        durable: bool = True,
        strict: bool = False,
    ) -> None:
        self.run, self.config, self._durable = run, config, durable
        self.measurer = InProcess(run, config, strict=strict) if measurer is None else measurer
        self.events_folder = run.path / "events" if events_folder is None else events_folder
        self.source = LiveArrivals(run) if source is None else source
        self.panel = InstrumentPanel(config, strict=strict)
        live = isinstance(self.source, LiveArrivals)
        self.label_queue: LabelQueue | None = None
        if config.gold is not None:
            self.label_queue = LabelQueue(run, config.gold, config.gold_share, config.gold_steps, live=live)
        self._digest = config.digest
        self.advisor = Advisor(run, self._digest, live=live, reward=reward, gold=config.gold, strict=strict)
        self._attempts: dict[int, Mapping[str, Any]] = {}
        self._first: dict[int, int] = {}  # first measured step by attempt
        self._current: int | None = None  # the attempt whose history the panel has been given
        self._now: tuple[int, int] | None = None  # attempt and step measured last
        self._fingerprint: str | None = None
        self._segment = 0
        self._losses = LostBatches()
        self._advice_failed = False  # while restoring: the advisor failed at this step
        self._step_unfinished = False  # a step is partly in the journal and must be finished first
        self._offers: dict[int, ControlOffer] = {}  # by attempt, as recorded in the journal
        self._reference_error = ""  # why the reference could not be read, until it is reported
        self._comparison = Comparison(self._read_reference())
        self.journal = self._restore()

    def poll(self) -> int:
        """Handle whatever is ready; returns the number of steps measured, steps labelled and evaluations read."""
        unfinished, self._step_unfinished = self._step_unfinished, False
        handled = 0 if unfinished else self._close_labelled_steps()
        for arrival in self.source.poll():
            if unfinished and isinstance(arrival, EvaluationDeclared):
                continue  # it comes again: first finish the step that a killed monitor had begun
            self.advance(arrival)
            handled += isinstance(arrival, (StepReady, EvaluationDeclared))
            unfinished = unfinished and not isinstance(arrival, (StepReady, AttemptEnded))
            handled += 0 if unfinished else self._close_labelled_steps()
        for facts in () if unfinished else self.advisor.poll_experiments():
            self.advance(ExperimentDone(facts))
        self.advisor.send_requests()
        return handled

    def advance(self, arrival: Arrival) -> None:
        """Handle one arrival; all its events are in the journal when this returns."""
        match arrival:
            case AttemptOpened():
                events = self._on_attempt_opened(arrival)
            case StepReady():
                events = self._on_step(arrival)
            case AttemptEnded():
                events = self._on_attempt_ended(arrival)
            case LabelsComplete():
                events = self._on_labels_complete(arrival)
            case EvaluationDeclared():
                events = self._on_evaluation(arrival)
            case ControlReply():
                events = self._on_control_reply(arrival)
            case ExperimentDone(facts):
                where = (int(facts["attempt"]), int(facts["step"]))
                events = [Event("note", *where, facts, event_id("note", "experiment", *where, facts["failure"]))]
            case FileFault(fault):
                events = [event(fault, fault.attempt, fault.step, self._digest)]
        for item in events:
            self.journal.append(item)
            self.source.mark_handled(item)

    @property
    def waiting(self) -> bool:
        """Whether requested labels may still come."""
        return self.label_queue is not None and bool(self.label_queue.open_steps)

    def _close_labelled_steps(self) -> int:
        """Request labels and close the steps whose labels are complete; returns how many."""
        count = 0
        for ready in self.label_queue.poll() if self.label_queue is not None else ():
            if isinstance(ready, Fault):
                self.advance(FileFault(ready))
            else:
                self.advance(LabelsComplete(*ready))
                count += 1
        return count

    def close(self) -> None:
        self.journal.close()

    def _on_attempt_opened(self, arrival: AttemptOpened) -> list[Event]:
        self._attempts[arrival.attempt] = arrival.facts
        data = {"state": "open", "facts": dict(arrival.facts), "config": self._digest, **self._describe_detectors()}
        return [Event("attempt", arrival.attempt, -1, data, event_id("attempt", arrival.attempt, "open", self._digest))]

    def _describe_detectors(self) -> dict[str, Any]:
        """Each detector's tier, false-alarm bound and minimum number of bets, and the gold source."""
        detectors = [
            {
                "name": part.name,
                "tier": part.tier,
                "alpha": part.alpha,
                "watches": list(part.watches),
                "least": int(getattr(part, "least", 0)),
            }
            for part in self.panel.detectors
        ]
        return {"detectors": detectors, "gold": None if self.label_queue is None else self.label_queue.facts}

    def _on_step(self, arrival: StepReady) -> list[Event]:
        attempt, step = arrival.attempt, arrival.step
        resolved, advice_events = self._enter_attempt(attempt, step)
        baseline = self._comparison.against(step)
        measurement, rollouts = self.measurer.step(arrival, baseline, self.panel.off)
        if arrival.sha256 is not None and measurement.unreadable:
            raise StoreError(next(iter(measurement.unreadable.values())))
        hashes = measurement.hashes
        if arrival.sha256 not in (None, combine_hashes(hashes)):
            raise StoreError(f"step {step} of attempt {attempt}: the files are not those that were measured")
        faults = [Fault(attempt, step, "file", why) for why in measurement.unreadable.values()]
        events = [event(fault, attempt, step, self._digest) for fault in faults]
        counts = count_losses(measurement.counters)
        events += [event(alarm, attempt, step, self._digest) for alarm in resolved] + advice_events
        events += self._loss_events(attempt, step, counts)
        data: dict[str, Any] = {
            "ranks": rank_ranges(hashes),
            "sha256": combine_hashes(hashes),
            "missing": rank_ranges(arrival.missing),
        }
        unreadable = [*arrival.unreadable, *measurement.unreadable]
        data |= {
            "unreadable": rank_ranges(unreadable),
            "rows": measurement.rows,
            "written": measurement.written,
            **counts,
        }
        if measurement.facts is not None and rollouts is not None:
            events += self._fold_step(attempt, step, measurement, rollouts)
            data |= {**measurement.facts, "segment": self._segment, "fingerprint": measurement.fingerprint}
            warned = any(
                item.kind == "alarm" and item.data["tier"] == "warning" and item.data["resolved"] is None
                for item in events
            )
            label_facts, fault_events = self._draw_label_requests(rollouts, hashes, warned)
            data |= label_facts
            events += fault_events
        self._now = (attempt, step)
        events.append(Event("step_done", attempt, step, data, event_id("step_done", attempt, step, self._digest)))
        return events

    def _fold_step(self, attempt: int, step: int, measurement: StepMeasurement, rollouts: Rollouts) -> list[Event]:
        events: list[Event] = []
        if step == self._first[attempt] and measurement.absent:
            key = event_id("note", attempt, "absent", self._digest)
            events.append(Event("note", attempt, step, {"note": "absent", "absent": dict(measurement.absent)}, key))
        if self._fingerprint is not None and measurement.fingerprint != self._fingerprint:
            # A proxy-gold gap from before a change of reward says nothing about the time after it.
            self._segment += 1
            data = {
                "note": "segment",
                "segment": self._segment,
                "before": self._fingerprint,
                "after": measurement.fingerprint,
            }
            events.append(Event("note", attempt, step, data, event_id("note", attempt, step, "segment", self._digest)))
            self.advisor.start_segment()
        self._fingerprint = measurement.fingerprint
        events += self._baseline_events(attempt, step)
        measured = self.panel.collect_readings(measurement.answers, attempt, step)
        derived, alarms = self.panel.fold(measured)
        events.append(reading_event(attempt, step, measured, derived, self._digest))
        events += [event(alarm, attempt, step, self._digest) for alarm in alarms]
        self.advisor.update_alarms(alarms)
        baseline = self._comparison.against(step)
        events += self.advisor.advise_step(attempt, step, [*measured, *derived], rollouts, baseline)
        events += [event(fault, attempt, step, self._digest) for fault in self.panel.close_step()]
        if self._comparison.baseline is None:
            self._comparison.add(rollouts())
        return events

    def _draw_label_requests(
        self, rollouts: Rollouts, ranks: Iterable[int], warned: bool
    ) -> tuple[dict[str, Any], list[Event]]:
        """Draw the label requests of a measured step; returns their part of `step_done`, and events of faults."""
        if self.label_queue is None:
            return {}, []
        batch = rollouts()
        try:
            return self.label_queue.draw_requests(batch, ranks, boost=warned), []
        except (OSError, StoreError):
            raise
        except Exception as error:
            if self.panel.strict:
                raise
            fault = Fault(batch.attempt, batch.step, "sampler", f"{type(error).__name__}: {str(error)[:200]}")
            return {}, [event(fault, batch.attempt, batch.step, self._digest)]

    def _on_labels_complete(self, arrival: LabelsComplete) -> list[Event]:
        """A step's labels are complete: make its readings, in the order in which the labels were drawn."""
        assert self.label_queue is not None
        attempt, step = arrival.attempt, arrival.step
        closed = self.label_queue.close(attempt, step)
        self.advisor.canaries_pass = bool(closed.facts.get("canaries_pass", False))
        key = event_id("labels_closed", attempt, step, self._digest)
        return self._late_events("labels_closed", attempt, step, closed.readings(), closed.facts, key)

    def _on_evaluation(self, arrival: EvaluationDeclared) -> list[Event]:
        evaluation = arrival.evaluation
        reading = Reading(
            evaluation.attempt, evaluation.step, f"eval.{evaluation.name}", evaluation.value, evaluation.n
        )
        data = {
            "note": "evaluation",
            "file": evaluation.file,
            "name": evaluation.name,
            "value": evaluation.value,
            "n": evaluation.n,
        }
        key = event_id("note", evaluation.attempt, evaluation.step, "evaluation", evaluation.name, self._digest)
        return self._late_events("note", evaluation.attempt, evaluation.step, [reading], data, key)

    def _on_control_reply(self, arrival: ControlReply) -> list[Event]:
        """A receipt or a decision about a change, and the resulting states of actions."""
        attempt, step = self._now or (0, -1)
        message = arrival.message
        note, file = "decision", message.id
        if isinstance(message, Receipt):
            note, file = "receipt", message.file.removesuffix(".json")
        data = {"note": note, "file": file, "told": jsonable(asdict(message))}
        events = [Event("note", attempt, step, data, event_id("note", note, file))]
        events += self._dismiss_alarm(message, attempt, step)
        events += self.advisor.handle_reply(message, attempt, step)
        for action in events[1:]:
            # The monitor itself applies gold_share. It reacts to the action, not to the receipt, which could be forged.
            if action.data.get("knob") == "gold_share" and self.label_queue is not None:
                after = {"applied": action.data["after"], "reverted": action.data["before"]}.get(action.data["state"])
                if after is not None:
                    self.label_queue.set_share(after)
        return events

    def _dismiss_alarm(self, message: Receipt | ControlRequest, attempt: int, step: int) -> list[Event]:
        """An operator's note that an open alarm is false resolves it. Other notes are only written down."""
        note = AlarmNote.parse(message.text) if isinstance(message, ControlRequest) and message.kind == "note" else None
        if note is None or note.kind != "false_alarm":
            return []
        resolved = self.panel.dismiss(note.about, step)
        self.advisor.update_alarms(resolved)
        return [event(alarm, attempt, step, self._digest) for alarm in resolved]

    def _late_events(
        self, kind: str, attempt: int, step: int, readings: list[Reading], facts: Mapping[str, Any], key: str
    ) -> list[Event]:
        """Events for readings that come after their step. The reading event is first: it fixes their order."""
        at = self._now or (attempt, step)
        derived, events = self._fold_late(attempt, step, readings)
        reading_data = reading_event(attempt, step, readings, derived, self._digest).data
        return [Event(kind, attempt, step, {**facts, "at": list(at), **reading_data}, key), *events]

    def _fold_late(self, attempt: int, step: int, readings: list[Reading]) -> tuple[list[Reading], list[Event]]:
        """Fold late readings: returns derived readings, and the events of alarms and faults."""
        abandoned = self._is_abandoned(attempt, step)
        derived, alarms = self.panel.fold(readings, abandoned=abandoned, now=self._now)
        if not abandoned:
            self.advisor.add_late_readings([*readings, *derived])
        if abandoned and self.panel.open_alarms and self._current is not None:
            # The run was rewound before this label came. The rewind resolves alarms once all such labels are in.
            waiting = [] if self.label_queue is None else self.label_queue.open_steps
            if not any(self._is_abandoned(*key) for key in waiting):
                alarms += self.panel.rewind(self._current, self._first[self._current])
        at = self._now or (attempt, step)
        self.advisor.update_alarms(alarms)
        events = [event(alarm, *at, self._digest) for alarm in alarms]
        faults = self.panel.close_step(kind="late")
        return derived, events + [event(fault, attempt, step, self._digest) for fault in faults]

    def _is_abandoned(self, attempt: int, step: int) -> bool:
        """Whether a rewind has discarded this step."""
        limits = {} if self._current is None else lineage(self._current, self._attempts, self._first)
        return step >= limits.get(attempt, -1)

    def _baseline_events(self, attempt: int, step: int) -> list[Event]:
        """Record the baseline, once per run, before the first comparison."""
        events: list[Event] = []
        if self._reference_error:
            events.append(event(Fault(attempt, step, "reference", self._reference_error), attempt, step, self._digest))
            self._reference_error = ""
        if (baseline := self._comparison.unrecorded_baseline) is not None:
            self._comparison.recorded_source = baseline.source
            absent = self.panel.cannot_compare(baseline)
            data = {"note": "baseline", "source": baseline.source, "rows": len(baseline.batch), "absent": absent}
            events.append(
                Event("note", attempt, step, data, event_id("note", "baseline", baseline.source, self._digest))
            )
        return events

    def _read_reference(self) -> RolloutBatch | None:
        """The reference rollouts, if any; if they cannot be read, the reason is reported at the first step."""
        try:
            return self.run.reference()
        except StoreError as error:
            self._reference_error = str(error)[:300]
            return None

    def _on_attempt_ended(self, arrival: AttemptEnded) -> list[Event]:
        events = self._loss_events(arrival.attempt, arrival.step, arrival.counts)
        key = event_id("attempt", arrival.attempt, "end", self._digest)
        return [*events, Event("attempt", arrival.attempt, arrival.step, {"state": "end", **arrival.counts}, key)]

    def _loss_events(self, attempt: int, step: int, counts: Mapping[str, Any]) -> list[Event]:
        """A fault for each rank that has lost more batches since its last report."""
        faults = [Fault(attempt, step, "writer", why) for why in self._losses.describe_new(attempt, counts["lost"])]
        return [event(fault, attempt, step, self._digest) for fault in faults]

    def _enter_attempt(self, attempt: int, step: int, before: float = float("inf")) -> tuple[list[Alarm], list[Event]]:
        """At an attempt's first step, give panel and advisor the history of this lineage only.

        Returns the alarms that the rewind resolves, and the events of the advisor.
        """
        self._first.setdefault(attempt, step)
        if attempt == self._current:
            return [], []
        self._current = attempt
        if self.label_queue is not None:
            self.label_queue.rewind(attempt, step)
        self._comparison.rewind(step)
        self.panel.reset()
        self.advisor.leave_attempt()
        limits = lineage(attempt, self._attempts, self._first)
        limits[attempt] = step
        past: dict[int, list[Event]] = {ancestor: [] for ancestor in limits}
        for step_readings, done in closed_steps(JournalReader(self.events_folder).poll()):
            if done.seq < before and done.step < limits.get(done.attempt, -1) and step_readings is not None:
                past[done.attempt].append(step_readings)
        history = [item for items in past.values() for item in items]
        for step_readings in history:
            self.advisor.update_alarms(self.panel.fold(readings_of(step_readings), history=True)[1])
        resolved = self.panel.rewind(attempt, step)
        self.advisor.update_alarms(resolved)
        events: list[Event] = []
        offer = self._offers.get(attempt)
        if offer is None and (offer := self.source.read_offer(attempt)) is not None:
            data = {"note": "offer", "offer": offer.facts()}
            events.append(Event("note", attempt, step, data, event_id("note", attempt, "offer", self._digest)))
        judged = self.label_queue is not None and bool(self.label_queue.facts.get("judged"))
        return resolved, events + self.advisor.enter_attempt(
            attempt, step, map(_all_readings, history), offer, judged=judged
        )

    def _restore(self) -> Journal:
        """Restore all state from the journal; returns a journal writer that continues it."""
        seq, config, unfinished = 0, self._digest, set()
        faults: list[Fault] = []
        step_readings: Event | None = None
        last: Event | None = None
        follow_ups: dict[
            str, Event
        ] = {}  # events that follow from the last late readings and are not in the journal yet
        for item in JournalReader(self.events_folder).poll():
            seq, last = max(seq, item.seq + 1), item
            self.source.mark_handled(item)
            unfinished.add(item.id)
            config = item.data.get("config", config)
            if self.label_queue is not None and item.kind != "step_done":
                self.label_queue.apply_event(item)
            match item.kind:
                case _ if follow_ups.pop(item.id, None) is not None:
                    continue
                case "attempt":
                    if item.data["state"] == "open":
                        self._attempts[item.attempt] = item.data["facts"]
                    self._losses.describe_new(item.attempt, item.data.get("lost", {}))
                    self._step_unfinished = False
                case "note" if item.data.get("note") == "experiment":
                    pass
                case "note" if item.data.get("note") == "offer":
                    self._step_unfinished = True
                    self._offers[item.attempt] = ControlOffer.of(item.data["offer"])
                case "note" if item.data.get("note") in ("receipt", "decision"):
                    kind = Receipt if item.data["note"] == "receipt" else ControlRequest
                    follow_ups = {
                        follow_up.id: follow_up
                        for follow_up in self._on_control_reply(ControlReply(kind(**item.data["told"])))[1:]
                    }
                case "labels_closed" | "note" if "measured" in item.data:
                    self.advisor.canaries_pass = bool(item.data.get("canaries_pass", False))
                    follow_ups = {
                        follow_up.id: follow_up
                        for follow_up in self._fold_late(item.attempt, item.step, readings_of(item))[1]
                    }
                case "fault" if item.data["part"] in FILE_PARTS:
                    pass
                case "step_done":
                    self._restore_step(item, step_readings, faults)
                    if self.label_queue is not None:
                        self.label_queue.apply_event(item)  # after the attempt is entered, as when it ran
                    step_readings, faults, follow_ups, unfinished, self._step_unfinished = None, [], {}, set(), False
                case _:
                    self._step_unfinished = self._step_unfinished or item.data.get("note") != "config"
                    step_readings = item if item.kind == "reading" else step_readings
                    faults += self._restore_partial_step(item)
        if self.label_queue is not None:
            self.label_queue.resume()
        journal = Journal(self.events_folder, seq, unfinished, durable=self._durable)
        for follow_up in follow_ups.values():
            journal.append(follow_up)
        if config != self._digest and last is not None:
            # Another version or other plug-ins from here on: record it, because a replay uses one configuration.
            data = {"note": "config", "config": self._digest, **self._describe_detectors()}
            key = event_id("note", "config", journal.seq, self._digest)
            journal.append(Event("note", last.attempt, last.step, data, key))
        return journal

    def _restore_partial_step(self, item: Event) -> list[Fault]:
        """Restore part of an unfinished step; returns its fault if it is one of the panel."""
        if item.kind == "note" and item.data.get("note") == "baseline":
            self._comparison.recorded_source = item.data["source"]
        elif item.kind == "fault" and item.data["part"] == "reference":
            self._reference_error = ""
        elif item.kind == "fault" and item.data["part"] == "counsel":
            self._advice_failed = True
        elif item.kind == "fault" and item.data["part"] not in OUTSIDE_PANEL:
            fault = record_of(item)
            assert isinstance(fault, Fault)
            return [fault]
        return []

    def _restore_step(self, done: Event, step_readings: Event | None, faults: list[Fault]) -> None:
        self._enter_attempt(done.attempt, done.step, before=done.seq)
        self._now = (done.attempt, done.step)
        self._losses.describe_new(done.attempt, done.data["lost"])
        if step_readings is None:
            return
        if done.data["segment"] > self._segment:
            self.advisor.start_segment()
        self._fingerprint, self._segment = done.data["fingerprint"], done.data["segment"]
        self.advisor.update_alarms(self.panel.fold(readings_of(step_readings))[1])
        if self._advice_failed:
            self.advisor.mute()
            self._advice_failed = False
        self.advisor.advise_step(done.attempt, done.step, _all_readings(step_readings), None, None)
        self.panel.close_step(faults)
        if self._comparison.baseline is None and done.data["rows"]:
            try:
                batch = read_step(self.run, done.attempt, done.step, done.data["ranks"])
            except StoreError:
                batch = None  # deleted since: later steps are used instead
            self._comparison.add(batch)


def _all_readings(reading_item: Event) -> list[Reading]:
    return [*readings_of(reading_item), *readings_of(reading_item, "derived")]
