"""Completions that no KL can be computed for."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.kl import token_sweep


class LostKl:
    """Share of completions left out of `policy.kl`: the two columns differ in length, or a token is NaN or infinite.

    What is left out may be all that matters: a reference that gives a token no chance makes the KL infinite, and
    without this reading the mean over the rest would look fine. Usual cause: prompts or padding cut differently in the
    two columns, or half precision. An empty completion has no value.

    Formula: 1[lengths differ, or some token's logprob or ref_logprob is not finite]
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> policy, reference = [[-1.0], [-1.0], [-1.0, -2.0]], [[-1.0], [float("-inf")], [-1.0]]
    >>> LostKl().measure(from_columns(0, [0, 0, 0], logprob=policy, ref_logprob=reference), None).tolist()
    [0.0, 1.0, 1.0]
    """

    name = "policy.kl_lost_share"
    grain = "rollout"
    needs = ("logprob", "ref_logprob")
    bounds = (0.0, 1.0)
    local = True
    counts_nan = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        ours, theirs = batch.logprob, batch.ref_logprob
        assert ours is not None
        assert theirs is not None
        return token_sweep(ours.values, ours.offsets, theirs.values, theirs.offsets).lost
