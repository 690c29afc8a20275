"""Whether groups with equal rewards lie at the high or the low end of the reward."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.groups import standardise


class DeadSides:
    """Share of prompt groups that are dead at a high reward, and share that are dead at a low one.

    Nothing is learnt from either, but they ask for opposite things: all-high groups are mastered prompts or a saturated
    reward, and want harder prompts; all-low ones are hopeless prompts or a broken verifier, and want easier prompts or
    larger groups. All-high often means nothing worse than success. The two add up to `reward.dead_share`.

    Formula: 1[spread_g = 0 and mean_g > (lowest + highest) / 2], and the same with <=; the range is that of the batch
    and, under the same reward, of the baseline. Without a range high and low cannot be told apart: no reading.
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0, 0, 1, 1, 2, 2], reward=[1, 1, 0, 1, 0, 0])
    >>> {side: values.tolist() for side, values in DeadSides().measure(batch, None).items()}
    {'high_share': [1.0, 0.0, 0.0], 'low_share': [0.0, 0.0, 1.0]}
    """

    name = "reward.dead"
    grain = "group"
    needs = ("reward",)
    bounds = (0.0, 1.0)
    compares = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.reward is not None
        _, spread, mean = standardise(batch.reward, batch.starts)
        low, high = _range(batch)
        if baseline is not None:
            before = baseline.once(_range)
            low, high = min(low, before[0]), max(high, before[1])
        has_spread = np.isfinite(spread) if high > low else np.zeros(len(spread), bool)
        upper = np.zeros(len(spread), bool)
        upper[has_spread] = mean[has_spread] - (0.5 * low + 0.5 * high) > 1e-9 * (
            high - low
        )  # a mean of equal values is rounded
        dead = spread == 0.0
        return {
            "high_share": np.where(has_spread, (dead & upper).astype(np.float64), np.nan),
            "low_share": np.where(has_spread, (dead & ~upper).astype(np.float64), np.nan),
        }


def _range(batch: RolloutBatch) -> tuple[float, float]:
    assert batch.reward is not None
    is_scored = np.isfinite(batch.reward)
    return float(batch.reward.min(initial=np.inf, where=is_scored)), float(
        batch.reward.max(initial=-np.inf, where=is_scored)
    )
