"""The fleet, and a run above its plots: the verdict with its findings, alarms, actions and history."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec import Struct, field

from tiltmeter.verdict.agreement_and_gain import Agreement
from tiltmeter.verdict.gold_standing import Estimate, GoldLevel
from tiltmeter.verdict.states import State
from tiltmeter.view.payloads.claims import Claims
from tiltmeter.view.payloads.picture import RunPicture

Number: TypeAlias = float | None
Tier = Literal["alarm", "warning"]
AlarmStatus = Literal["open", "resolved", "acknowledged", "muted", "false"]
ActionState = Literal["proposed", "approved", "rejected", "expired", "applied", "refused", "reverted"]
ActionRequest = Literal["approve", "reject", "undo"]
EntryKind = Literal[
    "alarm", "warning", "resolved", "finding", "proposed", "did", "outcome", "fault",
    "segment", "attempt", "end", "note",
]  # fmt: skip
MarkKind = Literal["alarm", "warning", "did", "stop", "segment", "checkpoint"]


class Headline(Struct, frozen=True, kw_only=True):
    """What every list of runs shows first."""

    run: str  # opaque id, for every other route
    name: str
    state: State
    sentence: str
    live: bool
    attempt: int
    step: int
    age_s: Number  # of the newest rollouts; null: there are none
    agreement: Agreement | None  # how often the reward prefers the better answer; null: not known
    level: GoldLevel | None  # gold now against its best; null: no gold


class FleetRow(Headline, frozen=True, kw_only=True):
    """One run of the fleet."""

    last_good: int | None  # step of the checkpoint to go back to
    what: str  # the surest finding, or the sentence, short
    picture: RunPicture | None  # proxy and gold; null: drawn for the rows that are sent
    settings: dict[str, str]  # of the trainer, those on a short list, and where the code and the data came from
    kl: Number
    reward: Number  # now: the mean at the end of its curve
    did: str  # the newest change made or proposed
    labels: int
    unread: bool  # by its monitor's list entry, which does not settle it: the run itself is read next
    tags: list[str] = []  # that people put on the run
    archived: bool = False  # by a person, and it has ended and was read: no other is ever hidden


FleetSort = Literal["state", "name", "step", "age", "gold", "lost", "kl", "labels"]


class GroupSpread(Struct, frozen=True, kw_only=True):
    """A number over the runs of a group: each counts once, and those that lack it do not count."""

    values: list[float]  # one for each run that has it, at most 200, lowest first
    n: int
    mean: Number
    sd: Number  # between runs; null: fewer than two


class FleetGroup(Struct, frozen=True, kw_only=True):
    """Runs that share the value of a setting."""

    value: str
    runs: int
    states: dict[State, int]
    reward: GroupSpread
    gold: GroupSpread
    lost: GroupSpread  # gold now against its best
    first: int  # newest step of the run that is least far, and
    last: int  # of the one that is furthest


class Fleet(Struct, frozen=True, kw_only=True):
    """GET /api/fleet?find&sort&order&group&limit&pictures"""

    version: str
    runs: list[FleetRow]  # worst first, then by age of the problem
    total: int  # runs there are, read or not, but those that are hidden
    live: int
    states: dict[State, int]  # how many runs are in each
    age_s: Number  # of the newest rollouts of any live run
    unread: int  # runs that are still to be read, those in `runs` with `unread` included
    unreadable: int
    left_out: int  # rows beyond the limit
    matches: int  # runs that the query finds
    groups: list[FleetGroup]  # by the setting that was asked for
    setting_names: list[str]  # that differ between the runs
    hidden: dict[State, int]  # runs that are archived and not shown, by state; they are in none of the counts above
    tags: list[str]  # on any of the runs


class VerdictCheck(Struct, frozen=True, kw_only=True):
    """One of the checks behind a verdict."""

    name: str
    ok: bool
    why: str


class AlarmRow(Struct, frozen=True, kw_only=True):
    """An alarm or a warning; those of one fingerprint share a row."""

    id: str  # opaque
    tier: Tier
    name: str  # of the reading
    detector: str
    attempt: int
    step: int  # raised
    onset: int
    onset_low: int
    onset_high: int
    evidence: Number  # log odds
    threshold: Number
    summary: str
    resolved: int | None  # step
    count: int  # times it was raised
    status: AlarmStatus
    note: str = field(name="said")  # by whoever acknowledged, muted or dismissed it


class Exemplar(Struct, frozen=True, kw_only=True):
    """A completion that shows what a finding or an alarm is about."""

    id: str  # of the rollout: attempt-step-row
    reward: Number
    gold: Number
    text: str  # of a long one the part that is new or repeated; a repeated passage once, with how often: ×14


class FindingRow(Struct, frozen=True, kw_only=True):
    """A named failure."""

    failure: str
    confidence: float
    attempt: int
    step: int
    summary: str
    cause: str
    fix: str
    tried: str  # what an experiment said
    readings: list[str]
    exemplars: list[str]  # rollout ids


class ActionRow(Struct, frozen=True, kw_only=True):
    """A change to the run, proposed or made."""

    id: str
    attempt: int
    step: int
    state_step: int = field(name="told")  # step at which it reached its state
    finding: str
    knob: str
    state: ActionState
    time: Number  # seconds since 1970
    before: Number
    after: Number
    change: str  # in words, with what goes with it
    floor: Number
    ceiling: Number
    reason: str
    pending: str  # "approve", "reject" or "undo" was asked and nobody has answered yet
    outcome: str  # measured effect of the change
    can: list[ActionRequest]


class HistoryEntry(Struct, frozen=True, kw_only=True):
    """One line of what happened."""

    time: float  # seconds since 1970
    attempt: int
    step: int
    kind: EntryKind
    text: str
    id: str  # of the alarm or action, else empty


class Mark(Struct, frozen=True, kw_only=True):
    """A mark that every plot over steps draws."""

    attempt: int
    step: int
    kind: MarkKind
    text: str
    id: str


class Lane(Struct, frozen=True, kw_only=True):
    """One attempt of the run. Steps from `left` on were abandoned by a later one and are drawn grey."""

    attempt: int
    parent: int | None
    first: int
    last: int
    left: int | None  # null: on the current branch to its end


class StopAdvice(Struct, frozen=True, kw_only=True):
    """What to do with the run now."""

    word: str
    why: str
    now: Estimate | None


class GoldCounts(Struct, frozen=True, kw_only=True):
    """Labels: whose, and how many."""

    source: str
    labels: int
    label_requests: int = field(name="asked")
    waiting: int
    rollouts: int
    people: bool


class HealthLine(Struct, frozen=True, kw_only=True):
    """The state of the monitor itself in one line."""

    text: str
    ok: bool


class SliceRow(Struct, frozen=True, kw_only=True):
    """One environment, task source or value of a column beside the others."""

    name: str
    rollouts: int
    last: int  # step at which it was seen last
    reward: Number  # of its last steps
    gold: Number
    evidence: Number  # log odds; null: nothing was bet on it
    since: int | None  # step since which gold is lost in it, if an alarm on it is open


class SolvedRow(Struct, frozen=True, kw_only=True):
    """A task that became solvable overnight."""

    task: str
    step: int  # since then it is paid for
    before: float  # share of its rollouts that was paid
    share: float  # since
    rollouts: int  # since


class SliceTables(Struct, frozen=True, kw_only=True):
    """Slices side by side, the most suspicious first, and tasks that became solvable overnight, the newest first."""

    slices: list[SliceRow]  # at most 12; empty: there are no two
    slices_left_out: int
    solved: list[SolvedRow]  # at most 12
    solved_left_out: int


class Summary(Headline, frozen=True, kw_only=True):
    """GET /api/summary?run&since (since: seconds since 1970, entries from then on): all of S1 above the plots."""

    behind: int  # steps stored and not measured
    now: float  # the server's clock, seconds since 1970
    onset: int | None
    onset_low: int | None
    onset_high: int | None
    last_good: Estimate | None  # the checkpoint to keep
    advice: StopAdvice | None
    symptom: str  # what proxy and gold did, in numbers
    agreement_and_level: list[str]  # agreement and level, in words
    checks: list[VerdictCheck]
    findings: list[FindingRow]  # surest first
    alarms: list[AlarmRow]  # open
    warnings: list[AlarmRow]  # open
    proposals: list[ActionRow]  # waiting for an answer
    entries: list[HistoryEntry]  # oldest first, at most 40
    entries_left_out: int
    asides: list[str]
    gold: GoldCounts
    pictures: list[RunPicture]  # proxy and gold, for narrow, middle and wide windows
    rows: int
    steps: int
    mode: str  # observe, advise, act; empty: no trainer can be changed
    lanes: list[Lane]
    marks: list[Mark]
    proves: list[Exemplar]  # ten completions that show it
    claims: Claims  # what was done, as acts, behaviours and the witness tell it
    slices: SliceTables
    health: HealthLine
