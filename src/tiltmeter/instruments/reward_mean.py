"""The reward the trainer optimises."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class RewardMean:
    """Reward per completion, as trained: after weights, shaping and penalties.

    The number every dashboard shows, and the one that keeps rising while quality falls. Read it beside gold. Innocent
    causes of a jump: easier or harder prompts, or a change of the reward.

    Formula: r_i
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> RewardMean().measure(from_columns(0, [0, 0], reward=[1.0, None]), None).tolist()
    [1.0, nan]
    """

    name = "reward.mean"
    grain = "rollout"
    needs = ("reward",)
    bounds = (None, None)
    by_env = True
    by_slice = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        return batch.reward
