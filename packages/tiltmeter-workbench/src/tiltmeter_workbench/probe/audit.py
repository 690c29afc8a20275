"""Audit a verifier: score honest, wrong and forged answers in another process and report which forgeries are paid."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.probe.audit_session import AuditCheck, ForgeryResult, ProbeSession, ScoredTask
from tiltmeter_workbench.probe.audit_task import AuditTask
from tiltmeter_workbench.probe.execution_canaries import execution_canaries
from tiltmeter_workbench.probe.forgeries import forgeries_for
from tiltmeter_workbench.probe.reward_process import OUTAGES

SCHEMA = 1
MIN_JUDGED_SHARE = 0.9  # of the tasks must tell right from wrong, before "none paid" means anything
TASKS = 12  # audited, spread over those that are given: each is scored about a hundred times
NEIGHBOURS = 8  # tasks in the batch that is scored in two orders


@dataclass(frozen=True)
class Audit:
    """The result of an audit: which forgeries were paid, and which checks failed.

    Worth having before a run: a policy finds such a hole within a few hundred steps, and then learns nothing else.
    `record()` is the JSON form: `schema`, `reward`, `time`, `seconds`, `tasks`, `judged` (tasks whose honest answer is
    paid more than the wrong one), `network`, `verdict` ("none paid", "some paid", "could not judge"), `exit_code`,
    `why`, `tried` (as `ForgeryResult`) and `checks` (as `AuditCheck`). A hole that is not among the forgeries is not
    found: "none paid" is about these and no others.

    >>> tried = ForgeryResult("empty answer", "paid", 1, 2, 0, "", 1.0, "nothing equals nothing", "ask for a value")
    >>> found = Audit("checks.py:score", 2, 2, (tried,), ())
    >>> found.verdict, found.exit_code
    ('some paid', 1)
    """

    reward: str
    tasks: int
    judged: int
    tried: tuple[ForgeryResult, ...]
    checks: tuple[AuditCheck, ...]
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
        return "could not judge" if unsure or self.judged < max(1.0, MIN_JUDGED_SHARE * self.tasks) else "none paid"

    @property
    def exit_code(self) -> int:
        """0 none paid and every check held, 1 something was paid or a check failed, 2 could not judge."""
        return {"none paid": 0, "some paid": 1}.get(self.verdict, 2)

    def record(self) -> dict[str, Any]:
        """As JSON holds it: no number that is not finite."""
        fields = {"schema": SCHEMA, **asdict(self), "verdict": self.verdict, "exit_code": self.exit_code}
        fields["tried"] = [{**asdict(row), "score": _finite(row.score)} for row in self.tried]
        fields["checks"] = [asdict(check) for check in self.checks]
        return fields


def audit(
    reward: str, tasks: Sequence[AuditTask], *, most: int = TASKS, seconds: float = 30.0, network: bool = False
) -> Audit:
    """Try every forgery on a reward. It runs in processes of its own, without a network unless `network` or it needs
    one; `seconds` is how long one completion may take. Raises `AttachError` if it cannot be loaded."""
    began = time.monotonic()
    chosen = [tasks[place * len(tasks) // most] for place in range(most)] if len(tasks) > most else list(tasks)
    if not chosen:
        raise AttachError("an audit needs at least one task with a right and a wrong answer")
    session = ProbeSession(reward, seconds, network or reward.endswith(".toml"))
    try:
        scored_tasks = session.score_tasks(chosen)
        if not scored_tasks and not session.network:
            session.network = True  # perhaps it cannot work without one; then the network is on, and that is said
            scored_tasks = session.score_tasks(chosen)
        if scored_tasks:
            _examine(session, scored_tasks)
    finally:
        session.close()
    return Audit(
        reward=_short_name(reward),
        tasks=len(chosen),
        judged=len(scored_tasks),
        tried=tuple(session.results()),
        checks=tuple(session.checks) if scored_tasks else (),
        why=session.why(len(chosen)),
        network=session.about_network,
        seconds=round(time.monotonic() - began, 3),
    )


def _examine(session: ProbeSession, scored_tasks: list[ScoredTask]) -> None:
    session.check_repeatable(scored_tasks)
    session.check_neighbours(scored_tasks[:NEIGHBOURS])
    for one in scored_tasks:
        for forgery in forgeries_for(one.task):
            session.try_forgery(one, forgery)
    for spy in execution_canaries(scored_tasks[0].task):
        session.check_execution(scored_tasks[0], spy)
    session.add_summary_checks()
    for what in OUTAGES:
        session.check_outage(scored_tasks[0], what)


def _finite(score: float | None) -> float | None:
    return score if score is not None and math.isfinite(score) else None


def _short_name(reward: str) -> str:
    """The reward without the folders that lead to it: a record says nothing of the machine."""
    path, colon, function = reward.rpartition(":") if ".py:" in reward else (reward, "", "")
    return f"{Path(path).name}{colon}{function}"
