"""What happened in a run and when, one entry each: the fold behind timelines, marks on plots and the log of actions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tiltmeter.journal import Event, record_of
from tiltmeter.page.words import change, short
from tiltmeter.records import Alarm, Finding
from tiltmeter.story import Note, alarm_id

TEXT = 160  # characters of an entry
#: Kinds that a long list keeps; of the others it keeps the newest.
WEIGHTY = ("alarm", "resolved", "did", "outcome", "attempt", "end", "segment")
SAID = {"acknowledge": "Acknowledged", "mute": "Muted", "false_alarm": "Called false"}


class History:
    """Feed it every event, in order. Entries, marks and actions are as `web/src/types.ts` has them, oldest first.

    >>> history = History()
    >>> history.add(Event("attempt", 0, -1, {"state": "open", "facts": {}}, "id", time=5.0))
    >>> history.entries[0]["kind"], history.entries[0]["text"]
    ('attempt', 'Training started')
    """

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.marks: list[dict[str, Any]] = []
        self.waiting: dict[tuple[int, int], int] = {}  # labels that were asked for, of steps that are not closed
        self.times: dict[str, float] = {}  # when each alarm was raised
        self.offers: dict[int, dict[str, Any]] = {}  # by attempt, what its trainer lets others change
        self.actions: dict[str, dict[str, Any]] = {}  # by id, each in its newest state
        self.decided: set[str] = set()  # ids of operators' requests that the monitor has written down
        self.last: dict[int, float] = {}  # when each attempt was last written about
        self._holding: set[str] = set()  # failures that are found now
        self._names: dict[str, str] = {}  # of alarms

    def add(self, event: Event) -> None:
        self.last[event.attempt] = event.time
        match event.kind:
            case "reading":
                return
            case "step_done":
                if "requests" in event.data:
                    self.waiting[event.attempt, event.step] = int(event.data.get("asked", 0))
            case "labels_closed":
                self.waiting.pop((event.attempt, event.step), None)
            case "alarm":
                self._alarm(event)
            case "finding":
                self._finding(event)
            case "action":
                self._action(event)
            case "fault":
                off = " (switched off)" if event.data.get("off") else ""
                self._tell(event, "fault", f"{event.data['part']}: {event.data['error']}{off}")
            case "attempt":
                self._attempt(event)
            case "note":
                self._note(event)

    def _tell(self, event: Event, kind: str, text: str, name: str = "") -> None:
        place = {"time": event.time, "attempt": event.attempt, "step": event.step}
        self.entries.append({**place, "kind": kind, "text": short(text, TEXT), "id": name})

    def _mark(self, attempt: int, step: int, kind: str, text: str, name: str = "") -> None:
        self.marks.append({"attempt": attempt, "step": step, "kind": kind, "text": short(text, 80), "id": name})

    def _alarm(self, event: Event) -> None:
        alarm = record_of(event)
        assert isinstance(alarm, Alarm)
        name = alarm_id(alarm)
        if alarm.resolved is not None:
            self._tell(event, "resolved", f"{alarm.tier} on {alarm.name} of step {alarm.step}", name)
            return
        self._names[name] = alarm.name
        self.times.setdefault(name, event.time)
        self._tell(event, alarm.tier, alarm.summary, name)
        self._mark(alarm.attempt, alarm.step, alarm.tier, f"{alarm.tier}: {alarm.name}", name)

    def _finding(self, event: Event) -> None:
        finding = record_of(event)
        assert isinstance(finding, Finding)
        if finding.confidence <= 0.0:
            self._holding.discard(finding.failure)
        elif finding.failure not in self._holding:
            self._holding.add(finding.failure)
            self._tell(event, "finding", f"{finding.failure} ({finding.confidence:.0%} sure): {finding.summary}")

    def _action(self, event: Event) -> None:
        data, name = event.data, str(event.data["id"])
        row = self.actions.setdefault(name, {"outcome": None, "sentence": "", "undo_refused": ""})
        row |= {**data, "told": event.step, "time": event.time}
        match data["state"]:
            case "proposed":
                self._tell(event, "proposed", f"{change(row)}: {data['reason']}", name)
            case "applied" | "reverted":
                what = change(row) if data["state"] == "applied" else f"{change(row)} undone"
                self._tell(event, "did", f"{what}: {data['reason']}", name)
                self._mark(event.attempt, event.step, "stop" if data["knob"] == "stop" else "did", what, name)
            case state:
                self._tell(event, "note", f"{str(state).capitalize()}: {change(row)}", name)

    def _attempt(self, event: Event) -> None:
        if event.data["state"] != "open":
            self._tell(event, "end", f"Attempt {event.attempt} ended after step {event.step}")
            return
        self._holding = set()
        parent = event.data["facts"].get("parent")
        text = "Training started" if parent is None else f"Attempt {event.attempt} goes on from attempt {parent}"
        self._tell(event, "attempt", text)

    def _note(self, event: Event) -> None:
        data = event.data
        match data.get("note"):
            case "offer":
                self.offers[event.attempt] = data["offer"]
            case "segment":
                self._tell(event, "segment", "The reward itself changed: compare nothing across this step")
                self._mark(event.attempt, event.step, "segment", "another reward")
            case "outcome":
                if data["action"] in self.actions:
                    self.actions[data["action"]] |= {"outcome": data["verdict"], "sentence": data["sentence"]}
                self._tell(event, "outcome", data["sentence"], str(data["action"]))
            case "experiment":
                self._tell(event, "note", f"Tried on {data['failure']}: {data['sentence']}")
            case "decision":
                self.decided.add(str(data["told"].get("id")))
                if (note := Note.read(data["told"].get("text"))) is not None:
                    about = f"{SAID[note.kind]}: {self._names.get(note.about, 'an alarm')}"
                    until = "" if note.until is None else f" until step {note.until}"
                    self._tell(event, "note", f"{about}{until}{f': {note.reason}' if note.reason else ''}", note.about)


def newest(entries: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """At most so many entries, oldest first: what weighs, then the newest of the rest."""
    if len(entries) <= most:
        return list(entries)
    ranked = sorted(range(len(entries)), key=lambda at: (entries[at]["kind"] not in WEIGHTY, -at))
    return [entries[at] for at in sorted(ranked[:most])]


def told(events: Iterable[Event]) -> History:
    """The history that these events make."""
    history = History()
    for event in events:
        history.add(event)
    return history
