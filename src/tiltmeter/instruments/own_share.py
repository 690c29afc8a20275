"""How much of a trajectory the policy wrote itself."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class OwnShare:
    """Share of a trajectory's tokens after the prompt that the policy wrote; the others are a tool's.

    A fall: answers of tools have grown, or the policy leaves the work to them. It costs context, and what is trained on
    becomes a small part of what is computed.

    Formula: Σ own / tokens after the prompt
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> OwnShare().measure(from_columns(0, [0, 0], own=[[1, 0, 0, 1], []]), None).tolist()
    [0.5, nan]
    """

    name = "tools.own_share"
    grain = "rollout"
    needs = ("own",)
    bounds = (0.0, 1.0)
    local = True
    by_env = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.own is not None
        tokens = batch.own.lengths
        return np.where(tokens > 0, batch.own.sums() / np.maximum(tokens, 1), np.nan)
