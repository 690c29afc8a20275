"""Rewards that are harder to hack: plain callables for any trainer that calls reward functions as TRL does.

    from tiltmeter import rewards

    reward = rewards.combine({"right": check, "style": rewards.clipped(model, -2.0, 2.0)}, weights={"style": 0.2})
    trainer = GRPOTrainer(..., reward_funcs=reward)

A row that could not be scored is None, never 0. What a monitor checks gold with is in this distribution; the defences
come with `pip install 'tiltmeter[workbench]'`.
"""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.gold.checks.code_reward import code
from tiltmeter.gold.checks.maths_reward import maths
from tiltmeter.gold.guards.canaries import canaried
from tiltmeter.gold.guards.observe_columns import observed
from tiltmeter.gold.guards.process_reward import process
from tiltmeter.gold.guards.reward import InfraError, Reward, Scores, texts

#: What the workbench adds, through the entry point group `tiltmeter.rewards`.
FROM_WORKBENCH = (
    "clipped", "combine", "constrained", "distil", "ensemble", "gate", "judge", "length_debiased", "model", "overlong",
    "pareto", "reference_means", "repetition", "shaped", "step_model", "typicality_debiased", "warm", "worst_group",
)  # fmt: skip

__all__ = ["InfraError", "Reward", "Scores", "canaried", "code", "maths", "observed", "process", "texts"]


def __dir__() -> list[str]:
    return sorted([*__all__, *FROM_WORKBENCH])


def __getattr__(name: str) -> Any:
    if name not in FROM_WORKBENCH:
        raise AttributeError(f"module 'tiltmeter.rewards' has no attribute {name!r}")
    for entry in entry_points(group="tiltmeter.rewards"):
        return getattr(entry.load(), name)
    raise AttachError(f"tiltmeter.rewards.{name} is in the workbench: pip install 'tiltmeter[workbench]'")
