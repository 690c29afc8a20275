"""A run's events folded into what a reader wants to know: the state that verdict, terminal, report and page share."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal, get_args

from tiltmeter.journal import Event, record_of
from tiltmeter.lineage import lineage
from tiltmeter.records import Action, Alarm, Fault, Finding, Tier


def watched(name: str, watches: Iterable[str]) -> bool:
    """Whether a reading is among those that a part watches, by name or, as `eval.*`, by all but its last word.

    >>> watched("gold.slope", ["gold.slope"]), watched("eval.gsm8k", ["eval.*"]), watched("evals.x", ["eval.*"])
    (True, True, False)
    """
    return any(name == one or (one.endswith(".*") and name.startswith(one[:-1])) for one in watches)


def alarm_id(alarm: Alarm) -> str:
    """A short name of an alarm or warning, made of its identity: the same wherever and whenever it is told.

    >>> alarm_id(Alarm(0, "gold.slope", "ledger", "alarm", "down", 120, 118, 90, 80, 100, 130.0, 125.0))
    'eebbe74aeefd'
    """
    identity = (alarm.attempt, alarm.name, alarm.detector, alarm.direction, alarm.step)
    return hashlib.sha256("|".join(map(str, identity)).encode("utf-8", "surrogatepass")).hexdigest()[:12]


Said = Literal["acknowledge", "mute", "false_alarm"]


@dataclass(frozen=True, slots=True)
class Note:
    """What an operator says of one alarm or warning. To acknowledge or mute it changes how it is shown and nothing
    else; to call an alarm false resolves it.

    >>> note = Note("eebbe74aeefd", "false_alarm", reason="the gold source was down")
    >>> Note.read(note.text()) == note, Note.read('{"about": 3}')
    (True, None)
    """

    about: str  # `alarm_id`
    kind: Said
    until: int | None = None  # step at which a mute ends
    reason: str = ""

    def text(self) -> str:
        return json.dumps({"about": self.about, "kind": self.kind, "until": self.until, "reason": self.reason})

    @classmethod
    def read(cls, text: object) -> Note | None:
        """The note in a text that anybody who may sign wrote; None if it is none."""
        try:
            told = json.loads(text) if isinstance(text, str) else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(told, dict) or set(told) != {"about", "kind", "until", "reason"}:
            return None
        sound = isinstance(told["about"], str) and isinstance(told["reason"], str) and told["kind"] in get_args(Said)
        sound = sound and (type(told["until"]) is int if told["kind"] == "mute" else told["until"] is None)
        return cls(**told) if sound and (told["reason"].strip() or told["kind"] != "false_alarm") else None


@dataclass
class Story:
    """Feed it every event, in order; ask it anything in between."""

    attempts: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    first: dict[int, int] = field(default_factory=dict)
    done: dict[int, int] = field(default_factory=dict)  # last measured step by attempt
    steps: int = 0
    rows: int = 0
    detectors: list[Mapping[str, Any]] = field(default_factory=list)
    alarms: dict[tuple[Any, ...], list[tuple[int, int, Alarm]]] = field(default_factory=dict)
    off: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    absent: Mapping[str, str] = field(default_factory=dict)
    segments: list[tuple[int, int]] = field(default_factory=list)
    rewards: tuple[str, str] = ("", "")  # the reward before and after the newest segment began
    findings: dict[str, Finding] = field(default_factory=dict)  # by failure, those that hold now
    actions: dict[str, Action] = field(default_factory=dict)  # by id, each in its newest state
    outcomes: list[Mapping[str, Any]] = field(default_factory=list)  # what came of actions
    experiments: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # by failure, the newest
    notes: dict[str, list[Note]] = field(default_factory=dict)  # by alarm, what operators said of it, oldest first
    baseline: str = ""  # what steps are compared with: "reference", "start", "later", or nothing yet
    uncompared: Mapping[str, str] = field(default_factory=dict)  # readings that lack something to compare with
    labels: int = 0
    last_label: tuple[int, int] | None = None
    bets: int = 0  # audited groups that said something
    last_bet: tuple[int, int] | None = None  # (attempt, step)
    gold_differs: bool = False  # from the reward, anywhere
    gold: Mapping[str, Any] | None = None  # the gold source: its name, its identity, its share of rollouts
    judges: list[str] = field(default_factory=list)  # names of all gold sources that labels came from
    asked: int = 0  # labels, answered or not, of steps that are closed
    unanswered: int = 0  # of those
    audited: int = 0  # rollouts of steps about which gold could be asked
    rejected: int = 0  # answers without a request
    unlabelled: set[tuple[int, int]] = field(default_factory=set)  # steps that were asked about and are not closed
    evaluations: list[tuple[int, int]] = field(default_factory=list)  # (attempt, step) of those an alarm watches
    bad_gold: int = 0  # labels outside [0, 1]
    seen: dict[int, int] = field(default_factory=dict)  # batches by attempt
    losses: dict[tuple[int, int], int] = field(default_factory=dict)  # batches thinned or dropped by (attempt, rank)
    missing: list[tuple[int, int]] = field(default_factory=list)  # (attempt, step) measured without some rank
    recent: list[tuple[float, int, int]] = field(
        default_factory=list
    )  # time written, rows, infra rows of the last steps

    unmeasured: list[Fault] = field(default_factory=list)  # files that are there, or should be, and were not measured
    skipped: int = 0  # torn or damaged lines of the journal

    @property
    def imported(self) -> bool:
        """Whether these are somebody's files, read afterwards: advice is then about files, not about a trainer."""
        return bool(self.attempts) and all(facts.get("launch") == "import" for facts in self.attempts.values())

    @classmethod
    def of(cls, events: Iterable[Event]) -> Story:
        story = cls()
        for event in events:
            story.add(event)
        return story

    def add(self, event: Event) -> None:
        match event.kind:
            case "attempt" if event.data["state"] == "open":
                self.attempts[event.attempt] = event.data["facts"]
                self.detectors = list(event.data["detectors"])
                self.gold = event.data.get("gold")
                self.off = {}
                self.findings = {}
            case "attempt":
                self.ended.add(event.attempt)
                self._count(event)
            case "reading":
                self._bet(event)
            case "alarm":
                alarm = record_of(event)
                assert isinstance(alarm, Alarm)
                key = (alarm.attempt, alarm.name, alarm.detector, alarm.direction, alarm.step)
                self.alarms.setdefault(key, []).append((event.attempt, event.step, alarm))
            case "fault":
                fault = record_of(event)
                assert isinstance(fault, Fault)
                self.faults.append(fault)
                if fault.part in ("store", "file"):
                    self.unmeasured.append(fault)
                self.rejected += fault.part == "label"
                if fault.off:
                    self.off[fault.part] = fault.error
            case "note" if event.data.get("note") == "absent":
                self.absent = event.data["absent"]
            case "note" if event.data.get("note") == "config":
                self.detectors = list(event.data["detectors"])
                self.gold = event.data.get("gold")
            case "note" if event.data.get("note") == "evaluation":
                if any(watched(name, self._alarming) for name in event.data["measured"]):
                    self.evaluations.append((event.attempt, event.step))
            case "labels_closed":
                self._labels(event)
            case "note" if event.data.get("note") == "baseline":
                self.baseline = event.data["source"]
                self.uncompared = event.data.get("absent", {})
            case "note" if event.data.get("note") == "segment":
                self.segments.append((event.attempt, event.step))
                self.rewards = (str(event.data["before"]), str(event.data["after"]))
            case "finding" | "action":
                self._counsel(record_of(event))
            case "note" if event.data.get("note") == "outcome":
                self.outcomes.append(event.data)
            case "note" if event.data.get("note") == "decision" and event.data["told"].get("kind") == "note":
                note = Note.read(event.data["told"].get("text"))
                if note is not None:
                    self.notes.setdefault(note.about, []).append(note)
            case "note" if event.data.get("note") == "experiment":
                self.experiments[event.data["failure"]] = event.data
            case "step_done":
                self._step(event)

    def _counsel(self, record: object) -> None:
        if isinstance(record, Action):
            self.actions[record.id] = record
        elif isinstance(record, Finding):
            self.findings.pop(record.failure, None)
            if record.confidence > 0.0:  # 0: what was found before holds no longer
                self.findings[record.failure] = record

    def _step(self, event: Event) -> None:
        data = event.data
        self.first.setdefault(event.attempt, event.step)
        self.done[event.attempt] = max(event.step, self.done.get(event.attempt, event.step))
        self.steps += 1
        self.rows += data["rows"]
        self._count(event)
        self.gold_differs |= bool(data.get("gold_differs"))
        self.bad_gold += data.get("unscored", {}).get("gold", {}).get("range", 0)
        if data["missing"] or data["unreadable"]:
            self.missing.append((event.attempt, event.step))
        if "requests" in data:
            self.audited += data["rows"]
            self.unlabelled.add((event.attempt, event.step))
        elif data.get("labels"):
            self.labels += data["labels"]
            self.last_label = (event.attempt, event.step)
        infra = max((flags.get("infra", 0) for flags in data.get("unscored", {}).values()), default=0)
        self.recent = [*self.recent[-19:], (data.get("written", event.time), data["rows"], infra)]

    def _count(self, event: Event) -> None:
        self.seen[event.attempt] = max(event.data["seen"], self.seen.get(event.attempt, 0))
        for rank, (thinned, dropped, *_) in event.data["lost"].items():
            self.losses[event.attempt, int(rank)] = thinned + dropped

    def _labels(self, event: Event) -> None:
        data = event.data
        self.unlabelled.discard((event.attempt, event.step))
        self.asked += data["asked"]
        self.unanswered += data["missing"]
        self.labels += data["answered"]
        self.gold_differs |= bool(data["gold_differs"])
        if data["why"]:
            self.faults.append(Fault(event.attempt, event.step, "gold", data["why"]))
        if data["answered"]:
            self.last_label = (event.attempt, event.step)
            if self.gold is not None and self.gold["name"] not in self.judges:
                self.judges.append(self.gold["name"])
        self._bet(event)

    @property
    def _alarming(self) -> list[str]:
        return [name for part in self.detectors if part["tier"] == "alarm" for name in part["watches"]]

    def _bet(self, event: Event) -> None:
        """Count what the alarm could bet on: a label in a group without spread, or half a group, says nothing to it.

        Of two labels that were bought and are equal it does say something: that this pair shows no harm.
        """
        bought = event.kind == "labels_closed"
        told = 0
        for name, packed in event.data["measured"].items():
            if len(packed) > 3 and watched(name, self._alarming):  # most readings carry no bets
                told += sum(bought or u != 0 for u in packed[3])
        if told:
            self.bets += told
            self.last_bet = (event.attempt, event.step)

    @property
    def about_labels(self) -> str:
        """How many labels there are, of how much, and whose they are: what a claim about gold rests on."""
        if not self.judges:
            return f"{self.labels} gold labels"
        share = 100.0 * self.labels / self.audited if self.audited else 0.0
        return f"{self.labels} labels, {share:.3g} % of rollouts, about {', '.join(self.judges)}"

    @property
    def attempt(self) -> int | None:
        """The attempt that is the run as it now is."""
        return max(self.attempts, default=None)

    @property
    def last_step(self) -> int:
        return self.done.get(self.attempt, -1) if self.attempt is not None else -1

    def spans(self) -> dict[int, float]:
        """The current lineage: by attempt, the step below which its steps count."""
        return {} if self.attempt is None else lineage(self.attempt, self.attempts, self.first)

    def open(self, tier: Tier) -> tuple[Alarm, ...]:
        """What is open now. Alarms stand whatever is rewound; warnings belong to the lineage they were raised in."""
        spans = self.spans()
        found = []
        for told in self.alarms.values():
            if told[0][2].tier != tier:
                continue
            if tier == "warning":
                told = [item for item in told if item[1] < spans.get(item[0], -1)]
            if told and all(alarm.resolved is None for _, _, alarm in told):
                found.append(told[-1][2])
        return tuple(found)

    @property
    def lost(self) -> tuple[int, int]:
        """Batches that were thinned, dropped or not measured, of how many, over all ranks and attempts."""
        return sum(self.losses.values()) + len(self.unmeasured), sum(self.seen.values())

    @property
    def pace(self) -> float:
        """Median seconds between the last steps; 0 while unknown. For display and for calling something stale."""
        gaps = [b[0] - a[0] for a, b in zip(self.recent, self.recent[1:], strict=False)]
        return median(gaps) if gaps else 0.0


def series(events: Iterable[Event], spans: Mapping[int, float]) -> dict[str, list[tuple[int, float]]]:
    """Every reading's (step, value) along a lineage, in step order; abandoned steps are left out."""
    found: dict[str, list[tuple[int, float]]] = {}
    for event in events:
        if "measured" in event.data and event.step < spans.get(event.attempt, -1):
            for part in ("measured", "derived"):
                for name, packed in event.data.get(part, {}).items():
                    found.setdefault(name, []).append((event.step, float(packed[0])))
    return {name: sorted(points) for name, points in found.items()}
