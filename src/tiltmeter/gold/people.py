"""Gold from people at the labelling screen: their answers, one file each, and the labels computed from them."""

from __future__ import annotations

import re
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from tiltmeter.gold import LATER, CompletionToLabel, GoldAnswer
from tiltmeter.gold.bet_settlement import SettledStep
from tiltmeter.gold.judge import BETTER_OF_TWO
from tiltmeter.gold.label_files import (
    PEOPLE,
    Label,
    LabelRequest,
    asks_people,
    read_labels,
    to_label,
    write_label,
)
from tiltmeter.gold.rater_groups import group_bets, group_labels, groups_of, written_by
from tiltmeter.rundir.remote.inbox import leave_file
from tiltmeter.rundir.sidecar import Count, list_sidecars
from tiltmeter.rundir.store import RunDirectory

DAY = 86_400.0
LONGEST_NAME = 64
COARSE_TIMES = 3 * 10**9  # nanoseconds in which two changes of a folder may get the same time
MAX_ANSWER_BYTES = 4096  # bytes of an answer
#: What may be answered. Of a pair the first text shown is A.
PAIR = ("a", "b", "tie", "both_bad", "skip")
SINGLE = ("0", "0.25", "0.5", "0.75", "1", "skip")
_LABEL_VALUES = {"a": (1.0, 0.0), "b": (0.0, 1.0), "tie": (0.5, 0.5), "both_bad": (0.5, 0.5)}
_RATERS = re.compile(r"\b(\d+) raters? a pair\b")


class UnjudgedError(Exception):
    """Everybody who was shown a completion skipped it."""


@dataclass(frozen=True)
class PeopleSource:
    """People who compare two answers to one prompt, blind: they see neither reward nor step nor which is which.

    An alarm on their labels is a claim about people: no program or judge has to be trusted. The screen shows each bet
    as a pair. The winner's label is 1 and the loser's 0; a tie, and two answers that are equally
    bad, are 1/2 each; a skip is missing. `raters` of them answer each pair and the label is the mean of those who did
    not skip; if all did, it is missing, with the reason. Rollouts that several bets share, or that answer different
    prompts, are judged one by one, from 0 to 1.

    What pairs test: that the update does not make the policy lose to its present self. In a group, `up` is drawn in
    proportion to what the update makes likelier and `down` to what it makes rarer, so the mean of u is
    weight (2 P(up wins) - 1), and the null is that what is added does not lose to what it replaces. For raters who
    judge by one scale, and whose chance to prefer grows evenly along it, this has the sign of the change in the chance
    that the policy after the update beats the one before. It is a claim about winning, not about mean gold: many
    narrow losses and a few great wins are a loss. A duel's null is that an answer of now beats one of the best stretch
    so far at least every other time.

    Answers are files; the monitor waits up to `timeout` seconds for `raters` of them, and anybody may be among them.

    >>> source = PeopleSource(3)
    >>> source.identity
    'people at the labelling screen, 3 raters a pair, on whether an update makes the policy lose to its present self'
    """

    judged: ClassVar[bool] = False
    name: ClassVar[str] = PEOPLE
    raters: int = 1
    timeout: float = DAY
    groups: Mapping[str, str] = field(default_factory=dict)  # by rater, as `rater_groups.read_groups` reads them

    @property
    def identity(self) -> str:
        many = f"{self.raters} rater{'s' if self.raters > 1 else ''} a pair"
        if self.groups:
            many += f" in {len(set(self.groups.values()))} groups"
        return f"people at the labelling screen, {many}, on whether an update makes the policy lose to its present self"

    def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
        """Nobody answers at once; the answers are files in the run directory, which `collect_labels` reads."""
        return [LATER] * len(requests)


