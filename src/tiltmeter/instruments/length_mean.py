"""Length of completions."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class LengthMean:
    """Tokens per completion.

    Length is often the first thing a biased reward pays for, and many other readings move with it. Innocent causes:
    harder prompts, or reasoning that helps.

    Formula: length_i
    Source: Singhal et al. 2023, "A Long Way to Go", arXiv 2310.03716

    >>> from tiltmeter.data.batches import from_columns
    >>> LengthMean().measure(from_columns(9, [0, 0], length=[10, 40]), None).tolist()
    [10.0, 40.0]
    """

    name = "length.mean"
    grain = "rollout"
    needs = ("length",)
    bounds = (0.0, None)
    by_env = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.length is not None
        return batch.length.astype(np.float64)
