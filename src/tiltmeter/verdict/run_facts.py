"""What the journal says of a run, folded from its events; read by verdict, terminal, report and web page."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from statistics import fmean, median
from typing import Any, Literal, get_args

from msgspec import UNSET

from tiltmeter.data.lineage import lineage
from tiltmeter.data.reading_table import ReadingTable
from tiltmeter.data.records import Action, Alarm, Fault, Finding, Reading, Tier
from tiltmeter.data.slices import PREFIX as SLICES
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.journal_chain.check import JournalState
from tiltmeter.rundir.payloads import (
    AbsentColumns,
    AttemptEnd,
    AttemptOpen,
    BaselineChosen,
    BehavioursRead,
    ColumnTrial,
    Counts,
    DecisionRead,
    EvaluationRead,
    ExperimentRead,
    GoldShareChosen,
    LabelsClosed,
    OnsetEstimated,
    OutcomeJudged,
    SegmentBegan,
    SettingsChanged,
    StepDone,
    StepReadings,
)
from tiltmeter.stats.returning_prompts import ReturningPrompts
from tiltmeter.verdict.agreement_and_gain import AgreementAndGain
from tiltmeter.verdict.behaviours import MOST_BEHAVIOURS, BehaviourState, add_gold
from tiltmeter.verdict.checkpoint_gold import CheckpointSeries
from tiltmeter.verdict.gold_audit import GoldAudit, rests_on_labels
from tiltmeter.verdict.gold_probes import GoldProbes
from tiltmeter.verdict.gold_standing import PAST, GoldStanding
from tiltmeter.verdict.slices import SliceTable

#: Readings that say how gold stands, and what else stop advice looks at.
GOLD_READINGS = ("gold.mean", "gold.answers", "gold.level", "gold.slope", "gold.duel", "eval.*")
TRAPS = "gold.traps"
LAST_STEPS = 20  # with labels: of those too, few may be missing
LEAST_MISSING = 10  # labels among them, below which chance may have it
ROUNDING = 1e-9  # of a bet: one below carries no evidence, as where gold is the same for every answer to a prompt
DRIFT_READINGS = ("policy.kl.k3", "policy.entropy_ratio", "training.checkpoint")


CHECKPOINT_JUDGE = "checkpoint_gold"  # the setting of an attempt that says who judges its checkpoints


def is_watched(name: str, watches: Iterable[str]) -> bool:
    """Whether a reading is among those that a part watches, by name or, as `eval.*`, by all but its last word.

    >>> is_watched("gold.slope", ["gold.slope"])
    True
    >>> is_watched("eval.gsm8k", ["eval.*"]), is_watched("evals.x", ["eval.*"])
    (True, False)
    """
    return any(name == one or (one.endswith(".*") and name.startswith(one[:-1])) for one in watches)


@lru_cache(4096)  # asked of every reading of every step
def _is_for_advice(name: str) -> bool:
    return is_watched(name, (*GOLD_READINGS, *DRIFT_READINGS))


def alarm_id(alarm: Alarm) -> str:
    """A short id of an alarm or warning: a hash of its identity, the same everywhere.

    >>> alarm_id(Alarm(0, "gold.slope", "gold_loss", "alarm", "down", 120, 118, 90, 80, 100, 130.0, 125.0))
    'd96f99c79489'
    """
    identity = (alarm.attempt, alarm.name, alarm.detector, alarm.direction, alarm.step)
    return hashlib.sha256("|".join(map(str, identity)).encode("utf-8", "surrogatepass")).hexdigest()[:12]


NoteKind = Literal["acknowledge", "mute", "false_alarm"]


@dataclass(frozen=True, slots=True)
class AlarmNote:
    """An operator's note on one alarm or warning. Acknowledging or muting changes only how it is shown; marking an
    alarm as false resolves it.

    >>> note = AlarmNote("eebbe74aeefd", "false_alarm", reason="the gold source was down")
    >>> AlarmNote.parse(note.text()) == note, AlarmNote.parse('{"about": 3}')
    (True, None)
    """

    about: str  # `alarm_id`
    kind: NoteKind
    until: int | None = None  # step at which a mute ends
    reason: str = ""

    def text(self) -> str:
        return json.dumps({"about": self.about, "kind": self.kind, "until": self.until, "reason": self.reason})

    @classmethod
    def parse(cls, text: object) -> AlarmNote | None:
        """The note in a signed request's text; None if it is not a valid note."""
        try:
            values = json.loads(text) if isinstance(text, str) else None
        except (ValueError, RecursionError):
            return None
        if not isinstance(values, dict) or set(values) != {"about", "kind", "until", "reason"}:
            return None
        valid = (
            isinstance(values["about"], str)
            and isinstance(values["reason"], str)
            and values["kind"] in get_args(NoteKind)
        )
        valid = valid and (type(values["until"]) is int if values["kind"] == "mute" else values["until"] is None)
        return cls(**values) if valid and (values["reason"].strip() or values["kind"] != "false_alarm") else None


