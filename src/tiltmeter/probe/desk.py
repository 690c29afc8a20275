"""The desk of an audit: one reward in a process that is started again whenever a forgery has ended or changed it."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tiltmeter.errors import AttachError
from tiltmeter.probe.child import BREAKS, Broken, Child, ChildError, Row
from tiltmeter.probe.forgeries import Forgery, Task
from tiltmeter.probe.spies import Spy

HALF = 0.5  # of what separates the honest answer from the wrong one: from there on a forgery is paid
SAME = 0.05  # of that distance: two scores of one answer may differ by so much
TEXT = 4000  # characters of a text that is kept
UNSTEADY = "not looked at: the same answer gets different scores anyway"
TRIES, PAUSE_SECONDS = 3, 1.0  # to start again a reward that was started before: then it is the machine that failed
#: A path of this machine, and the last name in it: a record says nothing of where it was made.
_PATH = re.compile(r"(?<![\w./])/(?:[\w.@+-]+/)+([\w.@+-]+)")

Status = Literal["paid", "not paid", "could not judge"]


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of one forgery over all tasks: the first text that was paid, or else the first that was tried."""

    forgery: str
    status: Status
    paid: int
    tasks: int
    unjudged: int
    text: str
    score: float | None
    why: str  # it may succeed; or why it could not be judged
    fix: str


@dataclass(frozen=True, slots=True)
class Check:
    """One property that a reward must have beside not paying forgeries; `ok` is None where it could not be seen."""

    name: str
    ok: bool | None
    says: str
    fix: str = ""


@dataclass(frozen=True)
class Known:
    """A task with what its honest and its wrong answer are paid."""

    task: Task
    honest: float
    wrong: float

    @property
    def gap(self) -> float:
        return self.honest - self.wrong

    def paid(self, score: float) -> bool:
        return score >= self.wrong + HALF * self.gap

    def same(self, score: float | None, other: float) -> bool:
        return score is not None and abs(score - other) <= SAME * self.gap

    def row(self, completion: str) -> Row:
        return Row(self.task.prompt, completion, self.task.columns)


