"""Distance from the reference policy."""

from __future__ import annotations

import numpy as np

from tiltmeter.records import Floats, RolloutBatch


class ReferenceKl:
    """KL from the reference policy per completion, in nats summed over its tokens: estimators `k1` and `k3`.

    With d = ref_logprob - logprob on tokens drawn from the policy, k1 = -d is unbiased and noisy and may be negative;
    k3 = exp(d) - 1 - d is unbiased where supports match, never negative, and heavy when d is large (Schulman, 2020).
    Both are reported because their disagreement is itself a sign. This is the KL to the *reference*: neither the one
    between old and new policy nor the one between engine and trainer. A completion with any token that is not finite,
    or with different numbers of tokens in the two columns, has no value.

    >>> from tiltmeter.batches import from_columns
    >>> batch = from_columns(0, [0], logprob=[[-1.0, -1.0]], ref_logprob=[[-1.0, -2.0]])
    >>> {name: values.round(4).tolist() for name, values in ReferenceKl().measure(batch, None).items()}
    {'k1': [1.0], 'k3': [0.3679]}
    """

    name = "policy.kl"
    grain = "rollout"
    needs = ("logprob", "ref_logprob")
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: RolloutBatch | None) -> dict[str, Floats]:
        policy, reference = batch.logprob, batch.ref_logprob
        assert policy is not None
        assert reference is not None
        if not np.array_equal(policy.offsets, reference.offsets):
            return {"k1": np.full(len(batch), np.nan), "k3": np.full(len(batch), np.nan)}
        # float64: exp(d) - 1 - d in float32 is wrong by more than its value for small d.
        ours, theirs = policy.values.astype(np.float64), reference.values.astype(np.float64)
        known = np.isfinite(ours) & np.isfinite(theirs)
        d = np.where(known, theirs, 0.0) - np.where(known, ours, 0.0)
        # Beyond 700 nats exp overflows; such a token says "no overlap", which k1 carries.
        k3 = np.where(d < 700.0, np.expm1(np.minimum(d, 700.0)) - d, np.nan)
        whole = (policy.sums((~known).astype(np.float64)) == 0) & (policy.lengths > 0)
        finite = policy.sums(np.isnan(k3)) == 0
        sums = policy.sums(np.where(np.isnan(k3), 0.0, k3))
        return {"k1": np.where(whole, policy.sums(-d), np.nan), "k3": np.where(whole & finite, sums, np.nan)}
