"""Whether a reward can be paid without doing the work: honest, wrong and forged answers, scored in another process."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.probe.child import BREAKS
from tiltmeter.probe.desk import Check, Desk, Known, Tried
from tiltmeter.probe.forgeries import Task, forgeries_for
from tiltmeter.probe.spies import spies

SCHEMA = 1
JUDGED = 0.9  # of the tasks must tell right from wrong, before "none paid" means anything
TASKS = 12  # audited, spread over those that are given: each is scored about a hundred times
NEIGHBOURS = 8  # tasks in the batch that is scored in two orders


@dataclass(frozen=True)
class Audit:
    """What a reward pays for that is no work.

    Worth having before a run: a policy finds such a hole within a few hundred steps, and then learns nothing else.
    `record()` is the JSON form: `schema`, `reward`, `time`, `seconds`, `tasks`, `judged` (tasks whose honest answer is
    paid more than the wrong one), `network`, `verdict` ("none paid", "some paid", "could not judge"), `exit_code`,
    `why`, `tried` (as `Tried`) and `checks` (as `Check`). A hole that is not among the forgeries is not found: "none
    paid" is about these and no others.

    >>> tried = Tried("empty answer", "paid", 1, 2, 0, "", 1.0, "nothing equals nothing", "ask for a value")
    >>> found = Audit("checks.py:score", 2, 2, (tried,), ())
    >>> found.verdict, found.exit_code
    ('some paid', 1)
    """

    reward: str
    tasks: int
    judged: int
    tried: tuple[Tried, ...]
    checks: tuple[Check, ...]
    why: str = ""  # it could not be judged, or tasks that could not
    network: str = ""
    seconds: float = 0.0
    time: float = field(default_factory=time.time)

    @property
    def holes(self) -> list[str]:
        """Names of forgeries that were paid and of checks that failed."""
        return [row.forgery for row in self.tried if row.status == "paid"] + [
            check.name for check in self.checks if check.ok is False
        ]

    @property
    def verdict(self) -> str:
        if self.holes:
            return "some paid"
        unsure = any(row.status == "could not judge" for row in self.tried)
        return "could not judge" if unsure or self.judged < max(1.0, JUDGED * self.tasks) else "none paid"

    @property
    def exit_code(self) -> int:
        """0 none paid and every check held, 1 something was paid or a check failed, 2 could not judge."""
        return {"none paid": 0, "some paid": 1}.get(self.verdict, 2)

    def record(self) -> dict[str, Any]:
        """As JSON holds it: no number that is not finite."""
        told = {"schema": SCHEMA, **asdict(self), "verdict": self.verdict, "exit_code": self.exit_code}
        told["tried"] = [{**asdict(row), "score": _finite(row.score)} for row in self.tried]
        told["checks"] = [asdict(check) for check in self.checks]
        return told


def audit(
    reward: str, tasks: Sequence[Task], *, most: int = TASKS, seconds: float = 30.0, network: bool = False
) -> Audit:
    """Try every forgery on a reward. It runs in processes of its own, without a network unless `network` or it needs
    one; `seconds` is how long one completion may take. Raises `AttachError` if it cannot be loaded."""
    began = time.monotonic()
    chosen = [tasks[place * len(tasks) // most] for place in range(most)] if len(tasks) > most else list(tasks)
    if not chosen:
        raise AttachError("an audit needs at least one task with a right and a wrong answer")
    desk = Desk(reward, seconds, network or reward.endswith(".toml"))
    try:
        told = desk.baseline(chosen)
        if not told and not desk.network:
            desk.network = True  # perhaps it cannot work without one; then the network is on, and that is said
            told = desk.baseline(chosen)
        if told:
            _examine(desk, told)
    finally:
        desk.close()
    return Audit(
        reward=_short_name(reward),
        tasks=len(chosen),
        judged=len(told),
        tried=tuple(desk.tried()),
        checks=tuple(desk.checks) if told else (),
        why=desk.why(len(chosen)),
        network=desk.about_network,
        seconds=round(time.monotonic() - began, 3),
    )


def _examine(desk: Desk, known: list[Known]) -> None:
    desk.repeated(known)
    desk.neighbours(known[:NEIGHBOURS])
    for one in known:
        for forgery in forgeries_for(one.task):
            desk.try_one(one, forgery)
    for spy in spies(known[0].task):
        desk.spied(known[0], spy)
    desk.sum_up()
    for what in BREAKS:
        desk.broken(known[0], what)


def _finite(score: float | None) -> float | None:
    return score if score is not None and math.isfinite(score) else None


def _short_name(reward: str) -> str:
    """The reward without the folders that lead to it: a record says nothing of the machine."""
    path, colon, function = reward.rpartition(":") if ".py:" in reward else (reward, "", "")
    return f"{Path(path).name}{colon}{function}"
