"""What the monitor remembers of its run between two arrivals, and what follows from the next. The loop alone uses it.

`MonitorMemory.apply` is the only code that changes this memory, and the only code that concludes. Live, it is given
what was just measured, and its events are committed. After a restart it is given what the journal recorded, and its
events are dropped, because they are in the journal. In a replay everything is measured again and its events are
compared.
So there is one path, and what a restart remembers cannot differ from what was remembered before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from msgspec import UNSET, convert, to_builtins
from msgspec.structs import replace

from tiltmeter.data.baseline import Baseline, Comparison
from tiltmeter.data.lineage import lineage
from tiltmeter.data.records import Alarm, Fault, Reading, RolloutBatch
from tiltmeter.data.slices import PREFIX as SLICES
from tiltmeter.data.slices import with_single_readings
from tiltmeter.errors import StoreError
from tiltmeter.gold.label_queue import LabelQueue
from tiltmeter.gold.onset_labels import StoredStep, steps_of
from tiltmeter.monitor.advisor import Advisor
from tiltmeter.monitor.arrivals import (
    AttemptEnded,
    AttemptOpened,
    ControlReply,
    EvaluationDeclared,
    ExperimentDone,
    FileFault,
    Input,
    LabelsSettled,
    PastEstimated,
    Rollouts,
    StepMeasured,
)
from tiltmeter.monitor.behaviour_tracker import BehaviourTracker, rows_to_look_at
from tiltmeter.monitor.panel import InstrumentPanel, InstrumentResult
from tiltmeter.rundir.journal import Event, event, event_id, jsonable, pack_readings, reading_event, readings_of
from tiltmeter.rundir.payloads import (
    AbsentColumns,
    AttemptEnd,
    AttemptOpen,
    BaselineChosen,
    BehavioursRead,
    ColumnTrial,
    DecisionRead,
    EvaluationRead,
    GoldShareChosen,
    KnobsOffered,
    Note,
    ReceiptRead,
    SegmentBegan,
    SettingsChanged,
    to_data,
)
from tiltmeter.rundir.rank_summary import LostBatches, expand_ranges
from tiltmeter.rundir.requests import ControlOffer, Receipt
from tiltmeter.rundir.step_files import closed_steps
from tiltmeter.stats.checkpoint_falls import UNKNOWN
from tiltmeter.verdict.answer_column import ON_TRIAL, REFUSED, follow_trial
from tiltmeter.verdict.run_facts import AlarmNote, past_readings


class MonitorMemory:
    """The memory of one run. `history` reads the journal so far, for an attempt that goes on from an earlier one."""

    def __init__(
        self,
        digest: str,
        panel: InstrumentPanel,
        advisor: Advisor,
        label_queue: LabelQueue | None,
        *,
        reference: Callable[[], RolloutBatch | None],
        history: Callable[[], Iterable[Event]],
    ) -> None:
        self.panel, self.advisor, self.label_queue = panel, advisor, label_queue
        self._digest, self.history = digest, history
        self._attempts: dict[int, Mapping[str, Any]] = {}
        self._first: dict[int, int] = {}  # first measured step by attempt
        self._current: int | None = None  # the attempt whose history the panel has been given
        self._now: tuple[int, int] | None = None  # attempt and step measured last
        self._fingerprint: str | None = None
        self._segment = 0
        self._trial: ColumnTrial | None = None  # of a column that gold took by itself
        self._losses = LostBatches()
        self._behaviours = BehaviourTracker()
        self._rows_to_look_at: dict[str, list[list[int]]] = {}  # of the newest step, by behaviour
        self.past_due: dict[tuple[int, int], Alarm] = {}  # open alarms on gold whose past is not labelled yet
        self._reference_error = ""  # why the reference could not be read, until it is reported
        try:
            self._comparison = Comparison(reference())
        except StoreError as error:
            self._reference_error, self._comparison = str(error)[:300], Comparison(None)

    def apply(self, item: Input) -> list[Event]:
        """Remember one input; returns its events, in the order in which they are committed."""
        events = self._apply(item)
        for one in events:
            if one.kind == "alarm" and one.data["tier"] == "alarm" and one.data["name"].startswith("gold."):
                key = (int(one.data["attempt"]), int(one.data["step"]))
                self.past_due.pop(key, None)
                if one.data["resolved"] is None:
                    self.past_due[key] = Alarm(**{name: one.data[name] for name in Alarm.__dataclass_fields__})
        return events

    @property
    def alarms_without_onset(self) -> list[tuple[int, int]]:
        """Attempt and step of open alarms on gold for which labels of the past are due."""
        return list(self.past_due)

    def stored_steps(self, last: int) -> list[StoredStep]:
        """The measured steps of the current lineage up to a step, from the journal."""
        limits = {} if self._current is None else lineage(self._current, self._attempts, self._first)
        return steps_of(self.history(), limits, last)

    def _on_past(self, item: PastEstimated) -> list[Event]:
        """Labels of the past, by which advice knows better when gold turned."""
        onset = item.onset
        if self.past_due.pop((item.attempt, item.step), None) is not None:
            self.advisor.add_past(past_readings(onset, item.attempt))
        return [self._note(onset, item.attempt, item.step, item.attempt, item.step, "onset")]

    def _apply(self, item: Input) -> list[Event]:
        match item:
            case AttemptOpened():
                self._attempts[item.attempt] = item.facts
                opened = AttemptOpen(facts=dict(item.facts), config=self._digest, **self.settings())
                return [self._event("attempt", item.attempt, -1, to_data(opened), "open")]
            case AttemptEnded():
                ended = AttemptEnd(seen=item.counts["seen"], lost=item.counts["lost"])
                events = self._loss_events(item.attempt, item.step, item.counts["lost"])
                return [*events, self._event("attempt", item.attempt, item.step, to_data(ended), "end")]
            case StepMeasured():
                return self._on_step(item)
            case LabelsSettled():
                return self._on_labels(item)
            case PastEstimated():
                return self._on_past(item)
            case EvaluationDeclared():
                return self._on_evaluation(item)
            case ControlReply():
                return self._on_reply(item)
            case ExperimentDone(facts):
                where = (int(facts["attempt"]), int(facts["step"]))
                self.advisor.add_experiment(facts)
                return [Event("note", *where, facts, event_id("note", "experiment", *where, facts["failure"]))]
            case FileFault(fault):
                if fault.part == "label" and self.label_queue is not None:
                    self.label_queue.reported.add(fault.error.split(":")[0])
                return [event(fault, fault.attempt, fault.step, self._digest)]

    # -- attempts -----------------------------------------------------------------------------------------------------

    def settings(self) -> dict[str, Any]:
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

    def settings_event(self, last: Event, seq: int) -> Event:
        """Other settings or another version from here on: recorded, because a replay uses one configuration."""
        data = to_data(SettingsChanged(config=self._digest, **self.settings()))
        return Event("note", last.attempt, last.step, data, event_id("note", "config", seq, self._digest))

    def enter_attempt(
        self, attempt: int, step: int, offer: Callable[[int], ControlOffer | None], before: float = float("inf")
    ) -> list[Event]:
        """Before a step is measured: at an attempt's first step, panel and advisor get the history of its lineage only.

        `before`: events of the journal from this number on are not part of that history.
        """
        self._first.setdefault(attempt, step)
        if attempt == self._current:
            return []
        self._current = attempt
        if self.label_queue is not None:
            self.label_queue.rewind(attempt, step)
        self._comparison.rewind(step)
        self._behaviours.rewind(step)
        self.panel.reset()
        self.advisor.leave_attempt()
        limits = lineage(attempt, self._attempts, self._first)
        limits[attempt] = step
        past: dict[int, list[Event]] = {ancestor: [] for ancestor in limits}
        for step_readings, done in closed_steps(self.history()):
            if done.seq < before and done.step < limits.get(done.attempt, -1) and step_readings is not None:
                past[done.attempt].append(step_readings)
        history = [item for items in past.values() for item in items]
        for step_readings in history:
            self.advisor.update_alarms(self.panel.fold(readings_of(step_readings), history=True)[1])
        resolved = self.panel.rewind(attempt, step)
        self.advisor.update_alarms(resolved)
        events = self._record_events(resolved, attempt, step)
        if (knobs := offer(attempt)) is not None:
            events.append(self._note(KnobsOffered(offer=knobs.facts()), attempt, step, attempt, "offer"))
        judged = self.label_queue is not None and bool(self.label_queue.facts.get("judged"))
        return events + self.advisor.enter_attempt(attempt, step, map(_all_readings, history), knobs, judged=judged)

    def _is_abandoned(self, attempt: int, step: int) -> bool:
        """Whether a rewind has discarded this step."""
        limits = {} if self._current is None else lineage(self._current, self._attempts, self._first)
        return step >= limits.get(attempt, -1)

    def _loss_events(self, attempt: int, step: int, lost: Mapping[str, Sequence[Any]]) -> list[Event]:
        """A fault for each rank that has lost more batches since its last report."""
        faults = [Fault(attempt, step, "writer", why) for why in self._losses.describe_new(attempt, lost)]
        return self._record_events(faults, attempt, step)

    # -- steps --------------------------------------------------------------------------------------------------------

    def baseline_for(self, step: int) -> Baseline | None:
        """What this step is compared with."""
        return self._comparison.against(step)

    def _on_step(self, item: StepMeasured) -> list[Event]:
        attempt, step, done = item.attempt, item.step, item.done
        events = self._loss_events(attempt, step, done.lost)
        self._now = (attempt, step)
        if item.answers is not None and item.rollouts is not None:
            events += self._fold_step(item, item.answers, item.rollouts)
            done = replace(done, segment=self._segment)
            warned = any(map(_calls_for_labels, events))
            requests, faults = self._request_labels(item, warned)
            done = replace(done, **requests)
            events += faults
        key = event_id("step_done", attempt, step, self._digest)
        return [*events, Event("step_done", attempt, step, to_data(done), key)]

    def _fold_step(self, item: StepMeasured, answers: Iterable[InstrumentResult], rollouts: Rollouts) -> list[Event]:
        attempt, step, recorded = item.attempt, item.step, item.recorded
        events: list[Event] = []
        if step == self._first[attempt] and item.absent:
            events.append(self._note(AbsentColumns(absent=dict(item.absent)), attempt, step, attempt, "absent"))
        events += self._begin_segment(item)
        events += self._baseline_events(item)
        measured = self.panel.collect_readings(answers, attempt, step)
        derived, alarms = self.panel.fold(measured)
        events.append(reading_event(attempt, step, measured, derived, self._digest))
        events += self._record_events(alarms, attempt, step)
        self.advisor.update_alarms(alarms)
        if recorded is not None and recorded.advice_failed:
            self.advisor.mute()
        events += self._follow_behaviours(item)
        live = recorded is None
        against = self.baseline_for(step) if live else None
        # Exemplars and experiments need the rollouts; what was found before a restart has them already.
        events += self.advisor.advise_step(attempt, step, [*measured, *derived], rollouts if live else None, against)
        faults = self.panel.close_step(None if recorded is None else recorded.faults)
        events += self._record_events(faults, attempt, step)
        if self._comparison.baseline is None and (live or item.done.rows):
            try:
                self._comparison.add(rollouts())
            except StoreError:
                if live:
                    raise
                self._comparison.add(None)  # deleted since: later steps are used instead
        return events

    def _follow_behaviours(self, item: StepMeasured) -> list[Event]:
        """Number the behaviours of a step; those that are new and well paid are looked at with labels."""
        seen = self._behaviours.fold(item.step, item.behaviours)
        self._rows_to_look_at = rows_to_look_at(item.step, seen)
        if not seen:
            return []
        return [self._note(BehavioursRead(seen=seen), item.attempt, item.step, item.attempt, item.step, "behaviours")]

    def _begin_segment(self, item: StepMeasured) -> list[Event]:
        """A change of the reward: a proxy-gold gap from before it says nothing about the time after it."""
        before, after = self._fingerprint, item.done.fingerprint
        assert isinstance(after, str)
        self._fingerprint = after
        if before is None or before == after:
            return []
        self._segment += 1
        self.advisor.start_segment()
        note = SegmentBegan(segment=self._segment, before=before, after=after)
        return [self._note(note, item.attempt, item.step, item.attempt, item.step, "segment")]

    def _baseline_events(self, item: StepMeasured) -> list[Event]:
        """Record the baseline, once per run, before the first comparison."""
        recorded, events = item.recorded, list[Event]()
        if recorded is not None:
            self._comparison.recorded_source = recorded.baseline or self._comparison.recorded_source
            self._reference_error = "" if recorded.reference_failed else self._reference_error
            return []
        if self._reference_error:
            fault = Fault(item.attempt, item.step, "reference", self._reference_error)
            events += self._record_events([fault], item.attempt, item.step)
            self._reference_error = ""
        if (baseline := self._comparison.unrecorded_baseline) is not None:
            self._comparison.recorded_source = baseline.source
            absent = self.panel.cannot_compare(baseline)
            note = BaselineChosen(source=baseline.source, rows=len(baseline.batch), absent=absent)
            events.append(self._note(note, item.attempt, item.step, "baseline", baseline.source))
        return events

    def _request_labels(self, item: StepMeasured, warned: bool) -> tuple[dict[str, Any], list[Event]]:
        """Draw what to label of a measured step; returns the fields of `step_done` about it, and events of faults."""
        if self.label_queue is None or item.rollouts is None:
            return {}, []
        if item.recorded is not None:
            if item.done.requests is not UNSET:
                self.label_queue.restore_draw(item.attempt, item.step, item.done)
            return {}, []
        batch = item.rollouts()
        try:
            fields = self.label_queue.draw_requests(
                batch,
                expand_ranges(item.done.ranks),
                boost=warned,
                behaviours=self._rows_to_look_at,
                first_steps=self.baseline_for(item.step),
            )
            return fields, self._share_events(item.attempt, item.step)
        except (OSError, StoreError):
            raise
        except Exception as error:
            if self.panel.strict:
                raise
            fault = Fault(batch.attempt, batch.step, "sampler", f"{type(error).__name__}: {str(error)[:200]}")
            return {}, self._record_events([fault], batch.attempt, batch.step)

    def _share_events(self, attempt: int, step: int) -> list[Event]:
        """A note on the share that was chosen by cost, at the first step that it holds for."""
        assert self.label_queue is not None
        if (cost := self.label_queue.take_choice()) is None:
            return []
        note = GoldShareChosen(share=cost.share, seconds=cost.seconds, why=cost.why)
        return [self._note(note, attempt, step, "gold_share", cost.source)]

    # -- what comes later than its step -------------------------------------------------------------------------------

    def _on_labels(self, item: LabelsSettled) -> list[Event]:
        """A step's labels: its readings, in the order in which the labels were drawn."""
        facts, readings = self._try_column(item)
        if self.label_queue is not None:  # it is None where the run had gold, and goes on without
            facts = self.label_queue.close(item.attempt, item.step, readings, facts)
        self.advisor.canaries_pass = bool(facts.get("canaries_pass", False))
        late, events = self._fold_late(item.attempt, item.step, readings)
        return [self._event("labels_closed", item.attempt, item.step, {**facts, **late}, item.step), *events]

    def _try_column(self, item: LabelsSettled) -> tuple[Mapping[str, Any], Sequence[Reading]]:
        """A step's facts and readings, with the trial of a column that nobody named; none of one that was refused."""
        source = "" if self.label_queue is None else self.label_queue.source.identity
        if not source.endswith(ON_TRIAL):
            return item.facts, item.readings
        if recorded := item.facts.get("trial"):
            self._trial = convert(recorded, ColumnTrial)
            return item.facts, item.readings
        before, answered = self._trial, int(item.facts["answered"])
        self._trial = trial = follow_trial(before, source, answered, pack_readings(item.readings, [])["measured"])
        facts = item.facts if trial is before else {**item.facts, "trial": to_builtins(trial)}
        return facts, () if trial.state == REFUSED else item.readings

    def _on_evaluation(self, item: EvaluationDeclared) -> list[Event]:
        one = item.evaluation
        values = tuple(UNKNOWN if value is None else value for value in one.values)
        unknown = (one.unknown,) if one.unknown else ()
        readings = [Reading(one.attempt, one.step, f"eval.{one.name}", one.value, one.n, None, values, "", unknown)]
        if one.env:
            whose, name = ((one.env, 1),), f"{SLICES}eval.{one.name}"
            bet = Reading(one.attempt, one.step, name, one.value, one.n, None, (one.value,), "", (one.n,), whose)
            readings = with_single_readings(bet)
        late, events = self._fold_late(one.attempt, one.step, readings)
        note = EvaluationRead(
            file=one.file, name=one.name, value=one.value, n=one.n, env=one.env or UNSET, judge=one.judge or UNSET,
            missed=one.missed or UNSET, unknown=one.unknown or UNSET, **late,
        )  # fmt: skip
        key = (one.attempt, one.step, "evaluation", one.name, *([one.env] if one.env else []))
        return [self._note(note, one.attempt, one.step, *key), *events]

    def _fold_late(self, attempt: int, step: int, readings: Sequence[Reading]) -> tuple[dict[str, Any], list[Event]]:
        """Fold late readings: returns their part of the event that brings them, and events of alarms and faults."""
        at = self._now or (attempt, step)
        abandoned = self._is_abandoned(attempt, step)
        derived, alarms = self.panel.fold(readings, abandoned=abandoned, now=self._now)
        if not abandoned:
            self.advisor.add_late_readings([*readings, *derived])
        if abandoned and self.panel.open_alarms and self._current is not None:
            # The run was rewound before this label came. The rewind resolves alarms once all such labels are in.
            waiting = [] if self.label_queue is None else self.label_queue.open_steps
            if not any(self._is_abandoned(*key) for key in waiting):
                alarms += self.panel.rewind(self._current, self._first[self._current])
        self.advisor.update_alarms(alarms)
        events = self._record_events(alarms, *at)
        events += self._record_events(self.panel.close_step(kind="late"), attempt, step)
        return {"at": list(at), **pack_readings(readings, derived)}, events

    def _on_reply(self, item: ControlReply) -> list[Event]:
        """A receipt or a decision about a change, and the resulting states of actions."""
        attempt, step = self._now or (0, -1)
        message = item.message
        note: ReceiptRead | DecisionRead
        if isinstance(message, Receipt):
            file, data = message.file.removesuffix(".json"), jsonable(asdict(message))
            kind, note = "receipt", ReceiptRead(file=file, message=data)
        else:
            kind, note = "decision", DecisionRead(file=message.id, message=jsonable(message.facts()))
        events = [Event("note", attempt, step, to_data(note), event_id("note", kind, note.file))]
        if not isinstance(message, Receipt) and message.kind == "note":
            events += self._dismiss_alarm(AlarmNote.parse(message.text), attempt, step)
        events += self.advisor.handle_reply(message, attempt, step)
        for action in events[1:]:
            # The monitor itself applies gold_share. It reacts to the action, not to the receipt, which could be forged.
            if action.data.get("knob") == "gold_share" and self.label_queue is not None:
                after = {"applied": action.data["after"], "reverted": action.data["before"]}.get(action.data["state"])
                if after is not None:
                    self.label_queue.set_share(after)
        return events

    def _dismiss_alarm(self, note: AlarmNote | None, attempt: int, step: int) -> list[Event]:
        """An operator's note that an open alarm is false resolves it. Other notes are only written down."""
        if note is None or note.kind != "false_alarm":
            return []
        resolved = self.panel.dismiss(note.about, step)
        self.advisor.update_alarms(resolved)
        return self._record_events(resolved, attempt, step)

    # -- events -------------------------------------------------------------------------------------------------------

    def _record_events(self, records: Iterable[Alarm | Fault], attempt: int, step: int) -> list[Event]:
        return [event(record, attempt, step, self._digest) for record in records]

    def _event(self, kind: str, attempt: int, step: int, data: Mapping[str, Any], *key: object) -> Event:
        return Event(kind, attempt, step, data, event_id(kind, attempt, *key, self._digest))

    def _note(self, note: Note, attempt: int, step: int, *key: object) -> Event:
        return Event("note", attempt, step, to_data(note), event_id("note", *key, self._digest))


def _calls_for_labels(item: Event) -> bool:
    """Whether more rollouts of the next steps are to be labelled: a warning was raised, or acts were found."""
    if item.kind == "finding":
        return bool(item.data["failure"] == "tampering" and item.data["confidence"] > 0.0)
    return bool(item.kind == "alarm" and item.data["tier"] == "warning" and item.data["resolved"] is None)


def _all_readings(reading_item: Event) -> list[Reading]:
    return [*readings_of(reading_item), *readings_of(reading_item, "derived")]
