"""How much of the reward is already at its ceiling."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class Saturation:
    """Share of completions whose reward is the highest there is, where several share it.

    At the ceiling better and worse answers are paid alike, and the policy is free to drift among them. For a 0/1 reward
    this is the pass rate, and 1 is simply success; for a clipped or judged score, a rise to 1 says that the scale is
    used up. A reward without ties at the top (most reward models) reads 0.

    Formula: 1[r_i = highest reward of batch and baseline], if at least two completions have it, else 0; no reading when
    all rewards are equal, since a floor looks the same
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> Saturation().measure(from_columns(0, [0, 0, 0, 0], reward=[1.0, 0.2, 1.0, None]), None).tolist()
    [1.0, 0.0, 1.0, nan]
    """

    name = "reward.saturated_share"
    grain = "rollout"
    needs = ("reward",)
    bounds = (0.0, 1.0)
    compares = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        low, high, count = _ends(batch)
        if baseline is not None:
            low_before, high_before, count_before = baseline.once(_ends)
            count = (count if high >= high_before else 0) + (count_before if high_before >= high else 0)
            low, high = min(low, low_before), max(high, high_before)
        if not high > low:
            return np.full(len(batch), np.nan)
        top = (batch.reward == high) & (count > 1)
        return np.where(np.isfinite(batch.reward), top.astype(np.float64), np.nan)


def _ends(batch: RolloutBatch) -> tuple[float, float, int]:
    """Lowest and highest reward, and how many completions have the highest."""
    assert batch.reward is not None
    if not np.isfinite(batch.reward).any():
        return np.inf, -np.inf, 0
    scored = batch.reward[np.isfinite(batch.reward)]
    return float(scored.min()), float(scored.max()), int((scored == scored.max()).sum())