@dataclass(frozen=True, slots=True)
class RaterAnswer:
    """One answer of one person.

    >>> RaterAnswer("x.json", "ada", (4, 3), "b", 0.0).values
    {4: 0.0, 3: 1.0}
    """

    file: str  # its name in the step's folder
    rater: str
    shown: tuple[int, ...]  # numbers of the labels, in the order of the screen: two, or one
    answer: str
    time: float
    repeat: bool = False  # a pair shown again to see whether the rater agrees with themselves: never a label

    @property
    def values(self) -> dict[int, float]:
        """The value it gives each label; empty if it was a skip."""
        if self.answer == "skip":
            return {}
        label_values = _LABEL_VALUES[self.answer] if len(self.shown) == 2 else (float(self.answer),)
        return dict(zip(self.shown, label_values, strict=True))


class StoredAnswer(Struct, frozen=True):
    """The file of an answer."""

    request: str  # the digest
    rater: Annotated[str, Meta(min_length=1)]
    shown: Annotated[tuple[Count, ...], Meta(min_length=1, max_length=2)]
    answer: str
    time: float
    repeat: bool


class StoredUndo(Struct, frozen=True):
    """The file that takes an answer back."""

    undo: str  # the answer's file


@dataclass
class RaterAnswers:
    """The raters' answers about one step. `read_new` reads the files that came since."""

    run: RunDirectory
    request: LabelRequest
    _by_file: dict[str, RaterAnswer | None] = field(
        default_factory=dict, repr=False
    )  # by file; None: no answer to this request
    _undone: dict[str, str] = field(default_factory=dict, repr=False)  # answer's file, by the file that takes it back
    _standing: list[RaterAnswer] | None = field(default=None, repr=False)
    _settled: int = field(default=0, repr=False)  # when the folder was last changed, if all was read

    def read_new(self) -> RaterAnswers:
        folder = people_folder(self.run, self.request)
        # With many raters the folders of most steps do not change, and listing all of them is most of the work.
        changed = _changed_at(folder)
        if changed in (0, self._settled):
            return self
        began = time.time_ns()
        # A file that is refused is no answer: nobody has answered then, and the screen asks again.
        answers, refusals = list_sidecars(folder, self._is_new_answer, StoredAnswer, MAX_ANSWER_BYTES)
        self._by_file |= {name: self._parse_answer(name, stored) for name, stored in answers.items()}
        self._by_file |= dict.fromkeys(refusals)
        undos, refusals = list_sidecars(folder, self._is_new_undo, StoredUndo, MAX_ANSWER_BYTES)
        self._undone |= {name: stored.undo for name, stored in undos.items()} | dict.fromkeys(refusals, "")
        if answers or undos:
            self._standing = None
        self._settled = changed if changed < began - COARSE_TIMES else 0
        return self

    def _is_new_answer(self, name: str) -> bool:
        return name.endswith(".json") and not name.startswith((".", "undo.")) and name not in self._by_file

    def _is_new_undo(self, name: str) -> bool:
        return name.endswith(".json") and name.startswith("undo.") and name not in self._undone

    @property
    def history(self) -> list[RaterAnswer]:
        """All answers in the order in which they came, undone ones included."""
        return sorted(
            (answer for answer in self._by_file.values() if answer is not None), key=lambda one: (one.time, one.file)
        )

    @property
    def standing(self) -> list[RaterAnswer]:
        """Answers that were not undone, in order, with repeats: of one rater's answers to one item, the first."""
        if self._standing is None:
            undone_files = set(self._undone.values())
            first: dict[tuple[str, frozenset[int], bool], RaterAnswer] = {}
            for answer in self.history:
                if answer.file not in undone_files:
                    first.setdefault((answer.rater, frozenset(answer.shown), answer.repeat), answer)
            self._standing = list(first.values())
        return self._standing

    def for_label(self, number: int) -> list[RaterAnswer]:
        """The answers that count for a label, in order, one per rater."""
        first: dict[str, RaterAnswer] = {}
        for answer in self.standing:
            if number in answer.shown and not answer.repeat:
                first.setdefault(answer.rater, answer)
        return list(first.values())

    @cached_property
    def _pairs(self) -> dict[int, int]:
        return label_pairs(self.request)

    def _parse_answer(self, name: str, stored: StoredAnswer) -> RaterAnswer | None:
        """The answer in a file; None if it does not answer this request, or not as it was asked."""
        shown = stored.shown
        legal = stored.request == self.request.digest and all(n < len(self.request.rows) for n in shown)
        if len(shown) == 2:
            legal = legal and stored.answer in PAIR and self._pairs.get(shown[0]) == shown[1]
        else:
            legal = legal and stored.answer in SINGLE and not stored.repeat
        return RaterAnswer(name, stored.rater, shown, stored.answer, stored.time, stored.repeat) if legal else None


