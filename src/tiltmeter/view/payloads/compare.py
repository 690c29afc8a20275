"""The compare screen: two to six runs over one axis."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from tiltmeter.verdict.states import State
from tiltmeter.view.payloads.overview import Number
from tiltmeter.view.payloads.rollouts import PromptAnswer

CompareAxis = Literal["step", "root_kl", "tokens"]


class ComparedRun(Struct, frozen=True, kw_only=True):
    """A run and its verdict."""

    run: str
    name: str
    state: State
    sentence: str
    step: int


class ComparedCurve(Struct, frozen=True, kw_only=True):
    """A measure of one run."""

    x: list[Number]
    y: list[Number]
    low: list[Number]
    high: list[Number]


class CurveDifference(Struct, frozen=True, kw_only=True):
    """How far another run lies from the first, over stretches that both cover, with a 95 % interval."""

    x: list[Number]
    y: list[Number]
    low: list[Number]
    high: list[Number]
    first: Number  # x from which on they differ lastingly
    run: int  # the other run


class ComparedMeasure(Struct, frozen=True, kw_only=True):
    """One measure of all runs, and the difference that shows first."""

    name: str
    label: str
    runs: list[ComparedCurve]
    difference: CurveDifference | None


class ComparedSetting(Struct, frozen=True, kw_only=True):
    """A setting that differs."""

    name: str
    values: list[str]


class ComparedAnswer(Struct, frozen=True, kw_only=True):
    """The answer of one run."""

    run: int
    step: int
    text: str
    reward: Number
    gold: Number
    id: str

    @classmethod
    def of(cls, run: int, answer: PromptAnswer) -> ComparedAnswer:
        return cls(run=run, step=answer.step, text=answer.text, reward=answer.reward, gold=answer.gold, id=answer.id)


class ComparedPrompt(Struct, frozen=True, kw_only=True):
    """A prompt that all runs answered."""

    prompt: str
    answers: list[ComparedAnswer] = field(name="said")


class Compare(Struct, frozen=True, kw_only=True):
    """GET /api/compare?run=..&run=..&x=step|root_kl|tokens&name"""

    runs: list[ComparedRun]
    x: CompareAxis
    measures: list[ComparedMeasure]
    diverged: str  # "gold, step 596"
    config: list[ComparedSetting]  # that differ
    same: int  # settings that do not
    prompts: list[ComparedPrompt]
