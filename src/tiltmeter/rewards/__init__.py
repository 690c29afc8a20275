"""Rewards that are harder to hack: plain callables for any trainer that calls reward functions as TRL does.

    from tiltmeter import rewards

    reward = rewards.combine({"right": check, "style": rewards.clipped(model, -2.0, 2.0)}, weights={"style": 0.2})
    trainer = GRPOTrainer(..., reward_funcs=reward)

A row that could not be scored is None, never 0. torch and transformers are imported only when they are needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tiltmeter.data.batches import plain_text

if TYPE_CHECKING:
    from tiltmeter.rewards.canaries import canaried
    from tiltmeter.rewards.code_reward import code
    from tiltmeter.rewards.distillation import distil
    from tiltmeter.rewards.judge_reward import judge
    from tiltmeter.rewards.lagrangian import constrained
    from tiltmeter.rewards.length import length_debiased, overlong
    from tiltmeter.rewards.maths_reward import maths
    from tiltmeter.rewards.observe_columns import observed
    from tiltmeter.rewards.pareto_front import pareto
    from tiltmeter.rewards.process_reward import process
    from tiltmeter.rewards.repetition_penalty import repetition
    from tiltmeter.rewards.reward_ensemble import ensemble
    from tiltmeter.rewards.reward_model import model
    from tiltmeter.rewards.shaping import clipped, reference_means, shaped
    from tiltmeter.rewards.verifier_gate import gate
    from tiltmeter.rewards.weight_averaging import warm
    from tiltmeter.rewards.weighted_sum import combine

__all__ = [
    "InfraError",
    "Reward",
    "Scores",
    "canaried",
    "clipped",
    "code",
    "combine",
    "constrained",
    "distil",
    "ensemble",
    "gate",
    "judge",
    "length_debiased",
    "maths",
    "model",
    "observed",
    "overlong",
    "pareto",
    "process",
    "reference_means",
    "repetition",
    "shaped",
    "texts",
    "warm",
]

Scores = list[float | None]

#: The file of each public function. No file bears a function's name, so no submodule can take a function's place.
_MODULES = {
    "canaried": "canaries",
    "clipped": "shaping",
    "code": "code_reward",
    "combine": "weighted_sum",
    "constrained": "lagrangian",
    "distil": "distillation",
    "ensemble": "reward_ensemble",
    "gate": "verifier_gate",
    "judge": "judge_reward",
    "length_debiased": "length",
    "maths": "maths_reward",
    "model": "reward_model",
    "observed": "observe_columns",
    "overlong": "length",
    "pareto": "pareto_front",
    "process": "process_reward",
    "reference_means": "shaping",
    "repetition": "repetition_penalty",
    "shaped": "shaping",
    "warm": "weight_averaging",
}


class InfraError(Exception):
    """Rows could not be scored because of an outage, not because of the policy. They are left out of training, not 0.

    A part of a reward may raise it for all rows of a call.
    """


@runtime_checkable
class Reward(Protocol):
    """A reward function that reports the scores of its components, so that a run shows which component is paid.

    A plain function can be a part without any of this. `told` and `infra` describe the rows of the last call: the score
    of each component, and which rows are None because of an outage and not because the reward does not apply.

    >>> from tiltmeter.rewards import overlong
    >>> isinstance(overlong(512, 64), Reward), isinstance(len, Reward)
    (True, False)
    """

    __name__: str

    @property
    def bounds(self) -> tuple[float | None, float | None]: ...
    @property
    def components(self) -> tuple[str, ...]: ...
    @property
    def told(self) -> Mapping[str, Scores]: ...
    @property
    def infra(self) -> list[bool]: ...

    def __call__(self, prompts: Any = None, completions: Any = None, **columns: Any) -> Scores: ...


def texts(values: Iterable[object] | None) -> list[str]:
    """Plain text of prompts or completions, which are strings or lists of chat messages; what is absent is empty.

    >>> texts(["4", [{"role": "assistant", "content": "It is 4."}], None])
    ['4', 'It is 4.', '']
    """
    if values is None:
        raise TypeError("a reward was called without completions: pass completions=")
    return [plain_text(value) or "" for value in values]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tiltmeter.rewards' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"tiltmeter.rewards.{_MODULES[name]}"), name)
    globals()[name] = value
    return value
