"""Tokens whose log-probability is no number."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.entropy import row_means


class NonfiniteShare:
    """Share of a completion's tokens whose log-probability under the policy is NaN or infinite.

    One such token makes the loss, then the gradient, then the weights NaN, and every reading that needs it falls
    silent. So this one does not: a completion of nothing but NaN reads 1. Usual cause: overflow in half precision, or a
    token that the sampler could draw and the trainer's mask excludes (-inf). An empty completion has no value.

    Formula: mean over tokens of 1[logprob is NaN or infinite]
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0, 0], logprob=[[-1.0, float("nan")], [float("-inf"), -1.0, -1.0, -2.0]])
    >>> NonfiniteShare().measure(batch, None).tolist()
    [0.5, 0.25]
    """

    name = "policy.nonfinite_share"
    grain = "rollout"
    needs = ("logprob",)
    bounds = (0.0, 1.0)
    local = True
    counts_nan = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.logprob is not None
        _, shares = row_means(batch.logprob.values, batch.logprob.offsets)
        return shares
