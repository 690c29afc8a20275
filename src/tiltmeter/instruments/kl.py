"""Distance from the reference policy."""

from __future__ import annotations

from tiltmeter.baseline import Baseline
from tiltmeter.records import Floats, RolloutBatch
from tiltmeter.stats.kl import token_sweep


class ReferenceKl:
    """KL from the reference policy per completion, in nats summed over its tokens: estimators `k1` and `k3`.

    The leash. What a policy can gain from a wrong reward grows with this distance, so it is the x-axis of every
    over-optimisation curve, and KL without a better gold is drift. `k1` is unbiased and noisy and may be negative; `k3`
    is unbiased where supports match, never negative, and heavy when the reference finds a token far more likely. Both
    are reported because their disagreement is itself a sign. Trap: if the log-probabilities of sampler and trainer
    differ (engine, temperature, top-p) it is nobody's KL; look at `engine.gap` first. This is the KL to the
    *reference*: neither the one between old and new policy (`policy.kl_old`) nor the one between engine and trainer. A
    completion with a token that is not finite, or with different numbers of tokens in the two columns, has no value.

    Formula: with d = ref_logprob - logprob on tokens of the policy, k1 = Σ -d and k3 = Σ e^d - 1 - d
    Source: Schulman, "Approximating KL divergence", 2020; on their gradients 2510.01555, 2512.21852

    >>> from tiltmeter.batches import from_columns
    >>> batch = from_columns(0, [0], logprob=[[-1.0, -1.0]], ref_logprob=[[-1.0, -2.0]])
    >>> {name: values.round(4).tolist() for name, values in ReferenceKl().measure(batch, None).items()}
    {'k1': [1.0], 'k3': [0.3679]}
    """

    name = "policy.kl"
    grain = "rollout"
    needs = ("logprob", "ref_logprob")
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        policy, reference = batch.logprob, batch.ref_logprob
        assert policy is not None
        assert reference is not None
        sweep = token_sweep(policy.values, policy.offsets, reference.values, reference.offsets)
        return {"k1": sweep.k1, "k3": sweep.k3}
