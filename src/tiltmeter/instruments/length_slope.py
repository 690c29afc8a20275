"""What the reward pays for length."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.regression import within_slope


class LengthSlope:
    """Reward paid for 100 more tokens, between completions of the same prompt.

    The shortest way to a biased reward is more words. Comparing inside a prompt keeps hard prompts, which are long and
    badly paid, from hiding it. A slope is not yet a hack: longer may be better. It is one when `length.mean` follows
    and gold does not.

    Formula: pooled least-squares slope of r on length with an intercept per prompt, times 100; one value per group,
    whose mean is the slope and whose clustered standard error is the sandwich one
    Source: Singhal et al. 2023, arXiv 2310.03716; influence form own

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0, 0, 1, 1], reward=[1, 2, 7, 9], length=[100, 200, 300, 400])
    >>> LengthSlope().measure(batch, None).tolist()
    [1.0, 2.0]
    """

    name = "length.slope"
    grain = "group"
    needs = ("reward", "length")
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        assert batch.length is not None
        slopes = within_slope(batch.reward, batch.length.astype(np.float64) / 100.0, batch.starts)[2]
        return np.where(np.isfinite(slopes), slopes, np.nan)  # rewards near the end of float64 overflow here
