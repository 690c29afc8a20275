"""Whether engine and trainer part because the policy has moved on since a trajectory was drawn."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.data.trajectories import staleness
from tiltmeter.stats.kl import token_sweep


class EngineGapByStaleness:
    """Inference engine against trainer, mean |Δ log-probability| per token: of trajectories of the newest policy in the
    batch (`fresh`) and of older ones (`stale`), nats.

    A gap of the stale ones alone is what asynchrony costs; a gap of both is another fault (`engine.gap`).

    Formula: with d = logprob - engine_logprob, mean |d| of row i, among rows with version_low = the newest, or below
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> gap = {"logprob": [[-1.0], [-2.0]], "engine_logprob": [[-1.0], [-1.0]]}
    >>> answer = EngineGapByStaleness().measure(from_columns(0, [0, 0], version=[4, 1], **gap), None)
    >>> {name: values.tolist() for name, values in answer.items()}
    {'fresh': [0.0, nan], 'stale': [nan, 1.0]}
    """

    name = "engine.stale_gap"
    grain = "rollout"
    needs = ("version_low", "logprob", "engine_logprob")
    bounds = (0.0, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        versions, trainer, engine = batch.version_low, batch.logprob, batch.engine_logprob
        assert versions is not None and trainer is not None and engine is not None
        sweep = token_sweep(engine.values, engine.offsets, trainer.values, trainer.offsets)
        gap = sweep.per_token(sweep.gap)
        lag = staleness(batch)
        return {"fresh": np.where(lag == 0.0, gap, np.nan), "stale": np.where(lag > 0.0, gap, np.nan)}
