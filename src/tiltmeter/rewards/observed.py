"""What a reward says of the rows that it has just scored, as columns of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tiltmeter.rewards import Reward
from tiltmeter.rewards.parts import Stepwise, marked


def observed(reward: Reward, scores: Sequence[Any]) -> dict[str, Any]:
    """The columns of `observe` for rows that were scored just now: `run.observe(..., **observed(reward, scores))`.

    A plain list of scores cannot say whether a None does not apply or broke; here the latter is an exception, which is
    stored as `infra`.

    >>> from tiltmeter.rewards.parts import Made
    >>> reward = Made("half", {"long": lambda completions, **_: [4.0, None]}, lambda told, rows: told["long"] / 2)
    >>> observed(reward, reward(completions=["four", ""]))
    {'reward': [2.0, None], 'rewards': {'long': [4.0, None]}}
    """
    rows = len(scores)
    told = {name: reward.told[name] for name in reward.components}
    known: list[tuple[str, Sequence[Any]]] = [("what broke", reward.infra), *told.items()]
    odd = [what for what, values in known if len(values) != rows]
    if odd:
        raise ValueError(f"{reward.__name__} was asked about {rows} rows and does not tell of as many: {odd[0]}")
    columns: dict[str, Any] = {"reward": marked(scores, reward.infra)}
    if told:
        columns["rewards"] = {name: marked(part, reward.infra) for name, part in told.items()}
    if isinstance(reward, Stepwise) and reward.step_reward is not None:
        if len(reward.step_reward) != rows:
            raise ValueError(f"{reward.__name__} scored the steps of {len(reward.step_reward)} of {rows} rows")
        columns["step_reward"] = reward.step_reward
    return columns
