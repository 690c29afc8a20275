"""Canaries: known right and wrong answers scored in the same call as the batch, to notice a broken verifier.

A verifier can be broken by one completion for all that follow (verl's CVE-2026-6878: `eval` of an answer in the reward
worker), and the rewards look normal afterwards. The scores of known answers do not. Canaries are inserted at random
places among the rows and removed before the trainer sees a score: nothing is trained on them.
"""

from __future__ import annotations

import inspect
import random
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np

from tiltmeter.errors import AttachError
from tiltmeter.gold.guards.composed_reward import (
    ComposedReward,
    Floats,
    Part,
    PartScores,
    Rows,
    Stateful,
    call_part,
    function_name,
    nan_to_none,
    part_bounds,
)
from tiltmeter.gold.guards.reward import Reward, Scores
from tiltmeter.models.judge import HIGH, LOW, JudgeCanary
from tiltmeter.safety.safe_text import log_line

CANARIES_PER_CALL = (
    2  # canaries per call after the first call, which has all of them: one right and one wrong where both exist
)
MAX_FAILED_CALLS = 3  # consecutive calls that fail only with canaries in them; after that, no canaries are inserted
NOT_PER_ROW = ("trainer_state", "log_extra", "log_metric")
TRAINER_COLUMNS = (
    "completion_ids",
    "environments",
)  # made by the trainer for each row; a canary has them only if it declares them
Kind = Literal["rule", "judge"]


@dataclass(frozen=True)
class Known:
    """A known right or wrong answer (a canary), with the dataset columns that the verifier reads.

    Without a `prompt` it is scored under a prompt of the batch; columns that it lacks are taken from that row.

    >>> right, wrong = Known.pair("2 + 2?", "\\\\boxed{4}", "\\\\boxed{5}", answer="4")
    >>> right.expect, wrong.expect, wrong.columns
    ('high', 'low', {'answer': '4'})
    """

    completion: str
    expect: Literal["low", "high"] = "low"
    prompt: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def pair(cls, prompt: str, right: str, wrong: str, **columns: Any) -> tuple[Known, Known]:
        """A right and a wrong answer to the same question."""
        return cls(right, "high", prompt, columns), cls(wrong, "low", prompt, columns)

    def __str__(self) -> str:
        return f"the known-{'wrong' if self.expect == 'low' else 'right'} answer {self.completion[:40]!r}"


@dataclass
class CanaryCount:
    """Counts of one canary since `scalars` was last called."""

    asked: int = 0  # and answered
    failed: int = 0  # paid though it is wrong, or refused though it is right
    unanswered: int = 0


def canaried(
    part: Part,
    canaries: Sequence[Known | JudgeCanary],
    *,
    every: int = 1,
    scale: tuple[float, float] | None = None,
    judged: bool | None = None,
    examine: bool = True,
    seed: int | None = None,
) -> CanaryReward:
    """A reward with canaries among its rows, at each `every`-th call.

    Use every call for rules and code, and for example every tenth for a judge that costs money. A wrong answer counts
    as paid above 0.4 of `scale` (the scores of a worthless and of a perfect answer; by default the part's own bounds,
    or 0 to 1), a right one as refused below 0.6. In a watched run, one failed canary of a rule is an alarm, and a judge
    that fails more than 2 % gets a warning. Canaries that have a prompt are scored once before this returns: one that
    is scored wrongly raises `AttachError`, because either the canary or the verifier is wrong.

    Wrap the verifier itself, not a reward that compares the rows of a batch or learns from them: a canary would change
    what the others are paid.

    >>> def exact(completions, answer, **_): return [float(c == a) for c, a in zip(completions, answer, strict=True)]
    >>> reward = canaried(exact, Known.pair("2 + 2?", "4", "5", answer="4"))
    >>> reward(prompts=["3 + 3?"] * 2, completions=["6", "7"], answer=["6", "6"])
    [1.0, 0.0]
    >>> reward.asked, reward.failed
    (2, 0)
    """
    return CanaryReward(part, canaries, every=every, scale=scale, judged=judged, examine=examine, seed=seed)


