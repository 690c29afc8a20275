"""Prompt groups from which nothing can be learnt."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.groups import standardise


class DeadGroups:
    """Share of prompt groups whose completions all have the same reward: their advantage is zero.

    Such a group adds nothing to the gradient. The innocent cause is mastered prompts; hopeless ones and a saturated
    reward look the same (`reward.dead` tells high from low). The loss does not show it: with one update per batch it is
    about 0 anyway. A group with fewer than two scored completions is not counted either way.

    Formula: 1[spread of the group's rewards = 0]; for independent 0/1 rewards the expected share is p^G + (1 - p)^G
    Source: Yu et al. 2025, DAPO, arXiv 2503.14476 (dynamic sampling)

    >>> from tiltmeter.data.batches import from_columns
    >>> DeadGroups().measure(from_columns(0, [0, 0, 1, 1, 2], reward=[1, 1, 0, 1, 1]), None).tolist()
    [1.0, 0.0, nan]
    """

    name = "reward.dead_share"
    grain = "group"
    needs = ("reward",)
    bounds = (0.0, 1.0)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        _, spread, _ = standardise(batch.reward, batch.starts)
        return np.where(np.isfinite(spread), (spread == 0.0).astype(np.float64), np.nan)
