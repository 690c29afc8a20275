"""How many completions are longer than almost all used to be."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class LengthTail:
    """Share of completions longer than the 95th percentile of the baseline.

    The tail often moves before the mean does: at most 0.05 at the start by construction, 0.5 when half of all
    completions are longer than nearly any was. The innocent cause is another mix of prompts.

    Formula: 1[length_i > q95(baseline lengths)]
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> start = Baseline(from_columns(0, [0] * 20, length=range(1, 21)))
    >>> LengthTail().measure(from_columns(9, [0, 0], length=[10, 40]), start).tolist()
    [0.0, 1.0]
    """

    name = "length.tail_share"
    grain = "rollout"
    needs = ("length",)
    bounds = (0.0, 1.0)
    compares = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.length is not None
        if baseline is None or not len(baseline.batch):
            return np.full(len(batch), np.nan)
        return (batch.length > baseline.once(_limit)).astype(np.float64)


def _limit(batch: RolloutBatch) -> float:
    assert batch.length is not None
    return float(np.quantile(batch.length, 0.95, method="higher"))
