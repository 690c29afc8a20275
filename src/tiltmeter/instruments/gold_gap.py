"""How far the reward has run ahead of gold."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.win_share import prepare_reference, win_share


class GoldGap:
    """How much oftener a completion beats the baseline by reward than it does by gold.

    Reward and gold have different scales, so their difference means nothing; the two chances of winning can be
    compared. 0 at the start; towards 1 when everything is paid better and nothing is better; below 0 when gold gains
    more than the reward shows. A small gap is usual: an optimised proxy always looks better to itself than to others,
    and gold of few values (0/1) ties often, which pulls its chance towards a half.

    Formula: win(r_i; baseline rewards) - win(g_i; baseline gold), win(v; sample) the share of the sample below v, ties
    half; baseline gold weighted by 1 / gold_chance. No reading after a change of the reward
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> start = Baseline(from_columns(0, [0, 0], reward=[1.0, 2.0], gold=[0, 1]))
    >>> GoldGap().measure(from_columns(9, [0, 0], reward=[3.0, 3.0], gold=[1, 0]), start).tolist()
    [0.25, 0.75]
    """

    name = "gold.gap"
    grain = "rollout"
    needs = ("reward", "gold", "gold_chance")
    bounds = (-1.0, 1.0)
    compares = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        assert batch.gold is not None
        if baseline is None:
            return np.full(len(batch), np.nan)
        rewards, golds = baseline.once(_sorted_baseline)
        return win_share(batch.reward, rewards) - win_share(batch.gold, golds)


def _sorted_baseline(batch: RolloutBatch) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    assert batch.reward is not None
    assert batch.gold is not None
    assert batch.gold_chance is not None
    weights = np.divide(1.0, batch.gold_chance, out=np.zeros(len(batch)), where=batch.gold_chance > 0)
    return prepare_reference(batch.reward), prepare_reference(batch.gold, weights)
