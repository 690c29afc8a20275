"""Entropy of the policy."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.entropy import mean_entropy


class PolicyEntropy:
    """Mean entropy of the next-token distribution over a completion, in nats per token.

    Near zero a policy explores no more and all completions of a prompt become one; an explosion, towards the logarithm
    of the vocabulary, is noise. Usual innocent cause of a fall: verifiable tasks lose entropy while they are mastered.
    A completion without tokens, with a token that is not finite, or with a negative mean has no value.

    Formula: mean over tokens of -Σ_v π(v) ln π(v)
    Source: Shannon 1948; as a law of the run arXiv 2505.22617

    >>> from tiltmeter.data.batches import from_columns
    >>> PolicyEntropy().measure(from_columns(0, [0, 0], entropy=[[1.0, 3.0], []]), None).tolist()
    [2.0, nan]
    """

    name = "policy.entropy"
    grain = "rollout"
    needs = ("entropy",)
    bounds = (0.0, None)
    local = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.entropy is not None
        return mean_entropy(batch.entropy.values, batch.entropy.offsets)
