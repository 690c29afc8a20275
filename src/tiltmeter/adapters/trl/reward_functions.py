"""Wraps the reward functions of a TRL trainer and records the batches that they score.

The fallback for TRL versions on which wrapping the trainer's own methods was not tested. It sees
prompts, completions, dataset columns and each function's rewards; groups are inferred from the order of rows, and there
are no advantages, log-probabilities or entropies.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiltmeter.adapters.trl.pinned_prompts import PinnedCollector
from tiltmeter.adapters.trl.reward_parts import reward_columns
from tiltmeter.adapters.trl.rollouts import ErrorGuard, distinct_names
from tiltmeter.data.reward_fingerprint import fingerprint

#: Arguments that TRL passes in addition to dataset columns.
_OWN = ("completion_ids", "trainer_state", "log_extra", "log_metric", "environments")


@dataclass(eq=False)
class ScoredBatch:
    """One call of all reward functions: rows of this rank, in the trainer's order."""

    step: int
    prompts: Any
    columns: dict[str, Any]
    names: list[str]
    weights: list[float]
    rewards: dict[str, Any] = field(default_factory=dict)
    extra_columns: dict[str, Any] = field(default_factory=dict)  # reward parts, failed rows, step rewards

    def to_columns(self) -> dict[str, Any]:
        """The columns of `observe`."""
        rewards = {name: list(self.rewards[name]) for name in self.names if name in self.rewards}
        columns: dict[str, Any] = {"rewards": rewards}
        if len(rewards) == len(self.names):  # a reward model is not wrapped, so then the total is unknown
            columns["reward"] = [_sum(row, self.weights) for row in zip(*rewards.values(), strict=True)]
        return {**self.columns, **columns, **self.extra_columns, "step": self.step, "scalars": {}}


class RewardWrapper:
    """Wraps a trainer's reward functions in place; each keeps its name and whether it is async."""

    def __init__(self, trainer: Any, guard: ErrorGuard) -> None:
        self.trainer, self._guard = trainer, guard
        self._functions = list(trainer.reward_funcs)
        self._names = distinct_names(list(trainer.reward_func_names))
        self.pending: list[ScoredBatch] = []
        self.pinning = PinnedCollector()
        self._evaluation: ScoredBatch | None = None  # the batch that an evaluation is scoring
        self._wrapped_functions: list[Any] = []  # functions that are wrapped
        for position, (function, name) in enumerate(zip(self._functions, self._names, strict=True)):
            if inspect.isroutine(function) or not hasattr(function, "forward"):  # a model is called in another way
                trainer.reward_funcs[position] = self._wrap(function, name)
                self._wrapped_functions.append(function)

    def release(self) -> None:
        """Restore the trainer's original reward functions."""
        self.trainer.reward_funcs[:] = self._functions

    def ready(self, *, all_of_them: bool = False) -> list[ScoredBatch]:
        """Remove and return the batches of finished steps, oldest first."""
        now = self.trainer.state.global_step
        done = [item for item in self.pending if all_of_them or item.step <= now]
        self.pending = [item for item in self.pending if item not in done]
        return done

    def _wrap(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        if is_async(function):

            @functools.wraps(function)
            async def async_wrapper(**arguments: Any) -> Any:
                rewards = await function(**arguments)
                self._guard(lambda: self._record_scores(name, arguments, rewards), batch=self.trainer.model.training)
                return rewards

            return async_wrapper

        def wrapper(**arguments: Any) -> Any:
            rewards = function(**arguments)
            self._guard(lambda: self._record_scores(name, arguments, rewards), batch=self.trainer.model.training)
            return rewards

        # A callable object may have neither name nor module; TRL has read its name already.
        return functools.wraps(function)(wrapper) if hasattr(function, "__name__") else wrapper

    def _record_scores(self, name: str, arguments: Mapping[str, Any], rewards: Any) -> None:
        trainer = self.trainer
        if not trainer.model.training:
            self._pin(name, arguments, rewards)
            return
        if not self.pending or self.pending[-1].prompts is not arguments["prompts"]:
            self.pending.append(self._new_batch(arguments))
        scored = self.pending[-1]
        scored.rewards[name] = rewards
        if len(scored.rewards) == len(self._wrapped_functions):  # before a function is called again
            columns = {"reward": None, **scored.to_columns()}
            self._guard(lambda: scored.extra_columns.update(reward_columns(self._wrapped_functions, columns)))

    def _pin(self, name: str, arguments: Mapping[str, Any], rewards: Any) -> None:
        """Keep a few rows of an evaluation for display, once every function has scored them."""
        if self.trainer.accelerator.process_index != 0:
            return
        if self._evaluation is None or self._evaluation.prompts is not arguments["prompts"]:
            self._evaluation = self._new_batch(arguments)
        self._evaluation.rewards[name] = rewards
        if len(self._evaluation.rewards) == len(self._wrapped_functions):
            columns, self._evaluation = self._evaluation.to_columns(), None
            unknown = [None] * len(columns["prompt"])
            step = self.trainer.state.global_step
            self.pinning.add_rows(
                step, columns["prompt"], columns["completion"], lambda: columns.get("reward", unknown)
            )

    def _new_batch(self, arguments: Mapping[str, Any]) -> ScoredBatch:
        trainer = self.trainer
        rows, rank = len(arguments["prompts"]), trainer.accelerator.process_index
        step = trainer.state.global_step + 1
        before = (
            sum(len(item.prompts) for item in self.pending if item.step == step) * trainer.accelerator.num_processes
        )
        keys = [key for key in arguments if key not in (*_OWN, "prompts", "completions")]
        weights = [float(weight) for weight in trainer.reward_weights]
        columns: dict[str, Any] = {
            "group": (before + rank * rows + np.arange(rows)) // trainer.num_generations,
            "prompt": arguments["prompts"],
            "completion": arguments["completions"],
            "facts": [{key: arguments[key][row] for key in keys} for row in range(rows)],
            "fingerprint": f"{' + '.join(self._names)} {fingerprint(self._functions, weights)}",
        }
        if arguments.get("completion_ids") is not None:
            columns["length"] = np.array([len(ids) for ids in arguments["completion_ids"]])
        return ScoredBatch(step, arguments["prompts"], columns, self._names, weights)


def configuration_warnings(trainer: Any) -> list[str]:
    """Warnings about a configuration that makes the run harder to judge, each with the fix."""
    messages = []
    names = list(trainer.reward_func_names)
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        messages.append(
            f"several reward functions are named {', '.join(twice)}: TRL averages them in its metrics; give each a "
            "__name__ of its own"
        )
    if clash := sorted({"step", "prompt", "completion", "advantage"} & set(names)):
        messages.append(f"a reward function named {clash[0]} overwrites TRL's own column of that name: rename it")
    if len(names) > 1:
        messages.append(
            f"{len(names)} reward functions are given separately: where one answers None, TRL counts it as 0 in the "
            "sum; if None means that it could not run, make them one function that answers None when any part does: "
            "tiltmeter.rewards.combine({...})"
        )
    if names and not any(float(weight) for weight in trainer.reward_weights):
        messages.append("every reward function has the weight 0: nothing is trained; give one of them another weight")
    if trainer.num_generations < 2:
        messages.append(
            "one completion per prompt: advantages are 0 and no alarm can be raised; set num_generations >= 2"
        )
    return messages


def is_async(function: Any) -> bool:
    """Whether TRL will await it: looks inside partials and at an object's `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _sum(row: tuple[Any, ...], weights: list[float]) -> float | None:
    parts = [weight * reward for reward, weight in zip(row, weights, strict=True) if reward is not None]
    return sum(parts) if parts else None
