"""How varied the choice of tools is."""

from __future__ import annotations

from collections import Counter

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.data.turns import batch_turns


class ToolEntropy:
    """Entropy of the names of the tools that are called, over all calls of a step, in nats.

    A fall to 0 is a policy that has settled on one tool; where the others are needed, it has forgotten them. Innocent:
    one tool is enough for the task.

    Formula: -Σ p_k log p_k over the tools k, p_k their share of all calls
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> from tiltmeter.data.turns import Turn
    >>> calls = [[Turn("assistant", call="ls"), Turn("assistant", call="cat")]]
    >>> ToolEntropy().measure(from_columns(0, [0], turns=calls), None).round(4).tolist()
    [0.6931]
    """

    name = "tools.entropy"
    grain = "batch"
    needs = ("turns",)
    bounds = (0.0, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        names = (turn.call for turns in batch_turns(batch) for turn in turns or () if turn.written and turn.call)
        counts = np.array(list(Counter(names).values()), np.float64)
        if not len(counts):
            return np.array([np.nan])
        shares = counts / counts.sum()
        return np.array([max(0.0, -float((shares * np.log(shares)).sum()))])