class CanaryReward(ComposedReward):
    """A reward with canaries among its rows; the trainer sees only the scores of its own rows.

    `asked`, `failed` and `unanswered` count canaries since the beginning, `first_failure` is the call of the first
    failure, from 1. `scalars()` gives what is new since it was last called, for `run.observe(scalars=...)`; adapters do
    that by themselves.
    """

    def __init__(
        self,
        part: Part,
        canaries: Sequence[Known | JudgeCanary],
        *,
        every: int,
        scale: tuple[float, float] | None,
        judged: bool | None,
        examine: bool,
        seed: int | None,
    ) -> None:
        super().__init__(function_name(part), {function_name(part): part}, _pass_through, bounds=part_bounds(part))
        if not canaries or every < 1:
            raise AttachError("canaried() needs at least one canary, and every= a whole number from 1 on")
        if learns(part):
            raise AttachError(
                f"{function_name(part)} learns from the rows it sees, and would learn from canaries too: wrap the "
                "verifier inside it, as shaped(canaried(verifier, ...))"
            )
        self.part, self.every = part, every
        self.canaries = tuple(_to_known(canary) for canary in canaries)
        for name in TRAINER_COLUMNS:
            if name in _named_columns(part) and any(name not in canary.columns for canary in self.canaries):
                raise AttachError(
                    f"{function_name(part)} reads {name}, and a canary would be scored by those of another row: give "
                    f"each canary its own, as Known(..., columns={{{name!r}: ...}})"
                )
        self.kind: Kind = "judge" if (_is_judge(part) if judged is None else judged) else "rule"
        self.scale = scale or _scale(self.bounds)
        self.unanswered = self.asked = self.failed = 0
        self.first_failure: int | None = None
        self._random = random.Random(seed)
        self._counts: dict[int, CanaryCount] = {}
        self._queues: dict[str, list[int]] = {"low": [], "high": []}
        self._calls = self._failed_calls = 0
        if examine:
            self._examine()

    @property
    def components(self) -> tuple[str, ...]:
        return self.part.components if isinstance(self.part, Reward) else ()

    def __call__(self, prompts: Any = None, completions: Any = None, **columns: Any) -> Scores:
        if completions is None:
            raise TypeError(f"{self.__name__} was called without completions")
        rows = Rows(prompts, completions, columns)
        chosen = self._choose_canaries(rows)
        if not chosen:
            return self._score(rows, [])
        self._random.shuffle(chosen)  # otherwise right ones would always come before wrong ones
        mixed, places = self._mix_in(rows, chosen)
        try:
            scores = self._score(mixed, places)
        except Exception as error:  # noqa: BLE001  # whatever it is, the trainer's rows must be scored
            scores = self._score(rows, [])  # raises again if the rows themselves are the cause
            self._failed_calls += 1
            self._count(chosen, np.full(len(chosen), np.nan))
            self._warn_once(f"could not be asked with canaries among the rows: {type(error).__name__}: {error}")
            return scores
        self._failed_calls = 0
        self._count(chosen, self._canary_scores)
        return scores

    def scalars(self, rank: int = 0, first: int = 0) -> dict[str, float]:
        """Counts by canary since the last call, under names that ranks do not share; `first`: number of canary 0."""
        counts: dict[str, float] = {}
        for number, count in self._counts.items():
            end = f"{self.kind}.{self.canaries[number].expect}.{first + number}.{rank}"
            counts[f"canary.asked.{end}"] = float(count.asked)
            if count.failed:
                counts[f"canary.failed.{end}"] = float(count.failed)
            if count.unanswered:
                counts[f"canary.unanswered.{end}"] = float(count.unanswered)
        self._counts = {}
        return counts

    # -- asking ------------------------------------------------------------------------------------------------------

    def _score(self, rows: Rows, places: Sequence[int]) -> Scores:
        """Scores of the rows without the canaries; component scores and step scores likewise."""
        scores, broke = self._collect_scores(self.__name__, partial(call_part, self.part, rows), len(rows))
        own_rows = np.setdiff1d(np.arange(len(rows)), places)
        self._canary_scores: Floats = scores[list(places)] if places else np.zeros(0)
        whole = isinstance(self.part, Reward) and self.part.components
        part_scores = dict(self.part.told) if whole else {}  # type: ignore[attr-defined]
        self.told = {name: [column[row] for row in own_rows] for name, column in part_scores.items()}
        steps = self.part.step_reward if isinstance(self.part, ComposedReward) else None
        self.step_reward = None if steps is None else [steps[row] for row in own_rows]
        self.infra = broke[own_rows].tolist()
        return nan_to_none(np.where(broke, np.nan, scores)[own_rows])

    def _choose_canaries(self, rows: Rows) -> list[int]:
        """The canaries of this call: all of them in the first, then one of each kind in turn."""
        if not len(rows) or rows.evaluating or self._failed_calls >= MAX_FAILED_CALLS:
            return []
        self._calls += 1
        if (self._calls - 1) % self.every:
            return []
        if self._calls == 1:
            return list(range(len(self.canaries)))
        kinds = [expect for expect in ("low", "high") if any(canary.expect == expect for canary in self.canaries)]
        return [
            self._next_canary(kinds[place % len(kinds)]) for place in range(min(CANARIES_PER_CALL, len(self.canaries)))
        ]

    def _next_canary(self, expect: str) -> int:
        queue = self._queues[expect]
        if not queue:
            queue += [number for number, canary in enumerate(self.canaries) if canary.expect == expect]
            self._random.shuffle(queue)
        return queue.pop()

    def _mix_in(self, rows: Rows, chosen: Sequence[int]) -> tuple[Rows, list[int]]:
        """The rows with canaries inserted, and the positions of the canaries."""
        total = len(rows) + len(chosen)
        places = sorted(self._random.sample(range(total), len(chosen)))
        like = [self._random.randrange(len(rows)) for _ in chosen]  # the row whose missing values each canary takes
        chat = not isinstance(rows.completions[0], str)
        canaries = [self.canaries[number] for number in chosen]
        completions = [_message("assistant", canary.completion, chat) for canary in canaries]
        prompts = None
        if rows.prompts is not None:
            canary_prompts = [
                rows.prompts[row] if canary.prompt is None else _message("user", canary.prompt, chat)
                for canary, row in zip(canaries, like, strict=True)
            ]
            prompts = _insert_canaries(rows.prompts, canary_prompts, places)
        columns: dict[str, Any] = {}
        for name, values in rows.columns.items():
            if _is_per_row(name, values, len(rows)):
                own = [canary.columns.get(name, values[row]) for canary, row in zip(canaries, like, strict=True)]
                columns[name] = _insert_canaries(values, own, places)
            else:
                columns[name] = (
                    _log_without_canaries(values, places, total) if name == "log_extra" and callable(values) else values
                )
        return Rows(prompts, _insert_canaries(rows.completions, completions, places), columns), places

    # -- judging -----------------------------------------------------------------------------------------------------

    def _scored_as_expected(self, canary: Known, score: float) -> bool:
        low, high = self.scale
        worth = (score - low) / (high - low)
        return worth <= LOW if canary.expect == "low" else worth >= HIGH

    def _count(self, chosen: Sequence[int], scores: Floats) -> None:
        for number, score in zip(chosen, scores.tolist(), strict=True):
            count, canary = self._counts.setdefault(number, CanaryCount()), self.canaries[number]
            if score != score:
                count.unanswered += 1
                self.unanswered += 1
                continue
            count.asked += 1
            self.asked += 1
            if not self._scored_as_expected(canary, score):
                count.failed += 1
                self.failed += 1
                self.first_failure = self.first_failure or self._calls
                self._warn_once(f"gave {score:g} to {canary} at call {self._calls}{self._first_call_hint()}")

    def _first_call_hint(self) -> str:
        return ": your canary or your verifier is wrong" if self._calls == 1 else ""

    def _warn_once(self, message: str) -> None:
        kind = message.partition(" ")[0]
        if (self.__name__, kind) not in self._warned:
            self._warned.add((self.__name__, kind))
            warnings.warn(f"tiltmeter: the reward {log_line(f'{self.__name__} {message}', 400)}", stacklevel=4)

    def _examine(self) -> None:
        """Score the canaries that have a prompt once, before training depends on them."""
        canaries = [canary for canary in self.canaries if canary.prompt is not None]
        if not canaries:
            return
        columns = {
            name: [c.columns.get(name) for c in canaries]
            for name in dict.fromkeys(n for c in canaries for n in c.columns)
        }
        try:
            rows = Rows([c.prompt for c in canaries], [c.completion for c in canaries], columns)
            scores, broke = self._collect_scores(self.__name__, partial(call_part, self.part, rows), len(rows))
        except Exception as error:
            raise AttachError(
                f"{self.__name__} could not score the canaries: {type(error).__name__}: {str(error)[:200]}. Give each "
                "the columns that the verifier reads, as Known.pair(prompt, right, wrong, answer=...), or pass "
                "examine=False if it needs chats or a trainer"
            ) from error
        for canary, score, lost in zip(canaries, scores.tolist(), broke.tolist(), strict=True):
            if not lost and score == score and not self._scored_as_expected(canary, score):
                raise AttachError(
                    f"{self.__name__} gives {score:g} to {canary}: your canary or your verifier is wrong; if worthless "
                    f"and perfect answers do not get {self.scale[0]:g} and {self.scale[1]:g}, pass scale=(low, high)"
                )


