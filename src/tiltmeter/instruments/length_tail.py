"""Length of completions, and how many are longer than almost all used to be."""

from __future__ import annotations

import numpy as np

from tiltmeter.records import Floats, RolloutBatch


class LengthTail:
    """Tokens per completion (`mean`), and whether it exceeds the 95th percentile of the start policy (`tail_share`).

    Length is the first thing a biased reward pays for. The tail moves before the mean does: 0.05 at the start by
    construction, 0.5 when half of all completions are longer than nearly any was. The share is absent without a start
    to compare with.

    >>> from tiltmeter.batches import from_columns
    >>> start = from_columns(0, [0] * 20, length=range(1, 21))
    >>> now = from_columns(9, [0, 0], length=[10, 40])
    >>> {name: values.tolist() for name, values in LengthTail().measure(now, start).items()}
    {'mean': [10.0, 40.0], 'tail_share': [0.0, 1.0]}
    """

    name = "length"
    grain = "rollout"
    needs = ("length",)
    bounds = (0.0, None)

    def measure(self, batch: RolloutBatch, baseline: RolloutBatch | None) -> dict[str, Floats]:
        assert batch.length is not None
        tokens = batch.length.astype(np.float64)
        if baseline is None or baseline.length is None or not len(baseline):
            return {"mean": tokens}
        limit = np.quantile(baseline.length, 0.95, method="higher")
        return {"mean": tokens, "tail_share": (tokens > limit).astype(np.float64)}
