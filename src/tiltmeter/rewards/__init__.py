"""Rewards that are harder to hack: plain callables for any trainer that calls reward functions as TRL does.

    from tiltmeter import rewards

    reward = rewards.combine({"right": check, "style": rewards.clipped(model, -2.0, 2.0)}, weights={"style": 0.2})
    trainer = GRPOTrainer(..., reward_funcs=reward)

Each of them is None, never 0, for a row that could not be scored. Nothing heavy is imported before it is used.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tiltmeter.batches import plain_text

if TYPE_CHECKING:
    from tiltmeter.rewards.canaries import canaried
    from tiltmeter.rewards.code import code
    from tiltmeter.rewards.combine import combine
    from tiltmeter.rewards.constrained import constrained
    from tiltmeter.rewards.ensemble import ensemble
    from tiltmeter.rewards.gate import gate
    from tiltmeter.rewards.judged import judge
    from tiltmeter.rewards.length import length_debiased, overlong
    from tiltmeter.rewards.maths import maths
    from tiltmeter.rewards.model import model
    from tiltmeter.rewards.observed import observed
    from tiltmeter.rewards.pareto import pareto
    from tiltmeter.rewards.process import process
    from tiltmeter.rewards.repetition import repetition
    from tiltmeter.rewards.shaping import clipped, reference_means, shaped
    from tiltmeter.rewards.student import distil
    from tiltmeter.rewards.warm import warm

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

#: The file of each public function that does not bear its name.
_ELSEWHERE = {
    "canaried": "canaries",
    "clipped": "shaping",
    "distil": "student",
    "judge": "judged",
    "length_debiased": "length",
    "overlong": "length",
    "reference_means": "shaping",
    "shaped": "shaping",
}


class InfraError(Exception):
    """Rows could not be scored, for reasons that are not the policy's. They are left out; they are not 0.

    A part of a reward may raise it for all rows of a call.
    """


@runtime_checkable
class Reward(Protocol):
    """A reward function that says what it is made of, so that a reader of the run can see which part is paid.

    A plain function needs none of this to be a part. `told` and `infra` speak of the rows of the last call: what each
    part said of them, and which are None because something broke, and not because the reward does not apply.

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


class _Lazy(types.ModuleType):
    """This package. A file that bears the name of its function must not stand in the function's place."""

    def __setattr__(self, name: str, value: object) -> None:
        # The import system binds a submodule to its name here as soon as somebody imports it.
        if not (isinstance(value, types.ModuleType) and name in __all__):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Lazy


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'tiltmeter.rewards' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"tiltmeter.rewards.{_ELSEWHERE.get(name, name)}"), name)
    globals()[name] = found
    return found
