"""`observed`: the scores, component scores and step scores of the last call as columns for `run.observe`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiltmeter.gold.guards.composed_reward import Stepwise, mark_broken
from tiltmeter.gold.guards.reward import Reward


def observed(reward: Reward, scores: Sequence[Any]) -> dict[str, Any]:
    """The columns of `observe` for rows that were scored just now: `run.observe(..., **observed(reward, scores))`.

    A plain list of scores cannot say whether a None does not apply or broke; here an outage is an exception, which is
    stored as `infra`.

    >>> from tiltmeter.gold.guards.composed_reward import ComposedReward
    >>> parts = {"long": lambda completions, **_: [4.0, None]}
    >>> reward = ComposedReward("half", parts, lambda scores, rows: scores["long"] / 2)
    >>> observed(reward, reward(completions=["four", ""]))
    {'reward': [2.0, None], 'rewards': {'long': [4.0, None]}}
    """
    rows = len(scores)
    part_scores = {name: reward.told[name] for name in reward.components}
    expected_columns: list[tuple[str, Sequence[Any]]] = [("what broke", reward.infra), *part_scores.items()]
    odd = [what for what, values in expected_columns if len(values) != rows]
    if odd:
        raise ValueError(f"{reward.__name__} was asked about {rows} rows and does not tell of as many: {odd[0]}")
    columns: dict[str, Any] = {"reward": mark_broken(scores, reward.infra)}
    if part_scores:
        columns["rewards"] = {name: mark_broken(part, reward.infra) for name, part in part_scores.items()}
    if isinstance(reward, Stepwise) and reward.step_reward is not None:
        if len(reward.step_reward) != rows:
            raise ValueError(f"{reward.__name__} scored the steps of {len(reward.step_reward)} of {rows} rows")
        columns["step_reward"] = reward.step_reward
    return columns
