"""Rollouts, phrases and pinned prompts."""

from __future__ import annotations

from typing import Literal

from msgspec import UNSET, Struct, UnsetType, field

from tiltmeter.view.payloads.overview import Number

YesNo = Literal[0, 1]
RolloutSort = Literal["step", "reward", "gold", "length", "gap"]
SortOrder = Literal["up", "down"]


class Filters(Struct, frozen=True, kw_only=True):
    """GET /api/rollouts?run&FILTERS&after&limit"""

    low: int | UnsetType = field(default=UNSET, name="from")  # steps
    high: int | UnsetType = field(default=UNSET, name="to")
    attempt: int | UnsetType = UNSET
    reward_min: float | UnsetType = UNSET
    reward_max: float | UnsetType = UNSET
    gold_min: float | UnsetType = UNSET
    gold_max: float | UnsetType = UNSET
    length_min: int | UnsetType = UNSET
    length_max: int | UnsetType = UNSET
    labelled: YesNo | UnsetType = UNSET
    truncated: YesNo | UnsetType = UNSET
    flagged: YesNo | UnsetType = UNSET  # a reward that is no plain number
    disagree: YesNo | UnsetType = UNSET  # reward functions disagree: the widest quarter of steps' rows
    phrase: str | UnsetType = UNSET  # completions that contain this text
    find: str | UnsetType = UNSET  # a query line: conditions and texts to find
    sort: RolloutSort | UnsetType = UNSET
    order: SortOrder | UnsetType = UNSET


class TextHit(Struct, frozen=True, kw_only=True):
    """Where something that was searched for stands in a text."""

    start: int
    stop: int
    where: Literal["prompt", "completion"]


class RolloutRow(Struct, frozen=True, kw_only=True):
    """A rollout in a list."""

    id: str
    attempt: int
    step: int
    group: int
    reward: Number
    flag: str  # of the reward, if it is no plain number
    gold: Number  # null: not labelled
    length: int | None
    truncated: bool | None
    advantage: Number
    text: str  # first 200 characters, or what stands around the first hit
    hit: TextHit | None  # in `text`; null: nothing was searched for
    tags: list[str]  # that people put on it
    notes: int  # that people wrote on it


class RolloutPage(Struct, frozen=True, kw_only=True):
    """A page of rollouts."""

    rows: list[RolloutRow]
    total: int  # rows that match
    rollouts: int  # in the index
    after: str  # cursor of the next page; empty: this was the last
    ready: float  # share of the run that is indexed, 1: all
    ms: float  # server time
    searched: int | UnsetType = UNSET  # rows whose texts were searched so far,
    to_search: int | UnsetType = UNSET  # of so many; it goes on
    unsearchable: int | UnsetType = UNSET  # rows whose texts are not stored, or cannot be read


class RewardPart(Struct, frozen=True, kw_only=True):
    """What one reward function gave."""

    name: str
    value: Number
    flag: str


class StepScore(Struct, frozen=True, kw_only=True):
    """A process reward: of one step of the answer."""

    reward: Number
    text: str | None  # null: nobody knows how it was split
    bad: bool


class RolloutTurn(Struct, frozen=True, kw_only=True):
    """One turn of a conversation: a message, or one of its calls."""

    role: str
    own: bool  # the policy that is trained wrote it
    excerpt: str | None  # its words
    reasoning: str | None
    call: str | None  # name of the tool
    arguments: str | None
    tool_error: str | None
    again: bool  # a call that repeats an earlier one word for word


class RolloutAct(Struct, frozen=True, kw_only=True):
    """Something that the trajectory did and no task asks for: evidence, no verdict."""

    says: str  # what was done
    turn: int  # in `turns`; -1: known from the record of files
    line: int
    quote: str


class Rollout(RolloutRow, frozen=True, kw_only=True):
    """GET /api/rollout?run&id"""

    prompt: str | None
    completion: str | None
    rewards: list[RewardPart]
    steps: list[StepScore]
    turns: list[RolloutTurn]  # empty: the completion is one message
    acts: list[RolloutAct]
    env: str
    stop: str  # why it ended; empty: not known
    facts: str  # JSON of the dataset's columns
    capped: bool


class StartAnswer(Struct, frozen=True, kw_only=True):
    """The answer to the same prompt at the start."""

    step: int | None
    text: str
    source: str


class RolloutGroup(Struct, frozen=True, kw_only=True):
    """GET /api/group?run&id: the rollout, the others of its prompt group, and the same prompt at the start."""

    rollout: Rollout
    rows: list[RolloutRow]  # the group, highest reward first
    mean: Number
    spread: Number
    base: StartAnswer | None
    base_why: str  # why there is none
    hits: list[TextHit]  # of the query, in the open rollout's prompt and completion


class PhraseRow(Struct, frozen=True, kw_only=True):
    """A phrase that is over-used."""

    text: str
    share: Number  # of completions now
    share_before: Number
    z: Number
    reward_with: Number
    reward_without: Number
    gold_with: Number
    gold_without: Number
    first: int | None  # step at which it first passed twice its share at the start
    trend: list[Number]  # share over the run, at most 24 points
    excerpt: str
    id: str  # of a rollout that contains it


class PhraseList(Struct, frozen=True, kw_only=True):
    """GET /api/phrases?run&step"""

    step: int
    against: str
    rows: list[PhraseRow]
    empty: str


class PromptAnswer(Struct, frozen=True, kw_only=True):
    """What the policy answered to a prompt at one step."""

    step: int
    text: str
    reward: Number
    gold: Number
    id: str  # of the rollout, else empty
    folded: str | UnsetType = UNSET  # repeated passages once, with how often (×14); absent: there are none


class PinnedPrompt(Struct, frozen=True, kw_only=True):
    """A prompt and its answers over training."""

    prompt: str
    answers: list[PromptAnswer] = field(name="said")


class Pinned(Struct, frozen=True, kw_only=True):
    """GET /api/pinned?run"""

    source: str  # where the answers come from, in words
    prompts: list[PinnedPrompt]
    empty: str
