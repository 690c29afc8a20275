"""The reading room: a prompt's completions side by side, and the numbers of their tokens."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from tiltmeter.view.payloads.overview import Number
from tiltmeter.view.payloads.rollouts import Rollout, TextHit

TokenColour = Literal["logprob", "reference", "entropy", "engine", "advantage", "process"]


class ColourScale(Struct, frozen=True, kw_only=True):
    """A number that tokens can be coloured by. Level k: the value is at least `levels[k - 1]` away from `centre`."""

    name: TokenColour
    title: str
    unit: str
    centre: float
    levels: list[float]  # six, rising
    signed: bool  # values above and below the centre have colours of their own; else only those on `side` have one
    side: Literal["above", "below"]
    says: str  # what a strong colour means
    why: str  # why tokens cannot be coloured by it; empty: they can


class GroupMember(Rollout, frozen=True, kw_only=True):
    """One of the completions that stand side by side."""

    repeats: int  # how often its most repeated passage stands there in a row; 1: nothing is repeated
    hits: list[TextHit]  # of the query


class ComponentWeight(Struct, frozen=True, kw_only=True):
    """A component of the reward, and by how much it is multiplied."""

    name: str
    weight: Number  # null: not known


class ReadGroup(Struct, frozen=True, kw_only=True):
    """GET /api/members?run&id&find: the completions of the rollout's prompt group in full, highest reward first."""

    attempt: int
    step: int
    group: int
    prompt: str | None
    size: int  # of the group; of more than 16 the best and the worst paid are members
    members: list[GroupMember]
    weights: list[ComponentWeight]
    weights_why: str  # where the weights come from, or why they are not known
    scales: list[ColourScale]


class TurnTokens(Struct, frozen=True, kw_only=True):
    """The tokens of the words of one turn."""

    turn: int
    widths: list[int]  # characters of each token, as JavaScript counts
    values: list[Number]


class TokenRow(Struct, frozen=True, kw_only=True):
    """The tokens of one completion."""

    id: str
    widths: list[int]  # characters of each token, as JavaScript counts
    values: list[Number]
    why: str  # why its tokens cannot be coloured, or those of some turns; empty: they can
    turns: list[TurnTokens] = []  # of a conversation, instead of widths and values


class GroupTokens(Struct, frozen=True, kw_only=True):
    """GET /api/tokens?run&id&by: the numbers of the tokens of the same members."""

    by: TokenColour
    rows: list[TokenRow]
