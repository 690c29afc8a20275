"""Where inside a completion the distance from the reference sits."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.kl import token_sweep


class TokenKl:
    """KL from the reference policy per token (`mean`), its largest |log-ratio| (`worst`, nats) and the share of tokens
    whose probability moved by more than 10 % (`off_share`).

    A completion's KL grows with its length, so longer answers alone look like drift; per token they do not. Drift that
    sits in a few tokens (one phrase, one language switch) shows in `worst` and hardly in the mean, and a policy that
    moved everywhere a little shows in `off_share`. `worst` is a log-ratio, not a KL: `mean` may exceed it. Usual
    innocent cause of a large `worst`: a rare token that the policy has learnt to prefer with good reason, or an end
    token.

    Formula: with d = ref_logprob - logprob, mean(e^d - 1 - d), max |d|, mean(1[|e^d - 1| > 0.1])
    Source: Schulman, "Approximating KL divergence", 2020; `off_share` follows huggingface/trl#6789

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0], logprob=[[-1.0, -1.0]], ref_logprob=[[-1.0, -2.0]])
    >>> {name: values.round(4).tolist() for name, values in TokenKl().measure(batch, None).items()}
    {'mean': [0.1839], 'worst': [1.0], 'off_share': [0.5]}
    """

    name = "policy.kl_tokens"
    grain = "rollout"
    needs = ("logprob", "ref_logprob")
    bounds = (0.0, None)
    local = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        policy, reference = batch.logprob, batch.ref_logprob
        assert policy is not None
        assert reference is not None
        sweep = token_sweep(policy.values, policy.offsets, reference.values, reference.offsets)
        return {
            "mean": sweep.per_token(sweep.k3),
            "worst": sweep.worst,
            "off_share": sweep.per_token(sweep.off),
        }
