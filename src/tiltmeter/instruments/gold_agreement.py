"""Whether the reward still ranks answers as gold does."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.agreement import pair_agreement


class GoldAgreement:
    """Share of pairs inside a prompt group, one better by gold, in which the better one has the higher reward.

    The accuracy of the reward on what the policy writes now. Held-out preference accuracy is about texts like those a
    reward model was trained on; this is about the texts it is optimised against, and falls as the policy leaves the
    others behind. 0.5 is a coin. It falls in honest runs too: when the plain mistakes are gone, only hard pairs are
    left.

    Formula: share of pairs (i, j) with g_i > g_j and r_i > r_j among those with g_i > g_j, reward ties half; a pair
    weighs 1 / (chance_i chance_j)
    Source: own; for 0/1 gold the area under the ROC curve

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0, 0, 0, 1, 1], reward=[3, 1, 3, 1, 2], gold=[1, 0, 0, 1, 1])
    >>> GoldAgreement().measure(batch, None).tolist()
    [0.75, nan]
    """

    name = "gold.agreement"
    grain = "group"
    needs = ("reward", "gold", "gold_chance")
    bounds = (0.0, 1.0)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        assert batch.gold is not None
        assert batch.gold_chance is not None
        weights = np.divide(1.0, batch.gold_chance, out=np.zeros(len(batch)), where=batch.gold_chance > 0)
        return pair_agreement(batch.gold, batch.reward, batch.starts, weights)
