"""How far apart the rewards of one prompt's completions are."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.groups import standardise


class RewardSpread:
    """Population standard deviation of the reward inside each prompt group.

    Group-relative methods learn from this spread alone: when it shrinks, normalised advantages blow noise up to full
    size; at zero there is nothing to learn (see `reward.dead_share`). The innocent cause is mastered prompts.

    Formula: sqrt(mean over the group of (r_i - mean r)^2)
    Source: Shao et al. 2024, DeepSeekMath, arXiv 2402.03300 (which divides by it)

    >>> from tiltmeter.data.batches import from_columns
    >>> RewardSpread().measure(from_columns(0, [0, 0, 1], reward=[0.0, 1.0, 5.0]), None).tolist()
    [0.5, nan]
    """

    name = "reward.spread"
    grain = "group"
    needs = ("reward",)
    bounds = (0.0, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        _, spread, _ = standardise(batch.reward, batch.starts)
        return spread
