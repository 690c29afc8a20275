"""The history of a run, built from its events: timeline entries, marks on plots, and the action log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tiltmeter.data.records import Action, Alarm, Fault, Finding
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.payloads import (
    AttemptEnd,
    AttemptOpen,
    DecisionRead,
    ExperimentRead,
    KnobsOffered,
    OutcomeJudged,
    SegmentBegan,
)
from tiltmeter.verdict.message import describe_likelihood
from tiltmeter.verdict.run_facts import AlarmNote, alarm_id
from tiltmeter.view.payloads.overview import EntryKind, HistoryEntry, Mark, MarkKind
from tiltmeter.view.screens.wording import describe_change, truncate

TEXT = 160  # characters of an entry
#: Kinds that are kept first when a list is shortened.
IMPORTANT_KINDS = ("alarm", "resolved", "did", "outcome", "attempt", "end", "segment")
DECISIONS = {"approve": "approved", "reject": "rejected"}  # kinds of request, and the state of the action after it
NOTE_WORDS = {"acknowledge": "Acknowledged", "mute": "Muted", "false_alarm": "Called false"}


class RunHistory:
    """Add every event that is rare, in order. Entries, marks and actions are oldest first.

    >>> history = RunHistory()
    >>> history.add(Event("attempt", 0, -1, {"state": "open", "facts": {}}, "id", time=5.0))
    >>> history.entries[0].kind, history.entries[0].text
    ('attempt', 'Training started')
    """

    of_rare = True  # events that come with every step say nothing here

    def __init__(self) -> None:
        self.entries: list[HistoryEntry] = []
        self.marks: list[Mark] = []
        self.alarm_times: dict[str, float] = {}  # when each alarm was raised
        self.knob_offers: dict[int, dict[str, Any]] = {}  # by attempt, the knobs that its trainer offers
        self.actions: dict[str, dict[str, Any]] = {}  # by id, each in its newest state
        self.decided_requests: set[str] = set()  # ids of operator requests that the monitor has recorded
        self._active_failures: set[str] = set()  # failures that have a finding now
        self._alarm_names: dict[str, str] = {}  # of alarms
        self._called_false: set[str] = set()  # alarms
        self._authors: dict[tuple[str, str], str] = {}  # by action and the state that a person's decision put it in

    def add(self, event: Event) -> None:
        match event.payload:
            case Alarm() as alarm:
                self._add_alarm(event, alarm)
            case Finding() as finding:
                self._add_finding(event, finding)
            case Action():
                self._add_action(event)
            case Fault() as fault:
                off = " (switched off)" if fault.off else ""
                self._add_entry(event, "fault", f"{fault.part}: {fault.error}{off}")
            case AttemptOpen(facts=facts):
                self._active_failures = set()
                parent = facts.get("parent")
                text = (
                    "Training started" if parent is None else f"Attempt {event.attempt} goes on from attempt {parent}"
                )
                self._add_entry(event, "attempt", text)
            case AttemptEnd():
                self._add_entry(event, "end", f"Attempt {event.attempt} ended after step {event.step}")
            case KnobsOffered(offer=offer):
                self.knob_offers[event.attempt] = offer
            case SegmentBegan():
                self._add_entry(event, "segment", "The reward itself changed: compare nothing across this step")
                self._add_mark(event.attempt, event.step, "segment", "another reward")
            case OutcomeJudged() as outcome:
                if outcome.action in self.actions:
                    self.actions[outcome.action] |= {"outcome": outcome.verdict, "sentence": outcome.sentence}
                self._add_entry(event, "outcome", outcome.sentence, outcome.action)
            case ExperimentRead() as experiment:
                self._add_entry(event, "note", f"Tried on {experiment.failure}: {experiment.sentence}")
            case DecisionRead(message=message):
                self._add_decision(event, message)

    def _add_entry(self, event: Event, kind: EntryKind, text: str, name: str = "") -> None:
        entry = HistoryEntry(
            time=event.time, attempt=event.attempt, step=event.step, kind=kind, text=truncate(text, TEXT), id=name
        )
        self.entries.append(entry)

    def _add_mark(self, attempt: int, step: int, kind: MarkKind, text: str, name: str = "") -> None:
        self.marks.append(Mark(attempt=attempt, step=step, kind=kind, text=truncate(text, 80), id=name))

    def _add_alarm(self, event: Event, alarm: Alarm) -> None:
        name = alarm_id(alarm)
        if alarm.resolved is not None:
            is_back = alarm.recovery_step is not None and name not in self._called_false
            text = f"recovered at step {alarm.recovery_step}: " if is_back else ""
            self._add_entry(event, "resolved", f"{text}{alarm.tier} on {alarm.name} of step {alarm.step}", name)
            return
        self._alarm_names[name] = alarm.name
        self.alarm_times.setdefault(name, event.time)
        # While it is open, the verdict dates it anew with every label.
        then = f"said when it was raised, step {alarm.step}: " if alarm.tier == "alarm" else ""
        self._add_entry(event, alarm.tier, f"{then}{alarm.summary}", name)
        self._add_mark(alarm.attempt, alarm.step, alarm.tier, f"{alarm.tier}: {alarm.name}", name)

    def _add_finding(self, event: Event, finding: Finding) -> None:
        if finding.confidence <= 0.0:
            self._active_failures.discard(finding.failure)
        elif finding.failure not in self._active_failures:
            self._active_failures.add(finding.failure)
            self._add_entry(event, "finding", f"{describe_likelihood(finding)} {finding.failure}: {finding.summary}")

    def _add_action(self, event: Event) -> None:
        data, name = event.data, str(event.data["id"])
        row = self.actions.setdefault(name, {"outcome": None, "sentence": "", "undo_refused": ""})
        row |= {**data, "told": event.step, "time": event.time}
        match data["state"]:
            case "proposed":
                self._add_entry(event, "proposed", f"{describe_change(row)}: {data['reason']}", name)
            case "applied" | "reverted":
                what = describe_change(row) if data["state"] == "applied" else f"{describe_change(row)} undone"
                self._add_entry(event, "did", f"{what}: {data['reason']}", name)
                self._add_mark(event.attempt, event.step, "stop" if data["knob"] == "stop" else "did", what, name)
            case state:
                by = _by(self._authors.get((name, state)))
                self._add_entry(event, "note", f"{str(state).capitalize()}{by}: {describe_change(row)}", name)

    def _add_decision(self, event: Event, message: Mapping[str, Any]) -> None:
        self.decided_requests.add(str(message.get("id")))
        author = message.get("author")
        if isinstance(author, str) and (state := DECISIONS.get(str(message.get("kind")))):
            self._authors[str(message.get("action")), state] = author
        if (note := AlarmNote.parse(message.get("text"))) is not None:
            self._called_false |= {note.about} if note.kind == "false_alarm" else set()
            about = f"{NOTE_WORDS[note.kind]}: {self._alarm_names.get(note.about, 'an alarm')}"
            until = "" if note.until is None else f" until step {note.until}"
            reason = f": {note.reason}" if note.reason else ""
            self._add_entry(event, "note", f"{about}{until}{_by(author)}{reason}", note.about)


def _by(author: object) -> str:
    return f" by {author}" if isinstance(author, str) and author else ""


def newest_entries(entries: Sequence[HistoryEntry], most: int) -> list[HistoryEntry]:
    """At most so many entries, oldest first: important kinds, then the newest of the rest."""
    if len(entries) <= most:
        return list(entries)
    ranked = sorted(range(len(entries)), key=lambda at: (entries[at].kind not in IMPORTANT_KINDS, -at))
    return [entries[at] for at in sorted(ranked[:most])]


def build_history(events: Iterable[Event]) -> RunHistory:
    """The history of these events."""
    history = RunHistory()
    for event in events:
        history.add(event)
    return history