def _changed_at(folder: Path) -> int:
    """Nanoseconds since 1970; 0 if nobody has answered."""
    try:
        return folder.stat(follow_symlinks=False).st_mtime_ns
    except OSError:
        return 0


def label_pairs(request: LabelRequest) -> dict[int, int]:
    """The other side of each label whose rollout is in one bet of the step and no other."""
    numbers = {row: number for number, row in enumerate(request.rows)}
    bets = [request.bets[at] for at in people_bets(request)]
    uses = Counter(row for bet in bets for row in (bet.up, bet.down))
    other_side: dict[int, int] = {}
    for bet in bets:
        if uses[bet.up] == uses[bet.down] == 1:
            up, down = numbers[bet.up], numbers[bet.down]
            other_side |= {up: down, down: up}
    return other_side


def people_bets(request: LabelRequest) -> Sequence[int]:
    """The bets that people are asked about: all, or beside a judge those that were drawn for them."""
    if request.source.get("name") == PEOPLE or not asks_people(request.source):
        return range(len(request.bets))
    drawn = request.state.get("people", {}).get("bets", ())
    return [at for at in drawn if isinstance(at, int) and 0 <= at < len(request.bets)]


def people_numbers(request: LabelRequest) -> list[int]:
    """The numbers of the labels that people are asked for."""
    numbers = {row: number for number, row in enumerate(request.rows)}
    bets = [request.bets[at] for at in people_bets(request)]
    return sorted({numbers[row] for bet in bets for row in (bet.up, bet.down)})


def labelled_by(request: LabelRequest) -> str:
    """What marks the files of people's labels beside those of a judge; empty where people are the source."""
    return "" if request.source.get("name") == PEOPLE else PEOPLE


def raters_of(request: LabelRequest, otherwise: int = 1) -> int:
    """How many were to answer each pair when it was asked: a monitor that is started again does not change that."""
    match = _RATERS.search(request.source.get("identity", "")) if asks_people(request.source) else None
    return int(match[1]) if match else otherwise


def people_folder(run: RunDirectory, request: LabelRequest) -> Path:
    return run.path / "gold" / PEOPLE / request.name


def store_answer(
    run: RunDirectory,
    request: LabelRequest,
    rater: str,
    shown: Sequence[int],
    choice: str,
    *,
    milliseconds: int = 0,
    repeat: bool = False,
    guide: str = "",
) -> RaterAnswer:
    """Store a rater's answer. It counts until it is undone; `guide` identifies the guide text it was given under."""
    name = f"{'-'.join(map(str, sorted(shown)))}.{secrets.token_hex(8)}.json"
    rater_answer = RaterAnswer(name, rater, tuple(shown), choice, time.time(), repeat)
    facts: dict[str, Any] = {"request": request.digest, "rater": rater, "kind": "pair" if len(shown) == 2 else "single"}
    facts |= {"shown": list(shown), "answer": choice, "repeat": repeat, "guide": guide}
    _write_file(run, request, name, {**facts, "milliseconds": milliseconds, "time": rater_answer.time})
    return rater_answer


def undo_answer(run: RunDirectory, request: LabelRequest, rater_answer: RaterAnswer) -> None:
    """Undo an answer. Both files stay; after the step's labels are closed this changes nothing."""
    facts = {"undo": rater_answer.file, "rater": rater_answer.rater, "time": time.time()}
    _write_file(run, request, f"undo.{secrets.token_hex(8)}.json", facts)


