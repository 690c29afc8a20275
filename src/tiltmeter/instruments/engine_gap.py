"""Whether the engine that samples and the trainer that learns are the same policy."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.kl import token_sweep


class EngineGap:
    """Inference engine against trainer on the tokens the engine drew: mean |Δ log-probability| per token (`mean`), KL
    per completion (`k3`, nats), the largest |Δ| (`worst`, nats) and the share of tokens off by more than 10 %
    (`off_share`).

    The gradient assumes that the trainer's policy wrote the completions. Above a mean of about 0.05 nats per token
    every other KL of the run is nobody's KL: mend this before reading anything else. A mean near zero hides tails,
    hence `worst` and `off_share`. Innocent cause: engine and trainer round differently. Not innocent: other weights,
    another temperature, top-p, another tokenisation. This is neither the KL to the reference (`policy.kl`) nor the one
    between old and new policy (`policy.kl_old`).

    Formula: with d = logprob - engine_logprob, mean |d|, Σ (e^d - 1 - d), max |d|, mean(1[|e^d - 1| > 0.1])
    Source: own; 0.05 is a rule of thumb, `off_share` follows huggingface/trl#6789

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0], logprob=[[-1.0, -1.0]], engine_logprob=[[-1.0, -1.5]])
    >>> {name: values.round(4).tolist() for name, values in EngineGap().measure(batch, None).items()}
    {'mean': [0.25], 'k3': [0.1487], 'worst': [0.5], 'off_share': [0.5]}
    """

    name = "engine.gap"
    grain = "rollout"
    needs = ("logprob", "engine_logprob")
    bounds = (0.0, None)
    local = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        trainer, engine = batch.logprob, batch.engine_logprob
        assert trainer is not None
        assert engine is not None
        sweep = token_sweep(engine.values, engine.offsets, trainer.values, trainer.offsets)
        return {
            "mean": sweep.per_token(sweep.gap),
            "k3": sweep.k3,
            "worst": sweep.worst,
            "off_share": sweep.per_token(sweep.off),
        }
