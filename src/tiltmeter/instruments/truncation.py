"""Completions cut at the length limit."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class Truncation:
    """Share of completions that hit the length limit before they ended.

    What was cut has no answer to score: a verifier sees a wrong answer, a reward model half a sentence. Trainers that
    mask truncated completions stop learning from the longest ones. The innocent cause is a limit too low for prompts
    that need room.

    Formula: 1[cut at the length limit]
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> Truncation().measure(from_columns(0, [0, 0], truncated=[True, False]), None).tolist()
    [1.0, 0.0]
    """

    name = "length.truncated_share"
    grain = "rollout"
    needs = ("truncated",)
    bounds = (0.0, 1.0)
    by_env = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.truncated is not None
        return batch.truncated.astype(np.float64)
