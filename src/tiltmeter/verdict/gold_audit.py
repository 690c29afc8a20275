"""The audit of the source of gold by what its labels already say: does it tell answers apart, and is it still whole?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

from msgspec import UNSET

from tiltmeter.data.records import Alarm
from tiltmeter.data.slices import reading_of
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.payloads import (
    AttemptOpen,
    BehavioursRead,
    LabelCounts,
    LabelsClosed,
    SettingsChanged,
    StepDone,
    StepReadings,
)
from tiltmeter.stats.gold_breaks import LONGEST, STEPS, GoldBreak, LabelledStep, find_break
from tiltmeter.stats.gold_counts import SAME, chance_of_choice, chance_of_none

LEAST_LABELS = 64  # that are all one number, before that is said
LEAST_GROUPS = 14  # as many as could raise the alarm
CHANCE = 1e-3  # that gold which looks at answers would differ in no group
BEFORE = 64  # groups that steps are kept for, to compare with
RECENT_LABELS, RECENT_STEPS = 200, 10  # of which missing ones are compared with the others
CHOSEN = 1e-5  # chance below which missing labels are no random ones
FEW_ABSENT = 0.02  # of the recent labels: so few hide nothing
SAME_STEPS = 5  # one after the other, that are the same word for word
LENGTH = "length.mean"
TRAPS = "gold.traps"

BY_ANSWER = "look for a cache whose key lacks the answer, or a function that reads the prompt alone"
MEND = "mend it, as a full disk or a server that is gone, and label the steps since then again: tiltmeter audit"


def rests_on_labels(alarm: Alarm) -> bool:
    """Whether an alarm is about labels of answers, and not about traps or evaluations."""
    name = reading_of(alarm.name)
    return name.startswith("gold.") and name != TRAPS


@dataclass
class GoldAudit:
    """What the labels say of their source; add every event in order. `failure`: why it is not to be believed, and what
    to do, with ": " between; empty while nothing speaks against it.

    >>> audit = GoldAudit()
    >>> for step in range(8): audit.add_counts(0, step, LabelCounts(labels=8, low=0.0, high=0.0))
    >>> audit.failure.partition(":")[0]
    'gold is 0 for every one of 64 answers, so it has not told any answer from another'
    """

    labels: int = 0
    low: float = inf
    high: float = -inf
    groups: int = 0
    differ: int = 0  # of those
    apart: int = 0  # neighbours among them whose gold differs
    neighbours: int = 0
    steps_apart: int = 0  # likewise of the last group of a step and the first of the next
    steps: int = 0
    source_break: GoldBreak | None = None  # the newest break, and the step at which gold differed again
    back: int | None = None
    same_since: int | None = None  # the first of several steps whose texts are the same
    _last: float | None = field(default=None, repr=False)
    _identity: str = field(default="", repr=False)
    _before: list[LabelledStep] = field(default_factory=list, repr=False)
    _since: list[LabelledStep] = field(default_factory=list, repr=False)  # steps without a group in which gold differs
    _lengths: dict[tuple[int, int], float] = field(default_factory=dict, repr=False)
    _void: list[tuple[int, int, int]] = field(
        default_factory=list, repr=False
    )  # attempt, first and last step of breaks
    _new_behaviour: int = field(default=-1, repr=False)  # the step at which the newest was first seen
    _recent: list[tuple[int, int, float, float, float]] = field(default_factory=list, repr=False)
    _texts: list[tuple[int, int, str]] = field(default_factory=list, repr=False)

    def add(self, event: Event) -> None:
        payload = event.payload
        match payload:
            case AttemptOpen(gold=gold) | SettingsChanged(gold=gold):
                self._open_source(gold)
            case LabelsClosed(source=source, answered=answered, missing=missing):
                if source is not UNSET:
                    self.add_counts(event.attempt, event.step, source, answered + missing)
            case StepReadings(measured=measured):
                if LENGTH in measured:
                    self._lengths[event.attempt, event.step] = measured[LENGTH][0]
                    for key in list(self._lengths)[:-BEFORE]:
                        del self._lengths[key]
            case StepDone(source=source, texts=texts):
                if texts is not UNSET:
                    self._add_texts(event.attempt, event.step, texts)
                if source is not UNSET:
                    self.add_counts(event.attempt, event.step, source)
            case BehavioursRead(seen=seen):
                self._new_behaviour = max([self._new_behaviour, *(one.first for one in seen)])

    def _open_source(self, gold: Mapping[str, Any] | None) -> None:
        """Another source than before has done nothing yet."""
        identity = "" if gold is None else str(gold.get("identity", ""))
        if identity != self._identity:
            self.__dict__.update(GoldAudit(_identity=identity).__dict__)

    def add_counts(self, attempt: int, step: int, counts: LabelCounts, requested: int = 0) -> None:
        """The labels of a step, of so many that were requested."""
        if not counts.labels:
            return
        self.labels += counts.labels
        self.low, self.high = min(self.low, counts.low), max(self.high, counts.high)
        self._recent.append((requested, counts.absent, counts.absent_pay, counts.absent_noise, counts.absent_most))
        while len(self._recent) > RECENT_STEPS and sum(one[0] for one in self._recent[1:]) >= RECENT_LABELS:
            del self._recent[0]
        if not counts.groups or counts.first is None:
            return
        self.steps += 1
        self.groups, self.differ = self.groups + counts.groups, self.differ + counts.differ
        self.apart, self.neighbours = self.apart + counts.apart, self.neighbours + counts.groups - 1
        self.steps_apart += self._last is not None and abs(counts.first - self._last) > SAME
        self._last = counts.last
        self._look_for_break(
            attempt,
            LabelledStep(
                step, counts.labels, counts.low, counts.high, counts.groups, counts.differ, counts.free,
                counts.gold_squares, counts.reward_squares, counts.products, counts.reward,
                self._lengths.get((attempt, step), nan),
            )
        )  # fmt: skip

    @property
    def is_broken(self) -> bool:
        return self.source_break is not None and self.back is None

    def _look_for_break(self, attempt: int, labelled: LabelledStep) -> None:
        if labelled.differ:
            if self.is_broken:
                self.back = labelled.step
                self._since = []  # what came from a broken source is nothing to compare with
            self._before += [*self._since, labelled]
            self._since = []
            while len(self._before) > STEPS and sum(one.groups for one in self._before[1:]) >= BEFORE:
                del self._before[0]
            return
        self._since = [*self._since, labelled][: LONGEST + 1]
        if not self.is_broken:
            source_break = find_break(self._before, self._since)
            if source_break is None or self._new_behaviour >= source_break.step:
                return
            self.source_break, self.back = source_break, None
            self._void.append((attempt, source_break.step, labelled.step))
        elif self._void[-1][0] == attempt:
            self._void[-1] = (*self._void[-1][:2], labelled.step)
        else:
            self._void.append((attempt, labelled.step, labelled.step))

    def _add_texts(self, attempt: int, step: int, texts: str) -> None:
        if self._texts and self._texts[-1][::2] != (attempt, texts):
            self._texts, self.same_since = [], None
        self._texts = [*self._texts, (attempt, step, texts)][-SAME_STEPS:]
        if len(self._texts) == SAME_STEPS and self.same_since is None:
            self.same_since = self._texts[0][1]

    def rests_on_void(self, alarm: Alarm) -> bool:
        """Whether an alarm rests on labels that say nothing: the source never told answers apart, or broke."""
        if not rests_on_labels(alarm):
            return False
        spans = (one[1] <= alarm.data_step <= one[2] for one in self._void if one[0] == alarm.attempt)
        return bool(self._never) or any(spans)

    @property
    def void(self) -> str:
        """Why the labels say nothing, of now; empty while they may."""
        return self._never or self._break_text

    @property
    def failure(self) -> str:
        """Why gold is not to be believed, and what to do."""
        return self.void or self._stuck_text or self._absent_text

    @property
    def _never(self) -> str:
        if self.labels >= LEAST_LABELS and self.high - self.low <= SAME:
            return (
                f"gold is {self.low:.3g} for every one of {self.labels} answers, so it has not told any answer from "
                "another: check that it looks at the answer, with answers whose worth you know"
            )
        if self.differ or self.groups < LEAST_GROUPS:
            return ""
        pairs, apart = self.neighbours, self.apart
        if pairs >= LEAST_GROUPS and not apart and self.steps >= STEPS:
            return f"gold does not look at the answer, all answers of a step have the same gold: {BY_ANSWER}"
        pairs, apart = pairs + self.steps - 1, apart + self.steps_apart
        if chance_of_none(self.groups, pairs, min(apart, pairs)) <= CHANCE:
            return (
                "gold does not look at the answer, all answers to a prompt have the same gold "
                f"({self.groups} prompts): {BY_ANSWER}"
            )
        return ""

    @property
    def _break_text(self) -> str:
        if self.source_break is None or self.back is not None:
            return ""
        same = (
            "all answers to a prompt have the same gold"
            if self.source_break.constant is None
            else (f"every label is {self.source_break.constant:.3g}")
        )
        began = f"the gold source broke at step {self.source_break.step}"
        return f"{began}, {same} since, and reward and lengths are as before: {MEND}"

    @property
    def _stuck_text(self) -> str:
        if self.same_since is None:
            return ""
        return (
            f"every step since {self.same_since} is the same, word for word: the engine or the data loader is stuck, "
            "start it again"
        )

    @property
    def _absent_text(self) -> str:
        requested, absent, pay, noise = (sum(one[at] for one in self._recent) for at in range(4))
        most = max((one[4] for one in self._recent), default=0.0)
        if requested < RECENT_LABELS or absent < FEW_ABSENT * requested or chance_of_choice(pay, noise, most) > CHOSEN:
            return ""
        return (
            f"{absent} of the last {requested} labels are missing, those of the better paid answers: mend the "
            "gold source, each missing label counts in favour of the run"
        )
