"""Labelling, control requests, the event stream, and answers of the server about itself."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from msgspec import Struct, field

from tiltmeter.verdict.states import State
from tiltmeter.view.payloads.overview import HistoryEntry, Number

TaskKind = Literal["pair", "single", ""]
AnswerValue = Literal["a", "b", "tie", "both_bad", "skip", "0", "0.25", "0.5", "0.75", "1"]
ControlKind = Literal[
    "acknowledge", "mute", "false_alarm", "ask_label", "approve", "reject", "undo",
    "tag", "note", "view", "archive", "remove",
]  # fmt: skip
PageRole = Literal["view", "label", "control"]
ControlBy = Literal["none", "token", "account"]


class RaterAgreement(Struct, frozen=True, kw_only=True):
    """Items that two raters judged, and those with the same answer."""

    rater: str = field(name="with")
    same: int
    of: int


class RaterConsistency(Struct, frozen=True, kw_only=True):
    """Pairs that a rater saw twice, and those with the same answer."""

    same: int
    of: int


class LabelTask(Struct, frozen=True, kw_only=True):
    """GET /api/label/next (label token): nothing here says what was paid, when, or which side is which.
    POST /api/label and POST /api/label/undo give the next task, or the one that was taken back."""

    task: str  # random id; "" when there is nothing to do
    kind: TaskKind
    prompt: str | None
    texts: list[str]  # two, or one
    done: int  # by this rater today
    left: int  # open for this rater
    guide: str  # how to judge, as plain text
    why: str  # why there is nothing to do
    rater: str
    agreement: list[RaterAgreement]  # only when nothing is left to do
    consistency: RaterConsistency | None  # likewise


class Answer(Struct, frozen=True, kw_only=True):
    """POST /api/label"""

    task: str
    answer: AnswerValue
    milliseconds: int


class Control(Struct, frozen=True, kw_only=True):
    """POST /api/control (control token)"""

    run: str
    kind: ControlKind
    target: str  # id of an alarm, action or rollout; of a tag or note also a step, or nothing: the run; a view's name
    step: int  # the step it was decided on
    reason: str  # or the tag, the note, the address of a view, the id of what is removed
    nonce: str


class Controlled(Struct, frozen=True, kw_only=True):
    """The answer to a control request."""

    request: str
    text: str  # what happens next


class StateMessage(Struct, frozen=True, kw_only=True, tag="state", tag_field="kind"):
    """The verdict of the run, or the worst of the fleet."""

    state: State
    sentence: str
    step: int
    age_s: Number
    live: bool


class StepMessage(Struct, frozen=True, kw_only=True, tag="step", tag_field="kind"):
    """A step was measured."""

    attempt: int
    step: int


class EntryMessage(Struct, frozen=True, kw_only=True, tag="event", tag_field="kind"):
    """Something happened."""

    entry: HistoryEntry


class ResetMessage(Struct, frozen=True, kw_only=True, tag="reset", tag_field="kind"):
    """Too far behind: ask for everything again."""


#: GET /api/stream?run: server-sent events. `run` absent: the fleet's.
Pushed: TypeAlias = StateMessage | StepMessage | EntryMessage | ResetMessage


class Login(Struct, frozen=True, kw_only=True):
    """POST /api/login {code}"""

    token: str
    roles: list[PageRole]


class Me(Struct, frozen=True, kw_only=True):
    """GET /api/me: who the server takes this page for, by its token or by a proxy's header."""

    name: str  # "" for whoever has the token of a server without accounts, and for nobody
    roles: list[PageRole]  # empty: nobody
    control: ControlBy  # how this person acts on runs


class Failure(Struct, frozen=True, kw_only=True):
    """Every answer with a status of 400 and above."""

    error: str  # what is wrong and how to fix it


class ReportAnswers(Struct, frozen=True, kw_only=True):
    """The data of a report."""

    about: str = field(name="made")  # by which version, when, up to which step
    answers: dict[str, Any]  # by the address that the page would request
