"""How undecided the policy is."""

from __future__ import annotations

import numpy as np

from tiltmeter.records import Floats, RolloutBatch


class PolicyEntropy:
    """Mean entropy of the next-token distribution over a completion, in nats per token.

    Falls while a policy sharpens, honestly or not; near zero it explores no more and all completions of a prompt
    become one. An explosion is as bad a sign as a collapse.

    >>> from tiltmeter.batches import from_columns
    >>> PolicyEntropy().measure(from_columns(0, [0, 0], entropy=[[1.0, 3.0], []]), None).tolist()
    [2.0, nan]
    """

    name = "policy.entropy"
    grain = "rollout"
    needs = ("entropy",)
    bounds = (0.0, None)

    def measure(self, batch: RolloutBatch, baseline: RolloutBatch | None) -> Floats:
        assert batch.entropy is not None
        counts = batch.entropy.lengths
        mean = np.full(len(batch), np.nan)
        np.divide(batch.entropy.sums(), counts, out=mean, where=counts > 0)
        return mean
