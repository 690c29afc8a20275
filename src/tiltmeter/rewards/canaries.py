"""Answers of known worth, scored in the same call as the batch: whether the verifier still tells right from wrong.

A verifier can be broken by one completion for all that follow (verl's CVE-2026-6878: `eval` of an answer in the reward
worker), and nothing in the rewards then looks wrong. What is known beforehand does. Canaries stand at random places
among the rows, look like them, and are taken out again before the trainer sees a score: nothing is trained on them.
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
from tiltmeter.judge import HIGH, LOW, Canary
from tiltmeter.rewards import Reward, Scores
from tiltmeter.rewards.parts import Floats, Made, Part, Remembers, Rows, Told, heard, limits, named, with_none

TOGETHER = 2  # canaries in a call after the first, which has them all: one of each kind where there are both
TRIES = 3  # calls in a row that fail only with canaries in them, after which none are asked any more
NOT_BY_ROW = ("trainer_state", "log_extra", "log_metric")
NOT_ITS_OWN = (
    "completion_ids",
    "environments",
)  # what a trainer makes for each row, and a canary has only if it says so
Kind = Literal["rule", "judge"]


@dataclass(frozen=True)
class Known:
    """An answer whose worth is known, with the columns of the dataset that a verifier reads.

    Without a `prompt` it is asked as an answer to a prompt of the batch; a column that it does not have is that row's.

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
class Count:
    """What became of one canary since it was last asked about."""

    asked: int = 0  # and answered
    failed: int = 0  # paid though it is wrong, or refused though it is right
    unanswered: int = 0


def canaried(
    part: Part,
    canaries: Sequence[Known | Canary],
    *,
    every: int = 1,
    scale: tuple[float, float] | None = None,
    judged: bool | None = None,
    examine: bool = True,
    seed: int | None = None,
) -> Canaried:
    """A reward with canaries among its rows, at each `every`-th call.

    Every call for rules and code; every tenth, say, for a judge that is paid. A wrong answer is paid if it gets more
    than 0.4 of `scale` (the scores of a worthless and of a perfect answer; the part's own bounds, or 0 to 1, if nothing
    is said), a right one is refused below 0.6. In a run that is watched, a rule that gets one wrong is an alarm, and a
    judge above 2 % a warning. Canaries that have a prompt are scored once before this returns: one that is not scored
    as it should be raises `AttachError`, because then it or the verifier is wrong.

    Wrap the verifier itself, not a reward that compares the rows of a batch or learns from them: a canary would change
    what the others are paid.

    >>> def exact(completions, answer, **_): return [float(c == a) for c, a in zip(completions, answer, strict=True)]
    >>> reward = canaried(exact, Known.pair("2 + 2?", "4", "5", answer="4"))
    >>> reward(prompts=["3 + 3?"] * 2, completions=["6", "7"], answer=["6", "6"])
    [1.0, 0.0]
    >>> reward.asked, reward.failed
    (2, 0)
    """
    return Canaried(part, canaries, every=every, scale=scale, judged=judged, examine=examine, seed=seed)


