"""Completions that nobody scored."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class Unscored:
    """Share of completions without a reward: the function answered None or NaN, or failed.

    Trainers leave such rows out of means, so every other reading is about the rest. A policy that learns to crash its
    verifier, or to answer so that no rule applies, is then paid by omission. A few are usual where a reward function
    covers only some prompts; see `reward.infra_share` for those that are not the policy's doing.

    Formula: 1[r_i is not a finite number]
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> Unscored().measure(from_columns(0, [0, 0, 0], reward=[1.0, None, float("inf")]), None).tolist()
    [0.0, 1.0, 1.0]
    """

    name = "reward.unscored_share"
    grain = "rollout"
    needs = ("reward",)
    bounds = (0.0, 1.0)
    by_env = True
    counts_nan = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        return (~np.isfinite(batch.reward)).astype(np.float64)
