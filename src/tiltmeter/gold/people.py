"""Gold from people at the labelling screen: what each of them said, one file per answer, and what it comes to."""

from __future__ import annotations

import json
import math
import re
import secrets
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from tiltmeter.durable import entries, publish, sync_folder
from tiltmeter.gold import LATER, Answer, Request
from tiltmeter.gold.files import Asked, Label, answer, checked, labels
from tiltmeter.gold.settlement import Closed
from tiltmeter.store import RunDirectory

PEOPLE = "people"
DAY = 86_400.0
MOST_RATERS = 25
LONGEST_NAME = 64
LARGEST = 4096  # bytes of an answer
#: What may be answered. Of a pair the first text shown is A.
PAIR = ("a", "b", "tie", "both_bad", "skip")
SINGLE = ("0", "0.25", "0.5", "0.75", "1", "skip")
_WORTH = {"a": (1.0, 0.0), "b": (0.0, 1.0), "tie": (0.5, 0.5), "both_bad": (0.5, 0.5)}
_RATERS = re.compile(r"\b(\d+) raters? a pair\b")


class UnjudgedError(Exception):
    """Everybody who was shown a completion skipped it."""


@dataclass(frozen=True)
class PeopleSource:
    """People who compare two answers to one prompt, blind: they see neither reward nor step nor which is which.

    Worth having because an alarm on their labels speaks of people, and no program or judge has to be believed. The
    screen shows each bet as a pair. The winner's label is 1 and the loser's 0; a tie, and two answers that are equally
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

    @property
    def identity(self) -> str:
        many = f"{self.raters} rater{'s' if self.raters > 1 else ''} a pair"
        return f"people at the labelling screen, {many}, on whether an update makes the policy lose to its present self"

    def label(self, requests: Sequence[Request]) -> Sequence[Answer]:
        """Nobody answers at once; what was said is in the run directory, and `hear` reads it."""
        return [LATER] * len(requests)


@dataclass(frozen=True, slots=True)
class Said:
    """One answer of one person.

    >>> Said("x.json", "ada", (4, 3), "b", 0.0).values
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
        """What it says each label is; nothing if it was a skip."""
        if self.answer == "skip":
            return {}
        worth = _WORTH[self.answer] if len(self.shown) == 2 else (float(self.answer),)
        return dict(zip(self.shown, worth, strict=True))


@dataclass
class Answers:
    """What people have said about one step. `look` reads the files that came since."""

    run: RunDirectory
    asked: Asked
    _said: dict[str, Said | None] = field(default_factory=dict, repr=False)  # by file; None: no answer to this request
    _undone: dict[str, str] = field(default_factory=dict, repr=False)  # answer's file, by the file that takes it back
    _standing: list[Said] | None = field(default=None, repr=False)

    def look(self) -> Answers:
        for entry in entries(people_folder(self.run, self.asked.attempt, self.asked.step)):
            name = entry.name
            if name in self._said or name in self._undone or name.startswith(".") or not name.endswith(".json"):
                continue
            facts, self._standing = _read(entry.path), None
            if name.startswith("undo."):
                self._undone[name] = str(facts.get("undo"))
            else:
                self._said[name] = self._answer(name, facts)
        return self

    @property
    def given(self) -> list[Said]:
        """All of them in the order in which they came, those that were taken back included."""
        return sorted((said for said in self._said.values() if said is not None), key=lambda one: (one.time, one.file))

    @property
    def standing(self) -> list[Said]:
        """Those that were not taken back, in order, with repeats: of one rater's answers to one thing, the first."""
        if self._standing is None:
            gone = set(self._undone.values())
            first: dict[tuple[str, frozenset[int], bool], Said] = {}
            for said in self.given:
                if said.file not in gone:
                    first.setdefault((said.rater, frozenset(said.shown), said.repeat), said)
            self._standing = list(first.values())
        return self._standing

    def about(self, number: int) -> list[Said]:
        """What counts for a label, in order, one answer a rater."""
        first: dict[str, Said] = {}
        for said in self.standing:
            if number in said.shown and not said.repeat:
                first.setdefault(said.rater, said)
        return list(first.values())

    @cached_property
    def _pairs(self) -> dict[int, int]:
        return pairs(self.asked)

    def _answer(self, name: str, facts: Mapping[str, Any]) -> Said | None:
        try:
            shown = tuple(facts["shown"])
            said = Said(name, facts["rater"], shown, facts["answer"], float(facts["time"]), facts["repeat"] is True)
            legal = facts["request"] == self.asked.digest and isinstance(said.rater, str) and said.rater != ""
            legal = legal and all(type(n) is int and 0 <= n < len(self.asked.rows) for n in shown)
            if len(shown) == 2:
                legal = legal and said.answer in PAIR and self._pairs.get(shown[0]) == shown[1]
            else:
                legal = legal and len(shown) == 1 and said.answer in SINGLE and not said.repeat
            return said if legal and math.isfinite(said.time) else None
        except (KeyError, TypeError, ValueError, OverflowError):
            return None  # damaged, or made by somebody else: nobody has answered then, and the screen asks again