class Canaried(Made):
    """A reward that is watched by answers of known worth; to the trainer it is the reward itself.

    `asked`, `failed` and `unanswered` count canaries since the beginning, `first_failure` is the call of the first
    failure, from 1. `scalars()` gives what is new since it was last called, for `run.observe(scalars=...)`; adapters do
    that by themselves.
    """

    def __init__(
        self,
        part: Part,
        canaries: Sequence[Known | Canary],
        *,
        every: int,
        scale: tuple[float, float] | None,
        judged: bool | None,
        examine: bool,
        seed: int | None,
    ) -> None:
        super().__init__(named(part), {named(part): part}, _same, bounds=limits(part))
        if not canaries or every < 1:
            raise AttachError("canaried() needs at least one canary, and every= a whole number from 1 on")
        if learns(part):
            raise AttachError(
                f"{named(part)} learns from the rows it sees, and would learn from canaries too: wrap the verifier "
                "inside it, as shaped(canaried(verifier, ...))"
            )
        self.part, self.every = part, every
        self.canaries = tuple(_known(canary) for canary in canaries)
        for name in NOT_ITS_OWN:
            if name in _reads(part) and any(name not in canary.columns for canary in self.canaries):
                raise AttachError(
                    f"{named(part)} reads {name}, and a canary would be scored by those of another row: give each "
                    f"canary its own, as Known(..., columns={{{name!r}: ...}})"
                )
        self.kind: Kind = "judge" if (_is_judge(part) if judged is None else judged) else "rule"
        self.scale = scale or _scale(self.bounds)
        self.unanswered = self.asked = self.failed = 0
        self.first_failure: int | None = None
        self._random = random.Random(seed)
        self._new: dict[int, Count] = {}
        self._queues: dict[str, list[int]] = {"low": [], "high": []}
        self._calls = self._trouble = 0
        if examine:
            self._examine()

    @property
    def components(self) -> tuple[str, ...]:
        return self.part.components if isinstance(self.part, Reward) else ()

    def __call__(self, prompts: Any = None, completions: Any = None, **columns: Any) -> Scores:
        if completions is None:
            raise TypeError(f"{self.__name__} was called without completions")
        rows = Rows(prompts, completions, columns)
        chosen = self._chosen(rows)
        if not chosen:
            return self._scored(rows, [])
        self._random.shuffle(chosen)  # or right ones would always stand before wrong ones
        mixed, places = self._mixed(rows, chosen)
        try:
            scores = self._scored(mixed, places)
        except Exception as error:  # noqa: BLE001  # whatever it is, the rows come first
            scores = self._scored(rows, [])  # raises by itself if it is the rows' fault
            self._trouble += 1
            self._count(chosen, np.full(len(chosen), np.nan))
            self._complain(f"could not be asked with canaries among the rows: {type(error).__name__}: {error}")
            return scores
        self._trouble = 0
        self._count(chosen, self._canary_scores)
        return scores

    def scalars(self, rank: int = 0, first: int = 0) -> dict[str, float]:
        """Counts by canary since the last call, under names that ranks do not share; `first`: number of canary 0."""
        told: dict[str, float] = {}
        for number, count in self._new.items():
            end = f"{self.kind}.{self.canaries[number].expect}.{first + number}.{rank}"
            told[f"canary.asked.{end}"] = float(count.asked)
            if count.failed:
                told[f"canary.failed.{end}"] = float(count.failed)
            if count.unanswered:
                told[f"canary.unanswered.{end}"] = float(count.unanswered)
        self._new = {}
        return told

    # -- asking ------------------------------------------------------------------------------------------------------

    def _scored(self, rows: Rows, places: Sequence[int]) -> Scores:
        """Scores of the rows that are no canaries; what the part tells of them, without the canaries too."""
        scores, broke = self._asked(self.__name__, partial(heard, self.part, rows), len(rows))
        kept = np.setdiff1d(np.arange(len(rows)), places)
        self._canary_scores: Floats = scores[list(places)] if places else np.zeros(0)
        whole = isinstance(self.part, Reward) and self.part.components
        told = dict(self.part.told) if whole else {}  # type: ignore[attr-defined]
        self.told = {name: [said[row] for row in kept] for name, said in told.items()}
        steps = self.part.step_reward if isinstance(self.part, Made) else None
        self.step_reward = None if steps is None else [steps[row] for row in kept]
        self.infra = broke[kept].tolist()
        return with_none(np.where(broke, np.nan, scores)[kept])

    def _chosen(self, rows: Rows) -> list[int]:
        """The canaries of this call: all of them in the first, then one of each kind in turn."""
        if not len(rows) or rows.evaluating or self._trouble >= TRIES:
            return []
        self._calls += 1
        if (self._calls - 1) % self.every:
            return []
        if self._calls == 1:
            return list(range(len(self.canaries)))
        kinds = [expect for expect in ("low", "high") if any(canary.expect == expect for canary in self.canaries)]
        return [self._next(kinds[place % len(kinds)]) for place in range(min(TOGETHER, len(self.canaries)))]

    def _next(self, expect: str) -> int:
        queue = self._queues[expect]
        if not queue:
            queue += [number for number, canary in enumerate(self.canaries) if canary.expect == expect]
            self._random.shuffle(queue)
        return queue.pop()

    def _mixed(self, rows: Rows, chosen: Sequence[int]) -> tuple[Rows, list[int]]:
        """The rows with canaries among them, and where those stand."""
        total = len(rows) + len(chosen)
        places = sorted(self._random.sample(range(total), len(chosen)))
        like = [self._random.randrange(len(rows)) for _ in chosen]  # the row that each takes after
        chat = not isinstance(rows.completions[0], str)
        known = [self.canaries[number] for number in chosen]
        said = [_message("assistant", canary.completion, chat) for canary in known]
        prompts = None
        if rows.prompts is not None:
            asked = [
                rows.prompts[row] if canary.prompt is None else _message("user", canary.prompt, chat)
                for canary, row in zip(known, like, strict=True)
            ]
            prompts = _woven(rows.prompts, asked, places)
        columns: dict[str, Any] = {}
        for name, values in rows.columns.items():
            if _by_row(name, values, len(rows)):
                own = [canary.columns.get(name, values[row]) for canary, row in zip(known, like, strict=True)]
                columns[name] = _woven(values, own, places)
            else:
                columns[name] = _without(values, places, total) if name == "log_extra" and callable(values) else values
        return Rows(prompts, _woven(rows.completions, said, places), columns), places

    # -- judging -----------------------------------------------------------------------------------------------------

    def _kept(self, canary: Known, score: float) -> bool:
        low, high = self.scale
        worth = (score - low) / (high - low)
        return worth <= LOW if canary.expect == "low" else worth >= HIGH

    def _count(self, chosen: Sequence[int], scores: Floats) -> None:
        for number, score in zip(chosen, scores.tolist(), strict=True):
            count, canary = self._new.setdefault(number, Count()), self.canaries[number]
            if score != score:
                count.unanswered += 1
                self.unanswered += 1
                continue
            count.asked += 1
            self.asked += 1
            if not self._kept(canary, score):
                count.failed += 1
                self.failed += 1
                self.first_failure = self.first_failure or self._calls
                self._complain(f"gave {score:g} to {canary} at call {self._calls}{self._since_ever()}")

    def _since_ever(self) -> str:
        return ": your canary or your verifier is wrong" if self._calls == 1 else ""

    def _complain(self, message: str) -> None:
        from tiltmeter.encode import log_line  # an error may quote what a model wrote

        kind = message.partition(" ")[0]
        if (self.__name__, kind) not in self._said:
            self._said.add((self.__name__, kind))
            warnings.warn(f"tiltmeter: the reward {log_line(f'{self.__name__} {message}', 400)}", stacklevel=4)

    def _examine(self) -> None:
        """Score the canaries that need no row of a batch, once, before anything rests on them."""
        known = [canary for canary in self.canaries if canary.prompt is not None]
        if not known:
            return
        columns = {
            name: [c.columns.get(name) for c in known] for name in dict.fromkeys(n for c in known for n in c.columns)
        }
        try:
            rows = Rows([c.prompt for c in known], [c.completion for c in known], columns)
            scores, broke = self._asked(self.__name__, partial(heard, self.part, rows), len(rows))
        except Exception as error:
            raise AttachError(
                f"{self.__name__} could not score the canaries: {type(error).__name__}: {str(error)[:200]}. Give each "
                "the columns that the verifier reads, as Known.pair(prompt, right, wrong, answer=...), or pass "
                "examine=False if it needs chats or a trainer"
            ) from error
        for canary, score, lost in zip(known, scores.tolist(), broke.tolist(), strict=True):
            if not lost and score == score and not self._kept(canary, score):
                raise AttachError(
                    f"{self.__name__} gives {score:g} to {canary}: your canary or your verifier is wrong; if worthless "
                    f"and perfect answers do not get {self.scale[0]:g} and {self.scale[1]:g}, pass scale=(low, high)"
                )


