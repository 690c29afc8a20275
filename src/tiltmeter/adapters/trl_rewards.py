"""What can be seen of any trainer that calls reward functions by TRL's convention: a wrapper around each of them.

Used where the deep listening was not tested. It sees prompts, completions, dataset columns and each function's rewards;
groups are inferred from the order of rows, and there are no advantages, log-probabilities or entropies.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiltmeter.adapters.trl_parts import described
from tiltmeter.adapters.trl_pinned import Pinning
from tiltmeter.adapters.trl_rollouts import Boundary, distinct
from tiltmeter.fingerprint import fingerprint

#: What TRL passes beside dataset columns.
_OWN = ("completion_ids", "trainer_state", "log_extra", "log_metric", "environments")


@dataclass(eq=False)
class Scored:
    """One call of all reward functions: rows of this rank, in the trainer's order."""

    step: int
    prompts: Any
    columns: dict[str, Any]
    names: list[str]
    weights: list[float]
    rewards: dict[str, Any] = field(default_factory=dict)
    described: dict[str, Any] = field(default_factory=dict)  # what the functions said beside their scores

    def finished(self) -> dict[str, Any]:
        """The columns of `observe`."""
        rewards = {name: list(self.rewards[name]) for name in self.names if name in self.rewards}
        told: dict[str, Any] = {"rewards": rewards}
        if len(rewards) == len(self.names):  # a model among them is not wrapped, and then the sum is not known
            told["reward"] = [_sum(row, self.weights) for row in zip(*rewards.values(), strict=True)]
        return {**self.columns, **told, **self.described, "step": self.step, "scalars": {}}


class RewardWrapper:
    """Wraps a trainer's reward functions in place; each keeps its name and whether it is async."""

    def __init__(self, trainer: Any, boundary: Boundary) -> None:
        self.trainer, self._boundary = trainer, boundary
        self._given = list(trainer.reward_funcs)
        self._names = distinct(list(trainer.reward_func_names))
        self.pending: list[Scored] = []
        self.pinning = Pinning()
        self._evaluated: Scored | None = None  # the batch that an evaluation is scoring
        self._asked: list[Any] = []  # functions that are wrapped
        for position, (function, name) in enumerate(zip(self._given, self._names, strict=True)):
            if inspect.isroutine(function) or not hasattr(function, "forward"):  # a model is called in another way
                trainer.reward_funcs[position] = self._wrapped(function, name)
                self._asked.append(function)

    def release(self) -> None:
        """Give the trainer its own functions back."""
        self.trainer.reward_funcs[:] = self._given

    def ready(self, *, all_of_them: bool = False) -> list[Scored]:
        """What belongs to steps that are over, oldest first; it is forgotten here."""
        now = self.trainer.state.global_step
        done = [item for item in self.pending if all_of_them or item.step <= now]
        self.pending = [item for item in self.pending if item not in done]
        return done

    def _wrapped(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        if _is_async(function):

            @functools.wraps(function)
            async def later(**given: Any) -> Any:
                rewards = await function(**given)
                self._boundary(lambda: self._take(name, given, rewards), batch=self.trainer.model.training)
                return rewards

            return later

        def now(**given: Any) -> Any:
            rewards = function(**given)
            self._boundary(lambda: self._take(name, given, rewards), batch=self.trainer.model.training)
            return rewards

        # A callable object may have neither name nor module; TRL has read its name already.
        return functools.wraps(function)(now) if hasattr(function, "__name__") else now

    def _take(self, name: str, given: Mapping[str, Any], rewards: Any) -> None:
        trainer = self.trainer
        if not trainer.model.training:
            self._pin(name, given, rewards)
            return
        if not self.pending or self.pending[-1].prompts is not given["prompts"]:
            self.pending.append(self._begin(given))
        scored = self.pending[-1]
        scored.rewards[name] = rewards
        if len(scored.rewards) == len(self._asked):  # before anybody is asked again
            known = {"reward": None, **scored.finished()}
            self._boundary(lambda: scored.described.update(described(self._asked, known)))

    def _pin(self, name: str, given: Mapping[str, Any], rewards: Any) -> None:
        """Rows of an evaluation, of which a few are kept to be shown, once every function has scored them."""
        if self.trainer.accelerator.process_index != 0:
            return
        if self._evaluated is None or self._evaluated.prompts is not given["prompts"]:
            self._evaluated = self._begin(given)
        self._evaluated.rewards[name] = rewards
        if len(self._evaluated.rewards) == len(self._asked):
            columns, self._evaluated = self._evaluated.finished(), None
            unknown = [None] * len(columns["prompt"])
            step = self.trainer.state.global_step
            self.pinning.hear(step, columns["prompt"], columns["completion"], lambda: columns.get("reward", unknown))

    def _begin(self, given: Mapping[str, Any]) -> Scored:
        trainer = self.trainer
        rows, rank = len(given["prompts"]), trainer.accelerator.process_index
        step = trainer.state.global_step + 1
        before = (
            sum(len(item.prompts) for item in self.pending if item.step == step) * trainer.accelerator.num_processes
        )
        keys = [key for key in given if key not in (*_OWN, "prompts", "completions")]
        weights = [float(weight) for weight in trainer.reward_weights]
        columns: dict[str, Any] = {
            "group": (before + rank * rows + np.arange(rows)) // trainer.num_generations,
            "prompt": given["prompts"],
            "completion": given["completions"],
            "facts": [{key: given[key][row] for key in keys} for row in range(rows)],
            "fingerprint": f"{' + '.join(self._names)} {fingerprint(self._given, weights)}",
        }
        if given.get("completion_ids") is not None:
            columns["length"] = np.array([len(ids) for ids in given["completion_ids"]])
        return Scored(step, given["prompts"], columns, self._names, weights)


def complaints(trainer: Any) -> list[str]:
    """What will make this run harder to judge, each with the fix."""
    found = []
    names = list(trainer.reward_func_names)
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        found.append(
            f"several reward functions are named {', '.join(twice)}: TRL averages them in its metrics; give each a "
            "__name__ of its own"
        )
    if clash := sorted({"step", "prompt", "completion", "advantage"} & set(names)):
        found.append(f"a reward function named {clash[0]} overwrites TRL's own column of that name: rename it")
    if len(names) > 1:
        found.append(
            f"{len(names)} reward functions are given separately: where one answers None, TRL counts it as 0 in the "
            "sum; if None means that it could not run, make them one function that answers None when any part does: "
            "tiltmeter.rewards.combine({...})"
        )
    if trainer.num_generations < 2:
        found.append("one completion per prompt: advantages are 0 and no alarm can be raised; set num_generations >= 2")
    return found


def _is_async(function: Any) -> bool:
    """Whether TRL will wait for it: the function inside partials, or what an object does when it is called."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _sum(row: tuple[Any, ...], weights: list[float]) -> float | None:
    told = [weight * reward for reward, weight in zip(row, weights, strict=True) if reward is not None]
    return sum(told) if told else None
