"""The reward under test: a reward model, a reward function or a judge behind one interface."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tiltmeter.errors import AttachError
from tiltmeter.gold.function import TRAINER_ONLY
from tiltmeter.gold.guards.composed_reward import INFRA_ERRORS, await_result
from tiltmeter.models.judge import Judge, read_judge
from tiltmeter.models.judge_prompts import JudgeError
from tiltmeter.safety.loading import load_function
from tiltmeter.safety.safe_text import log_line
from tiltmeter_workbench import rewards

Floats = NDArray[np.float64]
Kind = Literal["model", "function", "judge"]
Columns = Mapping[str, Any]
#: Prompts, completions and the columns of each row in; a number, None (it gave none) or a reason for each row out.
Ask = Callable[[list[str], list[str], list[Columns]], Sequence[Any]]

NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
BATCH = 64  # texts in one call, as a trainer would hand over
HOW = (
    "name a folder with a reward model, a function as `rewards.py:score`, which takes (prompts, completions, ...) as "
    "TRL calls it or (prompt, completion), or a judge as `judge.toml`"
)


@dataclass
class Target:
    """A reward under test. `scores` gives NaN where there is no number, and `faults` counts why.

    Everything that the probe says rests on scores of edited answers, so a missing score must stay missing: an outage
    counted as 0 would look like a reward that punishes an edit. What the same prompt and text scored once is not asked
    again, since judges cost money; `fresh` always scores again, which is how a random reward is found.

    >>> target = Target("length", "function", lambda prompts, texts, columns: [float(len(text)) for text in texts])
    >>> target.scores(["a", "b"], ["xx", "xxxx"]).tolist(), target.calls
    ([2.0, 4.0], 2)
    """

    name: str
    kind: Kind
    ask: Ask = field(repr=False)
    part: Any = field(default=None, repr=False)  # the reward model, where gradients may be asked for
    chat: bool = False  # a model that is handed messages, not plain text
    needs: tuple[str, ...] = ()  # columns of a dataset that a function cannot do without
    calls: int = 0  # texts that were scored
    faults: dict[str, int] = field(default_factory=dict)  # by reason: texts without a number
    _cache: dict[tuple[str, str], float] = field(default_factory=dict, repr=False)

    @property
    def differentiable(self) -> bool:
        return self.kind == "model" and self.part is not None

    def scores(self, prompts: Sequence[str], texts: Sequence[str], columns: Sequence[Columns] | None = None) -> Floats:
        """One number for each text, asked once for each different prompt and text."""
        keys = list(zip(prompts, texts, strict=True))
        rows = columns if columns is not None else [{}] * len(keys)
        new = {key: row for key, row in zip(keys, rows, strict=True) if key not in self._cache}
        if new:
            new_prompts, new_texts = map(list, zip(*new, strict=True))
            values = self.fresh(new_prompts, new_texts, list(new.values()))
            self._cache.update(zip(new, values.tolist(), strict=True))
        return np.array([self._cache[key] for key in keys], np.float64)

    def fresh(self, prompts: Sequence[str], texts: Sequence[str], columns: Sequence[Columns] | None = None) -> Floats:
        """The same without memory, in calls of at most 64 texts, in the order given."""
        rows = list(columns) if columns is not None else [{}] * len(texts)
        values: list[float] = []
        for start in range(0, len(texts), BATCH):
            part = slice(start, start + BATCH)
            values += self._score_batch(list(prompts[part]), list(texts[part]), rows[part])
        return np.array(values, np.float64)

    def _score_batch(self, prompts: list[str], texts: list[str], columns: list[Columns]) -> list[float]:
        self.calls += len(texts)
        try:
            answers = list(self.ask(prompts, texts, columns))
            if len(answers) != len(texts):
                raise ValueError(f"{len(answers)} answers to {len(texts)} completions")
        except Exception as error:  # noqa: BLE001  # what the operator's own code raises is a finding, not an end
            if len(texts) > 1:  # one text may have spoilt it for its neighbours
                return [self._score_batch([p], [t], [c])[0] for p, t, c in zip(prompts, texts, columns, strict=True)]
            kind = "infrastructure:" if isinstance(error, INFRA_ERRORS) else "raises"
            self._fault(f"{kind} {type(error).__name__}: {error}")
            return [math.nan]
        return [self._number(answer) for answer in answers]

    def _number(self, answer: Any) -> float:
        if isinstance(answer, JudgeError):
            self._fault(f"infrastructure: {answer}")
            return math.nan
        if answer is None:
            self._fault("answers None")
            return math.nan
        try:
            value = float(answer)
        except (TypeError, ValueError):
            self._fault(f"answers with a {type(answer).__name__}, which is no number")
            return math.nan
        if not math.isfinite(value):
            self._fault(f"answers {value}")
            return math.nan
        return value

    def _fault(self, reason: str) -> None:
        reason = log_line(reason, 160)
        self.faults[reason] = self.faults.get(reason, 0) + 1


def open_target(reward: str, *, ending: str | None = None) -> Target:
    """The reward that a name stands for. Raises `AttachError` with the fix.

    `ending` is what stands after a plain text that a model reads; without it the token for the end, as TRL's
    RewardTrainer writes it.
    """
    if reward.endswith(".toml"):
        return judge_target(reward, read_judge(reward))
    if ".py:" in reward:
        return function_target(
            Path(reward.rpartition(":")[0]).name + ":" + reward.rpartition(":")[2], load_function(reward)
        )
    if Path(reward).is_dir():
        return model_target(reward, ending)
    raise AttachError(f"{reward!r} is no reward: {HOW}")


def judge_target(name: str, judge: Judge) -> Target:
    def ask(prompts: list[str], texts: list[str], columns: list[Columns]) -> Sequence[Any]:
        pairs = list(zip(prompts, texts, strict=True))
        if not judge.reference:
            return judge.scores(pairs)
        return judge.scores(pairs, references=[str(row.get(judge.reference, "")) for row in columns])

    return Target(Path(name).name, "judge", ask, judge)


def model_target(folder: str | Path, ending: str | None = None) -> Target:
    """A reward model in a folder; messages where its tokenizer has a chat template, plain text where not."""
    part = rewards.model(folder, batch=BATCH)
    chat = part.tokenizer.chat_template is not None
    if not chat:
        part = rewards.model(folder, batch=BATCH, ending=part.tokenizer.eos_token or "" if ending is None else ending)

    def ask(prompts: list[str], texts: list[str], columns: list[Columns]) -> Sequence[Any]:
        inputs, outputs = messages(prompts, texts) if chat else (prompts, texts)
        scores: Sequence[Any] = part(prompts=inputs, completions=outputs)
        return scores

    return Target(Path(folder).name, "model", ask, part, chat)


def function_target(name: str, function: Callable[..., Any]) -> Target:
    """A function as TRL calls it, with lists, or one that takes a prompt and a completion."""
    takes = inspect.signature(function).parameters
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
    together = "completions" in takes or ("completion" not in takes and anything)
    plain = [p for p in takes.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if not together and "completion" not in takes and len(plain) != 2:
        raise AttachError(f"{name} cannot be asked: {HOW}; further parameters get the columns of those names")

    def one(prompt: str, text: str, row: Columns) -> Any:
        if "completion" not in takes:
            return await_result(function(prompt, text))
        arguments = {"prompt": prompt, "completion": text, **row}
        return await_result(function(**{key: value for key, value in arguments.items() if anything or key in takes}))

    def each(prompts: list[str], texts: list[str], columns: list[Columns]) -> Sequence[Any]:
        return [one(*row) for row in zip(prompts, texts, columns, strict=True)]

    def whole(prompts: list[str], texts: list[str], columns: list[Columns]) -> Sequence[Any]:
        names = dict.fromkeys(key for row in columns for key in row)
        facts = {key: [row.get(key) for row in columns] for key in names if key not in ("prompts", "completions")}

        def call(prompt_values: Sequence[Any], completion_values: Sequence[Any]) -> Sequence[Any]:
            arguments = {"prompts": prompt_values, "completions": completion_values, **facts}
            scores: Sequence[Any] = await_result(
                function(**{k: v for k, v in arguments.items() if anything or k in takes})
            )
            return scores

        try:
            return call(prompts, texts)
        except TypeError as error:
            if "string indices" not in str(error):
                raise
            return call(*messages(prompts, texts))  # it was written for chat messages

    texts = ("prompt", "prompts", "completion", "completions", *(() if together or "completion" in takes else takes))
    required = [one for one in takes.values() if one.default is one.empty and one.kind in (*NAMED, one.POSITIONAL_ONLY)]
    needs = tuple(one.name for one in required if one.name not in texts)
    if lacking := [one for one in needs if one in TRAINER_ONLY]:
        raise AttachError(
            f"{name} needs {lacking[0]}, which only a trainer has: give the parameter a default to have it probed"
        )
    return Target(name, "function", whole if together else each, function, needs=needs)


def messages(prompts: Sequence[str], texts: Sequence[str]) -> tuple[list[Any], list[Any]]:
    """Prompts and completions as lists of chat messages."""
    user_messages = [[{"role": "user", "content": prompt}] for prompt in prompts]
    return user_messages, [[{"role": "assistant", "content": text}] for text in texts]