class Desk:
    """The reward under audit, and what was seen of it so far."""

    def __init__(self, reward: str, seconds: float, network: bool) -> None:
        self.reward, self.seconds, self.network = reward, seconds, network
        self.chat = False
        self.checks: list[Check] = []
        self.about_network = ""
        self._child: Child | None = None
        self._opened = False
        self._rows: dict[str, list[tuple[Status, Forgery, str, float | None, str]]] = {}
        self._unpaid: list[str] = []
        self._died: dict[str, str] = {}  # forgeries that ended the verifier's process, and how
        self._changed: dict[str, str] = {}  # forgeries after which other answers were scored differently
        self._raised: dict[str, str] = {}
        self._seen: dict[str, str] = {}
        self._steady = True  # the same answer gets the same score: else nothing can be said about what changes it

    # -- the process -------------------------------------------------------------------------------------------------

    def child(self) -> Child:
        if self._child is None:
            self._child = self._fresh()
            self.about_network = "denied" if self._child.offline else "on" if self.network else "could not be denied"
        return self._child

    def _fresh(self) -> Child:
        for left in reversed(range(TRIES if self._opened else 1)):
            try:
                child = Child(self.reward, network=self.network, seconds=self.seconds, chat=self.chat)
            except AttachError:
                if not left:
                    raise
                time.sleep(PAUSE_SECONDS)
            else:
                self._opened = True
                return child
        raise AssertionError  # the last try has returned or raised

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
        self._child = None

    # -- right and wrong ---------------------------------------------------------------------------------------------

    def baseline(self, tasks: Sequence[Task]) -> list[Known]:
        """The tasks whose honest answer is paid more than the wrong one, asked as text or, failing that, as chats."""
        for self.chat in (False, True):
            self.close()
            self._unpaid = []
            found = [known for known in map(self._known, tasks) if known is not None]
            if found:
                return found
        return []

    def _known(self, task: Task) -> Known | None:
        try:
            honest, wrong = (
                self.child().score([Row(task.prompt, text, task.columns)])[0] for text in (task.right, task.wrong)
            )
        except ChildError as error:
            self.close()
            self._unpaid.append(f"the honest or the wrong answer could not be scored: {_said(error)}")
            return None
        if honest is None or wrong is None or not math.isfinite(honest) or not math.isfinite(wrong):
            self._unpaid.append(f"the honest answer gets {_told(honest)}, the wrong one {_told(wrong)}")
        elif not honest > wrong:
            self._unpaid.append(
                f"the honest answer gets {_told(honest)} and the wrong one {_told(wrong)}: "
                + ("neither is refused" if honest > 0 else "neither is paid" if wrong <= 0 else "the wrong one is paid")
            )
        else:
            return Known(task, honest, wrong)
        return None

    def why(self, tasks: int) -> str:
        if not self._unpaid:
            return ""
        return f"{len(self._unpaid)} of {tasks} tasks could not be used; the first: {self._unpaid[0]}"

    # -- properties --------------------------------------------------------------------------------------------------

    def repeated(self, known: Sequence[Known]) -> None:
        for one in known:
            again = self._again(one)
            if again is not None and not (one.same(again[0], one.honest) and one.same(again[1], one.wrong)):
                says = f"the same answers got {_told(one.honest)} and {_told(one.wrong)}, then {_both(again)}"
                fix = "Seed or remove what is random; ask a judge at temperature 0."
                self._steady = False
                return self.checks.append(Check("same answer, same score", False, says, fix))
        return self.checks.append(Check("same answer, same score", True, "asked twice, scored alike"))

    def neighbours(self, known: Sequence[Known]) -> None:
        name = "neighbours do not matter"
        if not self._steady:
            return self.checks.append(Check(name, None, UNSTEADY))
        if not self.child().together:
            return self.checks.append(Check(name, True, "it sees one completion at a time"))
        rows = [(one, right) for one in known for right in (True, False)]
        for order in (rows, rows[::-1]):
            asked = [one.row(one.task.right if right else one.task.wrong) for one, right in order]
            try:
                scores = self.child().score(asked)
            except ChildError as error:
                self.close()
                return self.checks.append(Check(name, None, f"a batch could not be scored: {_said(error)}"))
            for (one, right), score in zip(order, scores, strict=True):
                alone = one.honest if right else one.wrong
                if not one.same(score, alone):
                    which = "honest" if right else "wrong"
                    says = f"alone the {which} answer gets {_told(alone)}, in a batch {_told(score)}"
                    fix = "Score each completion by itself; compare within a group in the trainer, not in the reward."
                    return self.checks.append(Check(name, False, says, fix))
        return self.checks.append(Check(name, True, "alone and in two orders, scored alike"))

    def _again(self, one: Known) -> list[float | None] | None:
        """Honest and wrong once more; None if that could not be asked."""
        try:
            if self.child().together:
                return self.child().score([one.row(one.task.right), one.row(one.task.wrong)])
            return [self.child().score([one.row(text)])[0] for text in (one.task.right, one.task.wrong)]
        except ChildError:
            self.close()
            return None

    # -- forgeries ---------------------------------------------------------------------------------------------------

    def try_one(self, one: Known, forgery: Forgery) -> None:
        text = forgery.make(one.task)
        score, status, why = self._scored(one, forgery.name, text)
        self._rows.setdefault(forgery.name, []).append((status, forgery, text, score, why))
        if self._child is None or forgery.name in self._changed or not self._steady or self.reward.endswith(".toml"):
            return  # a judge keeps its state elsewhere, and every question to it costs
        try:
            again = [self._child.score([one.row(text)])[0] for text in (one.task.right, one.task.wrong)]
        except ChildError as error:
            self.close()
            (self._died if error.kind in ("died", "exit") else self._changed)[forgery.name] = (
                f"afterwards {_said(error)}"
            )
            return
        if not (one.same(again[0], one.honest) and one.same(again[1], one.wrong)):
            self._changed[forgery.name] = (
                f"afterwards the honest answer got {_told(again[0])} and the wrong one {_told(again[1])}, "
                f"before {_told(one.honest)} and {_told(one.wrong)}"
            )
            self.close()

    def _scored(self, one: Known, name: str, text: str) -> tuple[float | None, Status, str]:
        try:
            score = self.child().score([one.row(text)])[0]
        except ChildError as error:
            if error.kind in ("died", "exit", "forged"):
                self._died[name] = _said(error)
                self.close()
            elif error.kind == "late":
                self.close()
            else:
                self._raised[name] = _said(error)
            return None, "could not judge", _said(error)
        if score is None or not math.isfinite(score):
            return score, "could not judge", f"it got {_told(score)}: the row is left out of training"
        return score, "paid" if one.paid(score) else "not paid", ""

    def spied(self, one: Known, spy: Spy) -> None:
        """Whether code in an answer is run, where, and what it could read."""
        drop, child = spy.drop, self.child()
        process, secret, planted = child.process.pid, child.secret, child.file.read_text("utf-8")
        self._scored(one, spy.name, spy.text)
        if not drop.exists():
            return
        try:
            told = json.loads(drop.read_text("utf-8"))
        except (OSError, ValueError):
            told = {}
        drop.unlink()
        inside = told.get("pid") == process
        self._seen["ran"] = "in the verifier's own process" if inside else "in a process that can write to your files"
        if told.get("secret") == secret:
            self._seen["secret"] = "the environment's secrets"
        elif told.get("file") == planted:
            self._seen["secret"] = "your files"

    def sum_up(self) -> None:
        """The checks that forgeries have answered along the way."""
        fix = "Run it in a sandbox that gives out values only: tiltmeter.rewards.code."
        ran = self._seen.get("ran", "")
        if self._died:
            name, how = next(iter(self._died.items()))
            says = f"your verifier ran the model's code in its own process: {name!r} ended it ({how})"
        else:
            says = f"an answer's code was run {ran}" if ran else "no answer could run code where it does harm"
        self.checks.append(Check("the model's code does not run in the verifier", not (self._died or ran), says, fix))
        stolen = self._seen.get("secret", "")
        if ran:
            says = f"an answer's code read {stolen}" if stolen else "the planted secrets were not read"
            self.checks.append(Check("secrets stay secret", not stolen, says, fix))
        changed = [f"after {name!r}: {how}" for name, how in self._changed.items()]
        says = changed[0] if changed else "honest and wrong answers were scored as before after each forgery"
        ok: bool | None = not changed
        if not self._steady:
            says, ok = UNSTEADY, None
        elif self.reward.endswith(".toml"):
            says, ok = "not looked at: a judge keeps its state elsewhere", None
        fix = "Keep no state between completions that a completion can write, and run its code elsewhere."
        self.checks.append(Check("one sample does not change the next", ok, says, fix))
        if self._raised:
            name, how = next(iter(self._raised.items()))
            says = f"{len(self._raised)} forgeries made it raise, {name!r} for one: {how}"
            fix = "Score what cannot be read as wrong; an exception in a reward function ends training."
            self.checks.append(Check("it answers whatever it is given", None, says, fix))

    def broken(self, one: Known, what: Broken) -> None:
        """Whether an honest answer is called wrong when the machine is at fault."""
        name = f"an outage is no wrong answer: {BREAKS[what]}"
        harmed = False
        try:
            with self._fresh() as child:
                if what == "network" and child.offline:
                    return None  # it has been without one all along
                child.score([one.row(one.task.right)])
                if not child.damage(what):
                    return self.checks.append(Check(name, None, "could not be tried here"))
                harmed = True
                score = child.score([one.row(one.task.right)])[0]
        except (ChildError, AttachError) as error:
            if not harmed:  # then it says nothing about an outage
                return self.checks.append(Check(name, None, f"could not be tried: {_said(error)[:200]}"))
            return self.checks.append(Check(name, True, f"it says so instead of scoring: {_said(error)[:200]}"))
        if score is None or not math.isfinite(score):
            return self.checks.append(Check(name, True, f"the row is left out ({_told(score)})"))
        if one.paid(score):
            return self.checks.append(Check(name, True, "no difference"))
        says = f"{BREAKS[what]} the honest answer gets {_told(score)}, as if it were wrong"
        fix = "Answer None, not 0, when something other than the answer is at fault."
        return self.checks.append(Check(name, False, says, fix))

    def tried(self) -> list[Tried]:
        found = []
        for name, rows in self._rows.items():
            order: tuple[Status, ...] = ("paid", "could not judge", "not paid")
            status, forgery, text, score, why = min(rows, key=lambda row: order.index(row[0]))
            counted = [row[0] for row in rows]
            found.append(
                Tried(
                    name, status, counted.count("paid"), len(rows), counted.count("could not judge"),
                    text[:TEXT], score, why or forgery.why, forgery.fix,
                )
            )  # fmt: skip
        return found


def _said(error: Exception) -> str:
    """An error without the folders that it names."""
    return _PATH.sub(r"\1", str(error))


def _told(score: float | None) -> str:
    return "None" if score is None else f"{score:.4g}"


def _both(scores: Sequence[float | None]) -> str:
    return " and ".join(map(_told, scores))
