"""How many completions each prompt has."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class GroupSize:
    """Completions per prompt group, scored or not.

    A group of one has no advantage and teaches nothing; a size that changes changes every group statistic with it, so
    look here first when several readings jump at once. Trainers that filter or resample groups change it by design.

    Formula: number of completions of the prompt in this step
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> GroupSize().measure(from_columns(0, [7, 7, 8]), None).tolist()
    [2.0, 1.0]
    """

    name = "group.size"
    grain = "group"
    needs = ("group",)
    bounds = (1.0, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        return np.diff(batch.starts).astype(np.float64)
