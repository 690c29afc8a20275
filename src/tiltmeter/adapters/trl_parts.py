"""What reward functions of `tiltmeter.rewards` say beside their scores: parts, rows that broke, scores of steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tiltmeter.rewards import Reward
from tiltmeter.rewards.observed import observed
from tiltmeter.rewards.parts import marked


def described(functions: Sequence[Any], columns: Mapping[str, Any]) -> dict[str, Any]:
    """The columns `reward`, `rewards` and `step_reward` of a batch that was scored just now, of this rank's rows.

    A function that says what it is made of, and is the only one, is shown by its parts. Rows that it could not score
    are `infra`, not merely `missing`: a verifier that is down must not pass for one that does not apply. Of several
    functions TRL adds up those that answered: the sum stays what was trained on, and the function's own column tells.
    """
    total, rewards = columns["reward"], dict(columns["rewards"])
    found: dict[str, Any] = {}
    broken = [False] * len(columns["prompt"])
    for name, function in zip(columns["rewards"], functions, strict=True):
        if not isinstance(function, Reward):
            continue
        told = observed(function, rewards[name])
        rewards[name] = told["reward"]
        broken = [one or other for one, other in zip(broken, function.infra, strict=True)]
        if "step_reward" in told:
            found.setdefault("step_reward", told["step_reward"])
        if len(functions) == 1 and total is not None and "rewards" in told:
            rewards = dict(told["rewards"])
    found["rewards"] = rewards
    if total is not None:
        found["reward"] = marked(total, broken)
    return found
