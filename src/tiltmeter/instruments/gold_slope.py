"""Whether the next update raises or lowers gold."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.groups import group_sums, standardise


class GoldSlope:
    """u = 2 mean(z (gold - 1/2)) per prompt group, z the group-standardised reward: in [-1, 1], below 0 is harm.

    The derivative of gold along the reward's tilt is the covariance of gold and reward inside a prompt, so the sign of
    this mean says whether the advantages raise or lower gold. It crosses zero at the peak of gold, where gold itself
    is flat. Single groups and steps fall below 0 by chance; the alarm weighs them together. A group without spread has
    u = 0. Only groups in which every scored completion has gold are used, and the reward is divided by the group's own
    standard deviation, as in GRPO.

    Formula: u = 2 mean over the group of z_i (g_i - 1/2), z_i = (r_i - mean r) / sd(r)
    Source: own; the identity is d E[g] / d tilt = Cov(g, r) inside a prompt

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0, 0, 1, 1], reward=[1, 0, 1, 0], gold=[1, 0, 0, 1])
    >>> GoldSlope().measure(batch, None).tolist()
    [1.0, -1.0]
    """

    name = "gold.slope"
    grain = "group"
    needs = ("reward", "gold", "gold_chance")
    bounds = (-1.0, 1.0)
    audited = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        assert batch.gold is not None
        assert batch.gold_chance is not None
        z, spread, _ = standardise(batch.reward, batch.starts)
        gold = np.where(batch.gold_chance == 1.0, batch.gold, np.nan)
        sums, used = group_sums(z * (gold - 0.5), batch.starts)
        _, scored = group_sums(batch.reward, batch.starts)
        whole = np.isfinite(spread) & (used == scored) & (scored > 1)
        u = np.full(len(sums), np.nan)
        np.divide(2.0 * sums, used, out=u, where=whole)
        return u.clip(-1.0, 1.0)