def past_readings(onset: OnsetEstimated, attempt: int) -> list[Reading]:
    """Labels of the past, one reading a step."""
    by_step: dict[int, list[float]] = {}
    for step, gold in zip(onset.label_steps, onset.labels, strict=False):
        by_step.setdefault(step, []).append(gold)
    return [Reading(attempt, step, PAST, fmean(labels), len(labels)) for step, labels in sorted(by_step.items())]


@dataclass
class RunFacts:
    """The state of a run: add every event in order; it can be read at any time."""

    attempts: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    first: dict[int, int] = field(default_factory=dict)
    last_measured: dict[int, int] = field(default_factory=dict)  # last measured step by attempt
    steps: int = 0
    rows: int = 0
    detectors: list[Mapping[str, Any]] = field(default_factory=list)
    alarms: dict[tuple[Any, ...], list[tuple[int, int, Alarm]]] = field(default_factory=dict)
    off: dict[str, str] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    absent: Mapping[str, str] = field(default_factory=dict)
    segments: list[tuple[int, int]] = field(default_factory=list)
    behaviours: dict[int, BehaviourState] = field(default_factory=dict)  # by number
    rewards: tuple[str, str] = ("", "")  # the reward before and after the newest segment began
    findings: dict[str, Finding] = field(default_factory=dict)  # by failure, those that hold now
    actions: dict[str, Action] = field(default_factory=dict)  # by id, each in its newest state
    outcomes: list[Mapping[str, Any]] = field(default_factory=list)  # measured outcomes of actions
    experiments: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # by failure, the newest
    notes: dict[str, list[AlarmNote]] = field(default_factory=dict)  # operators' notes by alarm, oldest first
    baseline: str = ""  # what steps are compared with: "reference", "start" or "later"; empty: nothing yet
    uncompared: Mapping[str, str] = field(default_factory=dict)  # readings that lack something to compare with
    labels: int = 0
    last_label: tuple[int, int] | None = None
    bets: int = 0  # audited groups that carry evidence
    last_bet: tuple[int, int] | None = None  # (attempt, step)
    gold_differs: bool = False  # whether gold ever differs from the reward
    gold_audit: GoldAudit = field(default_factory=GoldAudit)  # what the labels say of their source
    gold: Mapping[str, Any] | None = None  # the gold source: its name, its identity, its share of rollouts
    judges: list[str] = field(default_factory=list)  # names of all gold sources that labels came from
    labels_requested: int = 0  # labels, answered or not, of steps that are closed
    unanswered: int = 0  # of those
    last_labels: list[tuple[int, int]] = field(default_factory=list)  # the same two, of the last steps with labels
    gold_probes: GoldProbes = field(default_factory=GoldProbes)  # what the source says again, and of known answers
    onset: OnsetEstimated | None = None  # from labels of the past, after the newest alarm that has them
    gold_cost: str = ""  # the share that is labelled, and why, where it was chosen by cost
    trial: ColumnTrial | None = None  # of the column that gold took by itself
    gold_error: str = ""  # why labels are missing, of the newest step that lacks any
    audited: int = 0  # rollouts of steps about which gold could be asked
    labels_whole_steps: bool = False  # every rollout of the newest labelled step was asked about
    rejected: int = 0  # answers without a request
    #: Steps whose requested labels are not complete, and how many labels were requested.
    unlabelled: dict[tuple[int, int], int] = field(default_factory=dict)
    last_times: dict[int, float] = field(default_factory=dict)  # by attempt, when its last event was written
    passed_over: int = 0  # steps about which nothing was asked, because the gold source was busy with earlier ones
    evaluations: list[tuple[int, int]] = field(default_factory=list)  # (attempt, step) of those an alarm watches
    checkpoints: CheckpointSeries = field(default_factory=CheckpointSeries)  # that were asked the same prompts
    traps: list[tuple[int, int, int, int]] = field(default_factory=list)  # (attempt, step), asked, paid
    bad_gold: int = 0  # labels outside [0, 1]
    batches_seen: dict[int, int] = field(default_factory=dict)  # batches by attempt
    losses: dict[tuple[int, int], int] = field(default_factory=dict)  # batches thinned or dropped by (attempt, rank)
    missing: list[tuple[int, int]] = field(default_factory=list)  # (attempt, step) measured without some rank
    unread: list[tuple[int, int]] = field(default_factory=list)  # likewise, of which some file was not read
    #: Of the last steps: time written, rows, rows whose reward failed by infrastructure, rows without any reward.
    recent: list[tuple[float, int, int, int]] = field(default_factory=list)

    #: Of every step with rollouts: how many, and the number of its ranks in `rank_sets`.
    with_rollouts: ReadingTable = field(default_factory=lambda: ReadingTable("rows"))
    rank_sets: dict[tuple[tuple[int, ...], ...], int] = field(default_factory=dict)  # ranks as ranges: mostly one
    history: dict[str, ReadingTable] = field(default_factory=dict)  # by name, what stop advice needs
    agreement_and_gain: AgreementAndGain = field(default_factory=AgreementAndGain)  # agreement, level and gain
    slices: SliceTable = field(default_factory=SliceTable)  # rollouts, reward and gold of each
    prompts: ReturningPrompts = field(default_factory=ReturningPrompts)  # of those whose gold is known
    changes: int = 0  # events so far, so that what was computed from them can be kept until the next
    advice: tuple[int, Any, GoldStanding | None] | None = None  # with gold, as computed at that number of changes
    agreement_and_gain_read: tuple[int, Any] | None = None  # likewise
    unmeasured: list[Fault] = field(default_factory=list)  # files that are there, or should be, and were not measured
    skipped: int = 0  # torn or damaged lines of the journal
    journal_text: str = ""  # what its chain says of it, in words; empty: not looked at
    journal_fault: str = ""  # the sentence about a line that was changed; empty: none is known

    def set_journal(self, state: JournalState) -> None:
        """Take what a check of the chain says."""
        self.journal_text, self.journal_fault = state.text, state.fault

    @property
    def imported(self) -> bool:
        """Whether the run was imported from log files: advice is then about files, not about a trainer."""
        return bool(self.attempts) and all(facts.get("launch") == "import" for facts in self.attempts.values())

    @property
    def checkpoint_judge(self) -> str:
        """Who judges what this run saves; empty where nobody does."""
        facts = {} if self.attempt is None else self.attempts[self.attempt].get("settings")
        judge = facts.get(CHECKPOINT_JUDGE) if isinstance(facts, Mapping) else None
        return judge if isinstance(judge, str) else ""

    @property
    def checkpoint_fault(self) -> str:
        """Why a checkpoint could not be asked, of the first; empty if all could."""
        marks = (fault.error.partition("-checkpoints.trouble.json: ") for fault in self.faults)
        return next((why for _, mark, why in marks if mark), "")

    @classmethod
    def from_events(cls, events: Iterable[Event]) -> RunFacts:
        run_facts = cls()
        for event in events:
            run_facts.add(event)
        return run_facts

    def add(self, event: Event) -> None:
        self.changes += 1
        self.last_times[event.attempt] = event.time
        payload = event.payload
        self.gold_audit.add(event)
        if isinstance(payload, StepReadings | EvaluationRead):  # labels are readings of their step too
            self._add_history(event, payload.measured)
            pairs = isinstance(payload, LabelsClosed) and not payload.whole
            self.agreement_and_gain.add(event.attempt, event.step, payload.measured, pairs=pairs)
            self.slices.add(event.attempt, event.step, payload.measured)
            for prompts in payload.measured.get("gold.prompts", [])[5:6]:
                self.prompts.add(prompts)
            for come_back in chain(*payload.measured.get("gold.answers", [])[5:6]):
                self.prompts.come_back = bool(come_back)
        match payload:
            case AttemptOpen() as opened:
                self.attempts[event.attempt] = opened.facts
                self.detectors, self.gold = list(opened.detectors), opened.gold
                self.off = {}
                self.findings = {}
            case AttemptEnd() as ended:
                self.ended.add(event.attempt)
                self._add_counts(event.attempt, ended)
            case LabelsClosed() as closed:
                self._add_labels(event.attempt, event.step, closed)
                add_gold(self.behaviours, event.data.get("measured", {}))
            case StepReadings() as readings:
                self._add_bets(event.attempt, event.step, readings)
            case StepDone() as done:
                self._add_step(event, done)
            case Alarm() as alarm:
                key = (alarm.attempt, alarm.name, alarm.detector, alarm.direction, alarm.step)
                self.alarms.setdefault(key, []).append((event.attempt, event.step, alarm))
            case Fault() as fault:
                self.faults.append(fault)
                if fault.part in ("store", "file"):
                    self.unmeasured.append(fault)
                self.rejected += fault.part == "label"
                if fault.off:
                    self.off[fault.part] = fault.error
            case Action() as action:
                self.actions[action.id] = action
            case Finding() as finding:
                self.findings.pop(finding.failure, None)
                if finding.confidence > 0.0:  # 0: the finding no longer holds
                    self.findings[finding.failure] = finding
            case AbsentColumns(absent=absent):
                self.absent = absent
            case SettingsChanged() as settings:
                self.detectors, self.gold = list(settings.detectors), settings.gold
            case EvaluationRead(measured=measured) as read:
                name = f"eval.{read.name}"
                if len(packed := measured.get(name, [])) > 3 and packed[3]:
                    self.checkpoints.add(event.attempt, event.step, name, packed[3])
                    self.checkpoints.judge = read.judge or self.checkpoints.judge
                    self.checkpoints.missed += read.missed or 0
                at, sliced = (event.attempt, event.step), any(name.startswith(SLICES) for name in measured)
                # Those of slices come several a step: one step is one occasion.
                if any(is_watched(name, self._alarm_readings) for name in measured) and not (
                    sliced and self.evaluations[-1:] == [at]
                ):
                    self.evaluations.append(at)
            case GoldShareChosen(why=why):
                self.gold_cost = why
            case OnsetEstimated() as onset:
                self.onset = onset
                past = self.history.setdefault(PAST, ReadingTable(PAST))
                for label in past_readings(onset, event.attempt):
                    past.add(label.attempt, label.step, label.value, label.n)
            case BaselineChosen() as baseline:
                self.baseline, self.uncompared = baseline.source, baseline.absent
            case BehavioursRead(seen=seen):
                for one in seen:
                    state = self.behaviours.pop(one.number, None) or BehaviourState()
                    self.behaviours[one.number] = state.update(event.step, one)
                for number in list(self.behaviours)[:-MOST_BEHAVIOURS]:  # those longest unseen
                    del self.behaviours[number]
            case SegmentBegan() as segment:
                self.segments.append((event.attempt, event.step))
                self.rewards = (segment.before, segment.after)
                self.agreement_and_gain.change_reward()
            case OutcomeJudged():
                self.outcomes.append(event.data)
            case DecisionRead(message=message):
                note = AlarmNote.parse(message.get("text")) if message.get("kind") == "note" else None
                if note is not None:
                    self.notes.setdefault(note.about, []).append(note)
            case ExperimentRead(failure=failure):
                self.experiments[failure] = event.data

    def _add_history(self, event: Event, measured: Mapping[str, Sequence[Any]]) -> None:
        for name, packed in measured.items():
            if name in self.history or _is_for_advice(name):
                series = self.history.setdefault(name, ReadingTable(name))
                series.add(event.attempt, event.step, *packed[:3])

    def _add_step(self, event: Event, done: StepDone) -> None:
        self.first.setdefault(event.attempt, event.step)
        self.last_measured[event.attempt] = max(event.step, self.last_measured.get(event.attempt, event.step))
        self.steps += 1
        self.rows += done.rows
        if done.rows and done.ranks:
            ranks = tuple(map(tuple, done.ranks))
            number = self.rank_sets.setdefault(ranks, len(self.rank_sets))
            self.with_rollouts.add(event.attempt, event.step, done.rows, number)
        self._add_counts(event.attempt, done)
        self.gold_differs |= bool(done.gold_differs or False)
        unscored = done.unscored or {}
        self.bad_gold += unscored.get("gold", {}).get("range", 0)
        if done.missing:
            self.missing.append((event.attempt, event.step))
        if done.unreadable:
            self.unread.append((event.attempt, event.step))
        if done.requests is not UNSET:
            self.audited += done.rows
            if done.behind:
                self.passed_over += 1
            else:
                self.unlabelled[event.attempt, event.step] = done.asked or 0
        elif done.labels:
            self.labels += done.labels
            self.last_label = (event.attempt, event.step)
        infra = max((flags.get("infra", 0) for flags in unscored.values()), default=0)
        written = event.time if done.written is UNSET else done.written
        unpaid = sum(unscored.get("reward", {}).values())
        self.recent = [*self.recent[-19:], (written, done.rows, infra, unpaid)]

    def _add_counts(self, attempt: int, counts: Counts) -> None:
        self.batches_seen[attempt] = max(counts.seen, self.batches_seen.get(attempt, 0))
        for rank, (thinned, dropped, *_) in counts.lost.items():
            self.losses[attempt, int(rank)] = thinned + dropped

    def _add_labels(self, attempt: int, step: int, closed: LabelsClosed) -> None:
        self.unlabelled.pop((attempt, step), None)
        self.labels_requested += closed.asked
        self.unanswered += closed.missing
        self.last_labels = [*self.last_labels, (closed.asked, closed.missing)][-LAST_STEPS:]
        self.labels += closed.answered
        self.gold_differs |= closed.gold_differs
        self.labels_whole_steps = closed.whole
        self.trial = self.trial if closed.trial is UNSET else closed.trial
        self.gold_probes.add(closed, self.gold)
        if closed.why:
            self.gold_error = closed.why
            self.faults.append(Fault(attempt, step, "gold", closed.why))
        if closed.answered:
            self.last_label = (attempt, step)
            if self.gold is not None and self.gold["name"] not in self.judges:
                self.judges.append(self.gold["name"])
        self._add_bets(attempt, step, closed)

    @property
    def missing_labels(self) -> tuple[int, int, str]:
        """Labels that never came, of how many, and of which steps: of the last ones where these lack more."""
        requested, missing = (sum(one[at] for one in self.last_labels) for at in (0, 1))
        if missing >= LEAST_MISSING and missing * self.labels_requested > self.unanswered * requested:
            return missing, requested, f" of the last {len(self.last_labels)} labelled steps"
        return self.unanswered, self.labels_requested, ""

    @property
    def open_trial(self) -> ColumnTrial | None:
        """The trial of the gold that judges now, if its column was not taken."""
        trial = self.trial
        is_open = trial is not None and self.gold is not None and trial.source == self.gold["identity"]
        return trial if is_open and trial is not None and trial.state != "taken" else None

    @property
    def _alarm_readings(self) -> list[str]:
        return [name for part in self.detectors if part["tier"] == "alarm" for name in part["watches"]]

    def _add_bets(self, attempt: int, step: int, readings: StepReadings) -> None:
        """Count the readings that the alarm's test can bet on: a label in a group without reward variance, or in half a
        group, carries no evidence.

        Two equal labels of an audited pair do: they are evidence that this pair shows no harm.
        """
        bought = isinstance(readings, LabelsClosed) and not readings.whole
        count = 0
        for name, packed in readings.measured.items():
            if name.startswith(SLICES):
                continue  # the same bets again, by slice
            if name == TRAPS:
                paid = sum(x > 0 for x in packed[3]) if len(packed) > 3 else 0  # many are recorded by their means
                self.traps.append((attempt, step, packed[1], max(paid, round(packed[0] * packed[1]))))
            elif len(packed) > 5 and packed[5]:
                self.last_bet = (attempt, step)  # the level of gold, which says something without any spread too
            elif len(packed) > 3 and is_watched(name, self._alarm_readings):  # most readings carry no bets
                count += sum(bought or abs(u) > ROUNDING for u in packed[3])
        if count:
            self.bets += count
            self.last_bet = (attempt, step)

    @property
    def labels_text(self) -> str:
        """The number of labels, their share of rollouts, and their sources: what a claim about gold rests on."""
        if not self.judges:
            return f"{self.labels} gold labels"
        share = 100.0 * self.labels / self.audited if self.audited else 0.0
        return f"{self.labels} labels, {share:.3g} % of rollouts, about {', '.join(self.judges)}"

    @property
    def attempt(self) -> int | None:
        """The newest attempt, which is the current run."""
        return max(self.attempts, default=None)

    @property
    def last_step(self) -> int:
        return self.last_measured.get(self.attempt, -1) if self.attempt is not None else -1

    def spans(self) -> dict[int, float]:
        """The current lineage: by attempt, the step below which its steps count."""
        return {} if self.attempt is None else lineage(self.attempt, self.attempts, self.first)

    def open_alarms(self, tier: Tier) -> tuple[Alarm, ...]:
        """The alarms or warnings that are open, but for alarms that rest on gold that says nothing. Alarms stay open
        across rewinds; warnings belong to their lineage."""
        return tuple(one for one in self._open_alarms(tier) if tier != "alarm" or not self._rests_on_void(one))

    def _rests_on_void(self, alarm: Alarm) -> bool:
        void = self.gold_probes.failure != "" and rests_on_labels(alarm)
        return void or self.gold_audit.rests_on_void(alarm)

    @property
    def void_gold(self) -> str:
        """Why gold says nothing, and what to do; empty while nothing speaks against it."""
        audit = self.gold_audit
        if void := self.gold_probes.failure or audit.void:
            return void
        alarms = [one for one in self._open_alarms("alarm") if self._rests_on_void(one)]
        if not alarms or audit.source_break is None:
            return ""
        return (
            f"the gold source was broken from step {audit.source_break.step} to {audit.back}, and the alarm of step "
            f"{alarms[0].step}, which is still open, rests on its labels: dismiss it, with this as the reason"
        )

    def _open_alarms(self, tier: Tier) -> tuple[Alarm, ...]:
        spans = self.spans()
        alarms = []
        for history in self.alarms.values():
            if history[0][2].tier != tier:
                continue
            if tier == "warning":
                history = [item for item in history if item[1] < spans.get(item[0], -1)]
            if history and all(alarm.resolved is None for _, _, alarm in history):
                alarms.append(history[-1][2])
        return tuple(alarms)

    @property
    def recovery_text(self) -> str:
        """The newest alarm that ended because gold was back, in a clause; empty if there is none."""
        ended = [version for versions in self.alarms.values() for _, _, version in versions if version.recovery_step]
        ended = [one for one in ended if all(note.kind != "false_alarm" for note in self.notes.get(alarm_id(one), ()))]
        one = max(ended, key=lambda alarm: alarm.recovery_step or 0, default=None)
        return "" if one is None else f"; the alarm of step {one.step} recovered at step {one.recovery_step}"

    @property
    def lost(self) -> tuple[int, int]:
        """Batches that were thinned, dropped or not measured, of how many, over all ranks and attempts."""
        return sum(self.losses.values()) + len(self.unmeasured), sum(self.batches_seen.values())

    @property
    def step_seconds(self) -> float:
        """Median seconds between the last steps; 0 while unknown. For display and for the STALE verdict."""
        gaps = [b[0] - a[0] for a, b in zip(self.recent, self.recent[1:], strict=False)]
        return median(gaps) if gaps else 0.0


def series(events: Iterable[Event], spans: Mapping[int, float]) -> dict[str, list[tuple[int, float]]]:
    """Every reading's (step, value) along a lineage, in step order; abandoned steps are left out."""
    by_name: dict[str, list[tuple[int, float]]] = {}
    for event in events:
        if "measured" in event.data and event.step < spans.get(event.attempt, -1):
            for part in ("measured", "derived"):
                for name, packed in event.data.get(part, {}).items():
                    if not name.startswith(SLICES):  # values of many slices: their mean is another reading's
                        by_name.setdefault(name, []).append((event.step, float(packed[0])))
    return {name: sorted(points) for name, points in by_name.items()}