def learns(part: Part) -> bool:
    """Whether a reward, or a part of it, learns from the rows it sees."""
    if not isinstance(part, ComposedReward):
        return False
    return isinstance(part.rule, Stateful) or any(map(learns, part.parts.values()))


def _named_columns(part: Part) -> Iterable[str]:
    """The parameter names of a function, as far as they can be inspected."""
    try:
        return inspect.signature(part).parameters
    except (TypeError, ValueError):
        return ()


def _pass_through(part_scores: PartScores, rows: Rows) -> Any:
    return next(iter(part_scores.scores.values()))


def _is_judge(part: Part) -> bool:
    return isinstance(part, ComposedReward) and getattr(part.rule, "is_judge", False)


def _to_known(canary: Known | JudgeCanary) -> Known:
    return canary if isinstance(canary, Known) else Known(canary.completion, canary.expect, canary.prompt)


def _scale(bounds: tuple[float | None, float | None]) -> tuple[float, float]:
    low, high = bounds
    return (low, high) if low is not None and high is not None and low < high else (0.0, 1.0)


def _message(role: str, text: str, chat: bool) -> Any:
    return [{"role": role, "content": text}] if chat else text


def _is_per_row(name: str, values: Any, rows: int) -> bool:
    if name in NOT_PER_ROW or isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__getitem__"):
        return False
    return hasattr(values, "__len__") and len(values) == rows


def _insert_canaries(values: Sequence[Any], canaries: Sequence[Any], places: Sequence[int]) -> list[Any]:
    mixed = list(values)
    for place, canary in zip(places, canaries, strict=True):  # in rising order, so that each lands at its place
        mixed.insert(place, canary)
    return mixed


def _log_without_canaries(log: Callable[..., Any], places: Sequence[int], total: int) -> Callable[..., Any]:
    """The trainer's `log_extra`, called without the values of canaries: it expects one value per row."""

    def log_rows(column: str, values: Any) -> Any:
        if hasattr(values, "__len__") and len(values) == total:
            values = [value for place, value in enumerate(values) if place not in places]
        return log(column, values)

    return log_rows
