"""One audit session: the reward runs in a process that is restarted whenever a forgery has killed or changed it."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tiltmeter.errors import AttachError
from tiltmeter_workbench.probe.audit_task import AuditTask
from tiltmeter_workbench.probe.execution_canaries import ExecutionCanary
from tiltmeter_workbench.probe.forgeries import Forgery
from tiltmeter_workbench.probe.reward_process import OUTAGES, CompletionRow, Outage, RewardProcess, RewardProcessError

HALF = 0.5  # of what separates the honest answer from the wrong one: from there on a forgery is paid
SAME = 0.05  # of that distance: two scores of one answer may differ by so much
TEXT = 4000  # characters of a text that is kept
UNSTEADY = "not looked at: the same answer gets different scores anyway"
TRIES, PAUSE_SECONDS = 3, 1.0  # to start again a reward that was started before: then it is the machine that failed
#: A path of this machine, and the last name in it: a record says nothing of where it was made.
_PATH = re.compile(r"(?<![\w./])/(?:[\w.@+-]+/)+([\w.@+-]+)")

Status = Literal["paid", "not paid", "could not judge"]


@dataclass(frozen=True, slots=True)
class ForgeryResult:
    """The result of one forgery over all tasks, with the first text that was paid, or else the first that was tried."""

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
class AuditCheck:
    """One property that a reward must have beside not paying forgeries; `ok` is None where it could not be seen."""

    name: str
    ok: bool | None
    says: str
    fix: str = ""


@dataclass(frozen=True)
class ScoredTask:
    """A task with the scores of its honest and its wrong answer."""

    task: AuditTask
    honest: float
    wrong: float

    @property
    def gap(self) -> float:
        return self.honest - self.wrong

    def paid(self, score: float) -> bool:
        return score >= self.wrong + HALF * self.gap

    def same(self, score: float | None, other: float) -> bool:
        return score is not None and abs(score - other) <= SAME * self.gap

    def row(self, completion: str) -> CompletionRow:
        return CompletionRow(self.task.prompt, completion, self.task.columns)


class ProbeSession:
    """The reward under audit, and the results so far."""

    def __init__(self, reward: str, seconds: float, network: bool) -> None:
        self.reward, self.seconds, self.network = reward, seconds, network
        self.chat = False
        self.checks: list[AuditCheck] = []
        self.about_network = ""
        self._process: RewardProcess | None = None
        self._started_before = False
        self._rows: dict[str, list[tuple[Status, Forgery, str, float | None, str]]] = {}
        self._unpaid: list[str] = []
        self._died: dict[str, str] = {}  # forgeries that ended the verifier's process, and how
        self._changed: dict[str, str] = {}  # forgeries after which other answers were scored differently
        self._raised: dict[str, str] = {}
        self._observed: dict[str, str] = {}
        self._steady = True  # the same answer gets the same score; otherwise changes of a score mean nothing

    # -- the process -------------------------------------------------------------------------------------------------

    def process(self) -> RewardProcess:
        if self._process is None:
            self._process = self._start_process()
            self.about_network = "denied" if self._process.offline else "on" if self.network else "could not be denied"
        return self._process

    def _start_process(self) -> RewardProcess:
        for tries_left in reversed(range(TRIES if self._started_before else 1)):
            try:
                child = RewardProcess(self.reward, network=self.network, seconds=self.seconds, chat=self.chat)
            except AttachError:
                if not tries_left:
                    raise
                time.sleep(PAUSE_SECONDS)
            else:
                self._started_before = True
                return child
        raise AssertionError  # the last try has returned or raised

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
        self._process = None

    # -- right and wrong ---------------------------------------------------------------------------------------------

    def score_tasks(self, tasks: Sequence[AuditTask]) -> list[ScoredTask]:
        """The tasks whose honest answer is paid more than the wrong one, asked as text or, failing that, as chats."""
        for self.chat in (False, True):
            self.close()
            self._unpaid = []
            scored_tasks = [one for one in map(self._score_task, tasks) if one is not None]
            if scored_tasks:
                return scored_tasks
        return []

    def _score_task(self, task: AuditTask) -> ScoredTask | None:
        try:
            honest, wrong = (
                self.process().score([CompletionRow(task.prompt, text, task.columns)])[0]
                for text in (task.right, task.wrong)
            )
        except RewardProcessError as error:
            self.close()
            self._unpaid.append(f"the honest or the wrong answer could not be scored: {_error_text(error)}")
            return None
        if honest is None or wrong is None or not math.isfinite(honest) or not math.isfinite(wrong):
            self._unpaid.append(f"the honest answer gets {_score_text(honest)}, the wrong one {_score_text(wrong)}")
        elif not honest > wrong:
            self._unpaid.append(
                f"the honest answer gets {_score_text(honest)} and the wrong one {_score_text(wrong)}: "
                + ("neither is refused" if honest > 0 else "neither is paid" if wrong <= 0 else "the wrong one is paid")
            )
        else:
            return ScoredTask(task, honest, wrong)
        return None

    def why(self, tasks: int) -> str:
        if not self._unpaid:
            return ""
        return f"{len(self._unpaid)} of {tasks} tasks could not be used; the first: {self._unpaid[0]}"

    # -- properties --------------------------------------------------------------------------------------------------

    def check_repeatable(self, scored_tasks: Sequence[ScoredTask]) -> None:
        for one in scored_tasks:
            again = self._rescore(one)
            if again is not None and not (one.same(again[0], one.honest) and one.same(again[1], one.wrong)):
                says = (
                    f"the same answers got {_score_text(one.honest)} and {_score_text(one.wrong)}, "
                    f"then {_scores_text(again)}"
                )
                fix = "Seed or remove what is random; ask a judge at temperature 0."
                self._steady = False
                return self.checks.append(AuditCheck("same answer, same score", False, says, fix))
        return self.checks.append(AuditCheck("same answer, same score", True, "asked twice, scored alike"))

    def check_neighbours(self, scored_tasks: Sequence[ScoredTask]) -> None:
        name = "neighbours do not matter"
        if not self._steady:
            return self.checks.append(AuditCheck(name, None, UNSTEADY))
        if not self.process().batched:
            return self.checks.append(AuditCheck(name, True, "it sees one completion at a time"))
        rows = [(one, right) for one in scored_tasks for right in (True, False)]
        for order in (rows, rows[::-1]):
            batch = [one.row(one.task.right if right else one.task.wrong) for one, right in order]
            try:
                scores = self.process().score(batch)
            except RewardProcessError as error:
                self.close()
                return self.checks.append(AuditCheck(name, None, f"a batch could not be scored: {_error_text(error)}"))
            for (one, right), score in zip(order, scores, strict=True):
                alone = one.honest if right else one.wrong
                if not one.same(score, alone):
                    which = "honest" if right else "wrong"
                    says = f"alone the {which} answer gets {_score_text(alone)}, in a batch {_score_text(score)}"
                    fix = "Score each completion by itself; compare within a group in the trainer, not in the reward."
                    return self.checks.append(AuditCheck(name, False, says, fix))
        return self.checks.append(AuditCheck(name, True, "alone and in two orders, scored alike"))

    def _rescore(self, one: ScoredTask) -> list[float | None] | None:
        """Honest and wrong once more; None if that could not be asked."""
        try:
            if self.process().batched:
                return self.process().score([one.row(one.task.right), one.row(one.task.wrong)])
            return [self.process().score([one.row(text)])[0] for text in (one.task.right, one.task.wrong)]
        except RewardProcessError:
            self.close()
            return None

    # -- forgeries ---------------------------------------------------------------------------------------------------

    def try_forgery(self, one: ScoredTask, forgery: Forgery) -> None:
        text = forgery.make(one.task)
        score, status, why = self._score_forgery(one, forgery.name, text)
        self._rows.setdefault(forgery.name, []).append((status, forgery, text, score, why))
        if self._process is None or forgery.name in self._changed or not self._steady or self.reward.endswith(".toml"):
            return  # a judge keeps its state elsewhere, and every question to it costs
        try:
            again = [self._process.score([one.row(text)])[0] for text in (one.task.right, one.task.wrong)]
        except RewardProcessError as error:
            self.close()
            (self._died if error.kind in ("died", "exit") else self._changed)[forgery.name] = (
                f"afterwards {_error_text(error)}"
            )
            return
        if not (one.same(again[0], one.honest) and one.same(again[1], one.wrong)):
            self._changed[forgery.name] = (
                f"afterwards the honest answer got {_score_text(again[0])} and the wrong one {_score_text(again[1])}, "
                f"before {_score_text(one.honest)} and {_score_text(one.wrong)}"
            )
            self.close()

    def _score_forgery(self, one: ScoredTask, name: str, text: str) -> tuple[float | None, Status, str]:
        try:
            score = self.process().score([one.row(text)])[0]
        except RewardProcessError as error:
            if error.kind in ("died", "exit", "forged"):
                self._died[name] = _error_text(error)
                self.close()
            elif error.kind == "late":
                self.close()
            else:
                self._raised[name] = _error_text(error)
            return None, "could not judge", _error_text(error)
        if score is None or not math.isfinite(score):
            return score, "could not judge", f"it got {_score_text(score)}: the row is left out of training"
        return score, "paid" if one.paid(score) else "not paid", ""

    def check_execution(self, one: ScoredTask, spy: ExecutionCanary) -> None:
        """Whether code in an answer is run, where, and what it could read."""
        drop, child = spy.note_path, self.process()
        process, secret, planted = child.process.pid, child.secret, child.file.read_text("utf-8")
        self._score_forgery(one, spy.name, spy.text)
        if not drop.exists():
            return
        try:
            note = json.loads(drop.read_text("utf-8"))
        except (OSError, ValueError):
            note = {}
        drop.unlink()
        inside = note.get("pid") == process
        self._observed["ran"] = (
            "in the verifier's own process" if inside else "in a process that can write to your files"
        )
        if note.get("secret") == secret:
            self._observed["secret"] = "the environment's secrets"
        elif note.get("file") == planted:
            self._observed["secret"] = "your files"

    def add_summary_checks(self) -> None:
        """Add the checks that follow from the forgeries tried so far."""
        fix = "Run it in a sandbox that gives out values only: tiltmeter.rewards.code."
        ran = self._observed.get("ran", "")
        if self._died:
            name, how = next(iter(self._died.items()))
            says = f"your verifier ran the model's code in its own process: {name!r} ended it ({how})"
        else:
            says = f"an answer's code was run {ran}" if ran else "no answer could run code where it does harm"
        self.checks.append(
            AuditCheck("the model's code does not run in the verifier", not (self._died or ran), says, fix)
        )
        stolen = self._observed.get("secret", "")
        if ran:
            says = f"an answer's code read {stolen}" if stolen else "the planted secrets were not read"
            self.checks.append(AuditCheck("secrets stay secret", not stolen, says, fix))
        changed = [f"after {name!r}: {how}" for name, how in self._changed.items()]
        says = changed[0] if changed else "honest and wrong answers were scored as before after each forgery"
        ok: bool | None = not changed
        if not self._steady:
            says, ok = UNSTEADY, None
        elif self.reward.endswith(".toml"):
            says, ok = "not looked at: a judge keeps its state elsewhere", None
        fix = "Keep no state between completions that a completion can write, and run its code elsewhere."
        self.checks.append(AuditCheck("one sample does not change the next", ok, says, fix))
        if self._raised:
            name, how = next(iter(self._raised.items()))
            says = f"{len(self._raised)} forgeries made it raise, {name!r} for one: {how}"
            fix = "Score what cannot be read as wrong; an exception in a reward function ends training."
            self.checks.append(AuditCheck("it answers whatever it is given", None, says, fix))

    def check_outage(self, one: ScoredTask, what: Outage) -> None:
        """Whether an honest answer is called wrong when the machine is at fault."""
        name = f"an outage is no wrong answer: {OUTAGES[what]}"
        harmed = False
        try:
            with self._start_process() as child:
                if what == "network" and child.offline:
                    return None  # it has been without one all along
                child.score([one.row(one.task.right)])
                if not child.damage(what):
                    return self.checks.append(AuditCheck(name, None, "could not be tried here"))
                harmed = True
                score = child.score([one.row(one.task.right)])[0]
        except (RewardProcessError, AttachError) as error:
            if not harmed:  # then it says nothing about an outage
                return self.checks.append(AuditCheck(name, None, f"could not be tried: {_error_text(error)[:200]}"))
            return self.checks.append(
                AuditCheck(name, True, f"it says so instead of scoring: {_error_text(error)[:200]}")
            )
        if score is None or not math.isfinite(score):
            return self.checks.append(AuditCheck(name, True, f"the row is left out ({_score_text(score)})"))
        if one.paid(score):
            return self.checks.append(AuditCheck(name, True, "no difference"))
        says = f"{OUTAGES[what]} the honest answer gets {_score_text(score)}, as if it were wrong"
        fix = "Answer None, not 0, when something other than the answer is at fault."
        return self.checks.append(AuditCheck(name, False, says, fix))

    def results(self) -> list[ForgeryResult]:
        results = []
        for name, rows in self._rows.items():
            order: tuple[Status, ...] = ("paid", "could not judge", "not paid")
            status, forgery, text, score, why = min(rows, key=lambda row: order.index(row[0]))
            statuses = [row[0] for row in rows]
            results.append(
                ForgeryResult(
                    name, status, statuses.count("paid"), len(rows), statuses.count("could not judge"),
                    text[:TEXT], score, why or forgery.why, forgery.fix,
                )
            )  # fmt: skip
        return results


def _error_text(error: Exception) -> str:
    """An error without the folders that it names."""
    return _PATH.sub(r"\1", str(error))


def _score_text(score: float | None) -> str:
    return "None" if score is None else f"{score:.4g}"


def _scores_text(scores: Sequence[float | None]) -> str:
    return " and ".join(map(_score_text, scores))
