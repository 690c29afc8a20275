"""Reward parts, failed rows and step rewards of `tiltmeter.rewards` functions, as columns of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tiltmeter.gold.guards.composed_reward import mark_broken
from tiltmeter.gold.guards.observe_columns import observed
from tiltmeter.gold.guards.reward import Reward


def reward_columns(functions: Sequence[Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns `reward`, `rewards` and `step_reward` of a batch that was scored just now, of this rank's rows.

    A function that has parts, and is the only one, is recorded by its parts. Rows that it could not score are flagged
    `infra`, not `missing`: a verifier that is down differs from one that does not apply. With several functions TRL
    sums those that returned a score: that sum stays the reward, and the failure shows in the function's own column.
    """
    total, rewards = columns["reward"], dict(columns["rewards"])
    updates: dict[str, Any] = {}
    broken = [False] * len(columns["prompt"])
    for name, function in zip(columns["rewards"], functions, strict=True):
        if not isinstance(function, Reward):
            continue
        details = observed(function, rewards[name])
        rewards[name] = details["reward"]
        broken = [one or other for one, other in zip(broken, function.infra, strict=True)]
        if "step_reward" in details:
            updates.setdefault("step_reward", details["step_reward"])
        if len(functions) == 1 and total is not None and "rewards" in details:
            rewards = dict(details["rewards"])
    updates["rewards"] = rewards
    if total is not None:
        updates["reward"] = mark_broken(total, broken)
    return updates
