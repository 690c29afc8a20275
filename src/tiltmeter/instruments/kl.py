"""Distance from the reference policy."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.kl import token_sweep


class ReferenceKl:
    """KL from the reference policy per completion, in nats summed over its tokens, by two estimators: `k1` and `k3`.

    What a policy can gain from a wrong reward grows with this distance. Honest learning moves it too; KL without a
    better gold is drift. `k1` is noisy and may be negative, `k3` is never negative. `k3` well above `k1`: a
    few tokens that the reference finds far likelier, or log-probabilities that are not of the sampling distribution
    (engine, temperature, top-p: look at `engine.gap` first). This is neither the KL between old and new policy
    (`policy.kl_old`) nor the one between engine and trainer. A completion with a token that is not finite, or with
    different numbers of tokens in the two columns, has no value.

    Formula: with d = ref_logprob - logprob on tokens of the policy, k1 = Σ -d and k3 = Σ (e^d - 1 - d)
    Source: Schulman, "Approximating KL divergence", 2020; on their gradients arXiv 2510.01555, arXiv 2512.21852

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0], logprob=[[-1.0, -1.0]], ref_logprob=[[-1.0, -2.0]])
    >>> {name: values.round(4).tolist() for name, values in ReferenceKl().measure(batch, None).items()}
    {'k1': [1.0], 'k3': [0.3679]}
    """

    name = "policy.kl"
    grain = "rollout"
    needs = ("logprob", "ref_logprob")
    bounds = (None, None)
    local = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        policy, reference = batch.logprob, batch.ref_logprob
        assert policy is not None
        assert reference is not None
        sweep = token_sweep(policy.values, policy.offsets, reference.values, reference.offsets)
        return {"k1": sweep.k1, "k3": sweep.k3}
