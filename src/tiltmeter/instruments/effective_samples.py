"""How many of the tokens still count once they are weighted for the distance of two policies."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class EffectiveSamples:
    """Effective share of the samples, if each token is weighted by the ratio of the trainer's policy to the engine's.

    At 1 the two are one policy. At 0.1 an update that corrects by importance weights learns from a tenth of what was
    drawn, the rest is noise. Innocent: a few versions of staleness cost some.

    Formula: (Σ w)² / (n Σ w²) over all tokens, w = e^(logprob - engine_logprob)
    Source: Kish, "Survey Sampling", 1965

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0], logprob=[[-1.0, -1.0]], engine_logprob=[[-1.0, -2.0]])
    >>> EffectiveSamples().measure(batch, None).round(4).tolist()
    [0.824]
    """

    name = "engine.effective_share"
    grain = "batch"
    needs = ("logprob", "engine_logprob")
    bounds = (0.0, 1.0)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        trainer, engine = batch.logprob, batch.engine_logprob
        assert trainer is not None and engine is not None
        if not np.array_equal(trainer.offsets, engine.offsets):
            return np.array([np.nan])
        ratio = trainer.values.astype(np.float64) - engine.values.astype(np.float64)
        ratio = ratio[np.isfinite(ratio)]
        if not len(ratio):
            return np.array([np.nan])
        weights = np.exp(ratio - ratio.max())  # a common factor changes nothing
        return np.array([min(1.0, float(weights.sum() ** 2 / (len(weights) * (weights**2).sum())))])
