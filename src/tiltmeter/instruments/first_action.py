"""Whether the trajectories of a prompt begin in different ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.data.turns import Turn, batch_turns


class FirstActionDiversity:
    """The chance that two trajectories of a prompt differ in what they do first: their first call, with its arguments,
    or their first words where they call nothing.

    At 0 a group explores one path, and what it could learn about the first move is nothing. Innocent: the task has one
    sensible first move.

    Formula: per group, the share of pairs of rows whose first actions differ
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> from tiltmeter.data.turns import Turn
    >>> batch = from_columns(0, [0, 0, 0], turns=[[Turn("assistant", call=name)] for name in ("ls", "ls", "cat")])
    >>> FirstActionDiversity().measure(batch, None).round(4).tolist()
    [0.6667]
    """

    name = "tools.first_action_diversity"
    grain = "group"
    needs = ("turns",)
    bounds = (0.0, 1.0)
    local = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        actions = [None if turns is None else _first_action(turns) for turns in batch_turns(batch)]
        values = np.full(len(batch.starts) - 1, np.nan)
        for group, (start, stop) in enumerate(pairwise(batch.starts.tolist())):
            counts = Counter(action for action in actions[start:stop] if action is not None)
            rows = counts.total()
            if rows > 1:
                values[group] = 1.0 - sum(count * (count - 1) for count in counts.values()) / (rows * (rows - 1))
        return values


def _first_action(turns: Sequence[Turn]) -> tuple[str | None, str | None] | None:
    written = [turn for turn in turns if turn.written]
    call = next(((turn.call, turn.arguments) for turn in written if turn.call), None)
    return call or next(((None, (turn.text or "")[:80]) for turn in written), None)
