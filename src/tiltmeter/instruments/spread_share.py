"""Each reward component's share of the spread inside prompt groups."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.regression import linear_weights, slopes_on


class SpreadShare:
    """Share of the reward's spread inside prompt groups that each reward function accounts for, by its weight.

    Advantages are differences inside a group, so this is each component's share of the learning signal, whatever its
    share of the level. A component near 0 cannot be learnt from, however large its weight; one near 1 is the reward. In
    a healthy run the main component often has most of it: read it with `reward.gain_share`, not alone.

    Formula: w_k Cov(r_k, r) / Var(r), pooled inside groups, w by least squares of the total on the components; one
    value per group, whose mean is the pooled share. They add up to 1 where the total is a weighted sum
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> parts = {"correct": [0, 1, 1, 0], "style": [0.0, 0.1, 0.0, 0.1]}
    >>> batch = from_columns(0, [0, 0, 1, 1], reward=[0.0, 1.1, 1.0, 0.1], rewards=parts)
    >>> {name: round(float(values.mean()), 3) for name, values in SpreadShare().measure(batch, None).items()}
    {'correct': 0.99, 'style': 0.01}
    """

    name = "reward.spread_share"
    grain = "group"
    needs = ("reward", "rewards")
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.reward is not None
        nothing = {name: np.full(len(batch.starts) - 1, np.nan) for name in batch.rewards}
        scored = {name: scores for name, scores in batch.rewards.items() if np.isfinite(scores).any()}
        if not scored:
            return nothing
        parts = np.column_stack(list(scored.values()))
        parts = np.where(np.isfinite(parts), parts, 0.0)  # as trainers sum them: no score adds nothing
        weights = linear_weights(batch.reward, parts)
        # The slope of a part on the total is its covariance over the total's variance.
        shares = slopes_on(parts * weights, batch.reward, batch.starts).influence
        # The last bits of a least-squares solution depend on the processor, and a replay must agree on any.
        return nothing | dict(zip(scored, np.round(shares.T, 9), strict=True))
