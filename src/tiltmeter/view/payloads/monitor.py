"""The verifier screen and the monitor screen."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from tiltmeter.view.payloads.overview import Number, VerdictCheck
from tiltmeter.view.payloads.plots import AbsentReading

ScorerKind = Literal["rule", "judge"]
AuditVerdict = Literal["none paid", "some paid", "could not judge"]
ForgeryStatus = Literal["paid", "not paid", "could not judge"]


class SandboxRow(Struct, frozen=True, kw_only=True):
    """Where a reward function runs code."""

    reward: str
    tier: str
    isolation: str


class UnscoredCounts(Struct, frozen=True, kw_only=True):
    """Completions, and those without a reward by reason."""

    rows: int
    infra: int
    unscored: int


class ForgeryRow(Struct, frozen=True, kw_only=True):
    """A wrong answer made to look right, and whether it was paid."""

    forgery: str
    status: ForgeryStatus
    paid: int
    tasks: int
    unjudged: int
    score: Number
    text: str
    cause: str
    fix: str


class AuditCheckRow(Struct, frozen=True, kw_only=True):
    """Something about the verifier itself; null: it could not be seen."""

    ok: bool | None
    name: str
    says: str
    fix: str


class AuditRow(Struct, frozen=True, kw_only=True):
    """An audit of a verifier."""

    reward: str
    time: float
    seconds: float
    tasks: int
    judged: int  # tasks that tell right from wrong
    network: str
    verdict: AuditVerdict
    summary: str  # why tasks could not be used
    tried: list[ForgeryRow]  # paid ones first
    checks: list[AuditCheckRow]


class WorkerRow(Struct, frozen=True, kw_only=True):
    """A reward worker over the run: the mis-scored canaries in equal spans of steps."""

    worker: int
    kind: ScorerKind
    canaries: int = field(name="asked")
    failed: int
    first: int | None
    width: int
    cells: list[int | None]


class CanaryRow(Struct, frozen=True, kw_only=True):
    """A canary, and how often it was mis-scored."""

    number: int
    kind: ScorerKind
    expect: str
    text: str
    named: bool
    scorings: int = field(name="asked")
    failed: int


class Verifier(Struct, frozen=True, kw_only=True):
    """GET /api/verifier?run"""

    sandboxes: list[SandboxRow]
    attached: Number  # seconds since 1970: when the sandboxes tested themselves
    errors: UnscoredCounts
    audits: list[AuditRow]  # newest first
    damaged: int  # audits that cannot be read
    workers: list[WorkerRow]
    workers_left_out: int
    unanswered: int  # canaries without a score
    canaries: list[CanaryRow]


class RankRow(Struct, frozen=True, kw_only=True):
    """A rank of the newest attempt."""

    rank: int
    step: int
    age_s: Number
    late: bool
    lost: int


class MonitorHealth(Struct, frozen=True, kw_only=True):
    """The monitor's process."""

    step: int
    behind: int
    age_s: Number
    running: bool | None


class PartOff(Struct, frozen=True, kw_only=True):
    """A part of ours that was switched off."""

    part: str
    error: str


class FaultRow(Struct, frozen=True, kw_only=True):
    """A failure of a part of ours."""

    attempt: int
    step: int
    part: str
    error: str


class NameValue(Struct, frozen=True, kw_only=True):
    """A fact in words."""

    name: str
    value: str


class IndexState(Struct, frozen=True, kw_only=True):
    """How much of the run the server has indexed."""

    rollouts: int
    ready: float


class Health(Struct, frozen=True, kw_only=True):
    """GET /api/health?run"""

    ranks: list[RankRow]
    monitor: MonitorHealth
    checks: list[VerdictCheck]
    off: list[PartOff]
    faults: list[FaultRow]
    absent: list[AbsentReading]
    disk_bytes: int
    skipped: int  # damaged lines
    seen: int
    lost: int
    cost: list[NameValue]  # overhead in the trainer, where known
    versions: list[NameValue]
    index: IndexState