def learns(part: Part) -> bool:
    """Whether a reward, or a part of it, learns from the rows it sees."""
    if not isinstance(part, Made):
        return False
    return isinstance(part.rule, Remembers) or any(map(learns, part.parts.values()))


def _reads(part: Part) -> Iterable[str]:
    """The columns that a function names, as far as Python shows them."""
    try:
        return inspect.signature(part).parameters
    except (TypeError, ValueError):
        return ()


def _same(told: Told, rows: Rows) -> Any:
    return next(iter(told.scores.values()))


def _is_judge(part: Part) -> bool:
    from tiltmeter.rewards.judged import Opinion

    return isinstance(part, Made) and isinstance(part.rule, Opinion)


def _known(canary: Known | Canary) -> Known:
    return canary if isinstance(canary, Known) else Known(canary.completion, canary.expect, canary.prompt)


def _scale(bounds: tuple[float | None, float | None]) -> tuple[float, float]:
    low, high = bounds
    return (low, high) if low is not None and high is not None and low < high else (0.0, 1.0)


def _message(role: str, text: str, chat: bool) -> Any:
    return [{"role": role, "content": text}] if chat else text


def _by_row(name: str, values: Any, rows: int) -> bool:
    if name in NOT_BY_ROW or isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__getitem__"):
        return False
    return hasattr(values, "__len__") and len(values) == rows


def _woven(values: Sequence[Any], canaries: Sequence[Any], places: Sequence[int]) -> list[Any]:
    woven = list(values)
    for place, canary in zip(places, canaries, strict=True):  # in rising order, so that each lands at its place
        woven.insert(place, canary)
    return woven


def _without(log: Callable[..., Any], places: Sequence[int], total: int) -> Callable[..., Any]:
    """The trainer's log of extra columns, without the values of canaries: it has one place for each row."""

    def logged(column: str, values: Any) -> Any:
        if hasattr(values, "__len__") and len(values) == total:
            values = [value for place, value in enumerate(values) if place not in places]
        return log(column, values)

    return logged