def pairs(asked: Asked) -> dict[int, int]:
    """The other side of each label whose rollout is in one bet of the step and no other."""
    numbers = {row: number for number, row in enumerate(asked.rows)}
    uses = Counter(row for bet in asked.bets for row in (bet.up, bet.down))
    found: dict[int, int] = {}
    for bet in asked.bets:
        if uses[bet.up] == uses[bet.down] == 1:
            up, down = numbers[bet.up], numbers[bet.down]
            found |= {up: down, down: up}
    return found


def raters_of(asked: Asked, otherwise: int = 1) -> int:
    """How many were to answer each pair when it was asked: a monitor that is started again does not change that."""
    found = _RATERS.search(asked.source.get("identity", "")) if asked.source.get("name") == PEOPLE else None
    return int(found[1]) if found else otherwise


def people_folder(run: RunDirectory, attempt: int, step: int) -> Path:
    return run.path / "gold" / PEOPLE / f"{attempt}-{step:06d}"


def say(
    run: RunDirectory,
    asked: Asked,
    rater: str,
    shown: Sequence[int],
    given: str,
    *,
    milliseconds: int = 0,
    repeat: bool = False,
    guide: str = "",
) -> Said:
    """Store an answer. It stands until it is taken back; `guide` is the mark of the text it was given under."""
    name = f"{'-'.join(map(str, sorted(shown)))}.{secrets.token_hex(8)}.json"
    said = Said(name, rater, tuple(shown), given, time.time(), repeat)
    facts: dict[str, Any] = {"request": asked.digest, "rater": rater, "kind": "pair" if len(shown) == 2 else "single"}
    facts |= {"shown": list(shown), "answer": given, "repeat": repeat, "guide": guide}
    _store(run, asked, name, {**facts, "milliseconds": milliseconds, "time": said.time})
    return said


def take_back(run: RunDirectory, asked: Asked, said: Said) -> None:
    """An answer that stands no longer. Both files stay; after the step's labels are closed this changes nothing."""
    facts = {"undo": said.file, "rater": said.rater, "time": time.time()}
    _store(run, asked, f"undo.{secrets.token_hex(8)}.json", facts)


def hear(run: RunDirectory, asked: Asked, unheard: Sequence[int], source: PeopleSource, since: float) -> list[int]:
    """Write the labels of a step once every one of them is known, or its time is over; those that still lack.

    All at once, because until then answers may be taken back. The time runs from when a step was asked about, or from
    `since`, when this monitor began: a night without a monitor is no time in which nobody answered.
    """
    if not unheard:
        return []
    told = _told(run, asked, unheard, raters_of(asked, source.raters))
    over = time.time() > max(asked.time, since) + source.timeout
    if LATER in told and not over:
        return list(unheard)
    for number, one in zip(unheard, told, strict=True):
        late = Label(None, f"fewer raters than were to answer it did so within {source.timeout / 3600.0:.3g} h")
        answer(run, asked, number, late if one is LATER else checked(one), source.name)
    return []


def _told(run: RunDirectory, asked: Asked, numbers: Sequence[int], raters: int) -> list[Answer]:
    """By label, the mean of what the first so many raters said of it; LATER if fewer have."""
    answers, others, known = Answers(run, asked).look(), pairs(asked), labels(run, asked)
    compared = {number for said in answers.given if len(said.shown) == 2 for number in said.shown}
    told: list[Answer] = []
    for number in numbers:
        other = known[others[number]] if number in others else None
        said = answers.about(number)[:raters]
        worth = [one.values[number] for one in said if one.values]
        if other is not None and other.value is not None and number in compared:
            # Killed between the two labels of a pair: what was decided of the one decides the other.
            told.append(1.0 - other.value)
        elif len(said) < raters:
            told.append(LATER)
        elif not worth:
            told.append(UnjudgedError(f"{'the rater' if raters == 1 else f'all {raters} raters'} could not judge it"))
        else:
            told.append(sum(worth) / len(worth))
    return told


def settled_by_people(asked: Asked, closed: Closed) -> Closed:
    """A step's settlement, without what labels of pairs cannot say. Other sources' settlements stay as they are.

    Of a pair one side is 1 and the other 0, whatever both are worth, so their mean is no level of gold. And labels that
    agree with a reward of 0 and 1 everywhere are opinions of people, not the reward itself.
    """
    if asked.source.get("name") != PEOPLE:
        return closed
    return replace(closed, levels=(), facts={**closed.facts, "gold_differs": closed.facts["answered"] > 0})


def _store(run: RunDirectory, asked: Asked, name: str, facts: Mapping[str, Any]) -> None:
    folder = people_folder(run, asked.attempt, asked.step)
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        for parent in (folder.parent, folder.parent.parent):
            sync_folder(parent)
    publish(folder / name, [json.dumps(facts, allow_nan=False).encode()])


def _read(path: str) -> dict[str, Any]:
    """What a file says; nothing if it is too large or no JSON object."""
    try:
        if Path(path).stat().st_size > LARGEST:
            return {}
        found = json.loads(Path(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
