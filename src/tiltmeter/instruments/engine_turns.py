"""Whether engine and trainer part after the first answer of a tool."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class EngineGapByTurn:
    """Inference engine against trainer, mean |Δ log-probability| per token: in the policy's first turn (`first`) and in
    all later ones (`later`), nats.

    A gap that is small in the first turn and large after it is a matter of tokens and not of weights: the conversation
    was put into text and back into tokens between the turns, so that the trainer scores other tokens than the engine
    drew. Innocent: none; see `engine.gap` for a gap that is everywhere.

    Formula: with d = logprob - engine_logprob, mean |d| over the first stretch of own tokens, and over the others
    Source: own; the failure is that of verl#6719 and of rllm#272

    >>> from tiltmeter.data.batches import from_columns
    >>> own, logprob = [[1, 0, 1]], [[-1.0, 0.0, -3.0]]
    >>> batch = from_columns(0, [0], own=own, logprob=logprob, engine_logprob=[[-1.0, 0.0, -2.0]])
    >>> {name: values.tolist() for name, values in EngineGapByTurn().measure(batch, None).items()}
    {'first': [0.0], 'later': [1.0]}
    """

    name = "engine.turn_gap"
    grain = "rollout"
    needs = ("own", "logprob", "engine_logprob")
    bounds = (0.0, None)
    local = True
    by_env = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        own, trainer, engine = batch.own, batch.logprob, batch.engine_logprob
        assert own is not None and trainer is not None and engine is not None
        gaps = np.full((2, len(batch)), np.nan)
        for row in range(len(batch)):
            mask = own[row].astype(bool)
            one, other = trainer[row].astype(np.float64), engine[row].astype(np.float64)
            if (
                len(one) != len(other)
                or len(one) != mask.sum()
                or not np.isfinite(one).all()
                or not np.isfinite(other).all()
            ):
                continue  # `engine.lost_share` counts it
            began = np.flatnonzero(mask)
            breaks = np.flatnonzero(np.diff(began) > 1)
            first = int(breaks[0]) + 1 if len(breaks) else len(one)
            distance = np.abs(one - other)
            gaps[:, row] = [part.mean() if len(part) else np.nan for part in (distance[:first], distance[first:])]
        return {"first": gaps[0], "later": gaps[1]}
