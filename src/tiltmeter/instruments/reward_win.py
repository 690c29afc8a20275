"""The reward, measured against the start instead of on its own scale."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.win_share import prepare_reference, win_share


class RewardWin:
    """Chance that a completion's reward exceeds that of a completion of the baseline; ties count half.

    Rewards have no zero and no unit; this reads 0.5 at the start and 1 when nearly everything is paid better than
    anything was. It can be set beside gold (`gold.gap`) and beside other runs. It stops at 1 while the reward may go on
    rising, and it compares over prompts, so easier prompts raise it. The standard error takes the baseline as given.

    Formula: mean_j( 1[r_i > r_j] + 1[r_i = r_j] / 2 ) over the baseline's completions j
    Source: Mann & Whitney 1947; as a reading, own

    >>> from tiltmeter.data.batches import from_columns
    >>> start = Baseline(from_columns(0, [0, 0], reward=[1.0, 2.0]))
    >>> RewardWin().measure(from_columns(9, [0, 0, 0], reward=[2.0, 5.0, None]), start).tolist()
    [0.75, 1.0, nan]
    """

    name = "reward.win_share"
    grain = "rollout"
    needs = ("reward",)
    bounds = (0.0, 1.0)
    compares = True
    by_slice = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        if baseline is None:
            return np.full(len(batch), np.nan)
        return win_share(batch.reward, baseline.once(_sorted_baseline))


def _sorted_baseline(batch: RolloutBatch) -> tuple[Floats, Floats]:
    assert batch.reward is not None
    return prepare_reference(batch.reward)
