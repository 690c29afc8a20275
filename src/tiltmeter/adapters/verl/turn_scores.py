"""What veRL's agent loops pay for single turns: `turn_scores`, one a turn of the policy, and `tool_rewards`, one a call
that its tool paid for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from tiltmeter.data.batches import numbers
from tiltmeter.data.turns import TOOL, Turn

TURN_SCORES, TOOL_REWARDS = "turn_scores", "tool_rewards"

Scores = dict[str, list[float | None]]  # None: not a number


def read_scores(extra_fields: object) -> Scores:
    """The scores among the extra fields of one output; empty where nothing was paid for a turn.

    >>> read_scores({"turn_scores": [1, None], "tool_rewards": [], "min_global_steps": 3})
    {'turn_scores': [1.0, None]}
    """
    fields = extra_fields if isinstance(extra_fields, Mapping) else {}
    scores: Scores = {}
    for name in (TURN_SCORES, TOOL_REWARDS):
        values = fields.get(name)
        if isinstance(values, (list, tuple, np.ndarray)) and len(values):
            scores[name] = [float(value) if np.isfinite(value) else None for value in numbers(values)[0]]
    return scores


def place_scores(turns: Sequence[Turn], scores: Scores) -> tuple[list[Turn], Scores]:
    """The turns with their rewards, and scores of which it is not known to which turn they belong.

    A stretch of tokens may hold the answers of several calls, and a call that paid nothing leaves no reward: those of
    calls have a place only if there is one for each stretch.

    >>> turns = [Turn("assistant", "a"), Turn("tool", "b"), Turn("assistant", "c")]
    >>> placed, left = place_scores(turns, {"turn_scores": [0.5], "tool_rewards": [0.1, 0.2]})
    >>> [turn.reward for turn in placed], left
    ([0.5, None, None], {'tool_rewards': [0.1, 0.2]})
    """
    placed, left = list(turns), dict(scores)
    written = [at for at, turn in enumerate(turns) if turn.written]
    answers = [at for at, turn in enumerate(turns) if turn.role == TOOL]
    for name, places, fits in (
        (TURN_SCORES, written, len(scores.get(TURN_SCORES, ())) <= len(written)),
        (TOOL_REWARDS, answers, len(scores.get(TOOL_REWARDS, ())) == len(answers)),
    ):
        if name in left and fits:
            for at, reward in zip(places, left.pop(name), strict=False):
                placed[at] = msgspec.structs.replace(placed[at], reward=reward)
    return placed, left