def collect_labels(
    run: RunDirectory, request: LabelRequest, unlabelled: Sequence[int], source: PeopleSource, since: float
) -> list[int]:
    """Write a step's labels once all are known, or its time is over; returns the numbers that are still missing.

    All at once, because until then answers may be undone. The time runs from when a step was asked about, or from
    `since`, when this monitor began: a night without a monitor is no time in which nobody answered.
    """
    if not unlabelled:
        return []
    answers = _label_answers(run, request, unlabelled, raters_of(request, source.raters))
    timed_out = time.time() > max(request.time, since) + source.timeout
    if LATER in answers and not timed_out:
        return list(unlabelled)
    by_group = _labels_of_groups(run, request, unlabelled, raters_of(request, source.raters))
    for number, value in zip(unlabelled, answers, strict=True):
        timeout_label = Label(
            None, f"fewer raters than were to answer it did so within {source.timeout / 3600.0:.3g} h"
        )
        label = timeout_label if value is LATER else to_label(value)
        # Before the label itself: where that is, those of the groups are.
        for group, of_group in by_group.get(number, {}).items():
            write_label(run, request, number, of_group, source.name, written_by(group))
        write_label(run, request, number, label, source.name, labelled_by(request))
    return []


def _label_answers(run: RunDirectory, request: LabelRequest, numbers: Sequence[int], raters: int) -> list[GoldAnswer]:
    """By label, the mean of its first `raters` answers; LATER if there are fewer."""
    answers, others, existing = (
        RaterAnswers(run, request).read_new(),
        label_pairs(request),
        read_labels(run, request, labelled_by(request)),
    )
    compared = {
        number for rater_answers in answers.history if len(rater_answers.shown) == 2 for number in rater_answers.shown
    }
    result: list[GoldAnswer] = []
    for number in numbers:
        other = existing[others[number]] if number in others else None
        rater_answers = answers.for_label(number)[:raters]
        values = [one.values[number] for one in rater_answers if one.values]
        if other is not None and other.value is not None and number in compared:
            # Killed between the two labels of a pair: the first label decides the second.
            result.append(1.0 - other.value)
        elif len(rater_answers) < raters:
            result.append(LATER)
        elif not values:
            result.append(UnjudgedError(f"{'the rater' if raters == 1 else f'all {raters} raters'} could not judge it"))
        else:
            result.append(sum(values) / len(values))
    return result


def _labels_of_groups(
    run: RunDirectory, request: LabelRequest, numbers: Sequence[int], raters: int
) -> dict[int, dict[str, Label]]:
    """By label, those of the groups, from the same answers as everybody's."""
    groups = groups_of(request)
    if not groups:
        return {}
    answers = RaterAnswers(run, request).read_new()
    first = {number: answers.for_label(number)[:raters] for number in numbers}
    return {
        number: group_labels([(one.rater, one.values.get(number)) for one in of_label], groups)
        for number, of_label in first.items()
    }


def with_groups(run: RunDirectory, request: LabelRequest, settled: SettledStep) -> SettledStep:
    """The settled step with the bets of each group of raters."""
    bets = group_bets(run, request) if request.source.get("name") == PEOPLE else {"slope": [], "duel": []}
    if not any(bets.values()):
        return settled
    return replace(settled, groups=(tuple(bets["slope"]), tuple(bets["duel"])))


def adjust_for_pairs(request: LabelRequest, step_result: SettledStep) -> SettledStep:
    """The settled step, without what labels of pairs cannot show. Steps of other sources are returned unchanged.

    Of a pair one side is 1 and the other 0, whatever both are worth, so their mean is no level of gold. And labels that
    agree with a reward of 0 and 1 everywhere are opinions of people, not the reward itself.
    """
    if request.source.get("name") != PEOPLE and BETTER_OF_TWO not in request.source.get("identity", ""):
        return step_result
    return replace(
        step_result, levels=(), facts={**step_result.facts, "gold_differs": step_result.facts["answered"] > 0}
    )


def _write_file(run: RunDirectory, request: LabelRequest, name: str, facts: Mapping[str, Any]) -> None:
    leave_file(run, ("gold", PEOPLE, request.name), name, facts)
