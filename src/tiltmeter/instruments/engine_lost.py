"""Completions for which engine and trainer cannot be compared."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.kl import token_sweep


class LostEngine:
    """Share of completions left out of `engine.gap`: the two columns differ in length, or a token is not finite.

    Engine and trainer that disagree on how many tokens there are disagree about everything after; the mean over the
    rest would look fine. Usual cause: a stop token that only one of them counts. An empty completion has no value.

    Formula: 1[lengths differ, or some token's engine_logprob or logprob is not finite]
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> engine, trainer = [[-1.0], [float("nan")], [-1.0, -2.0]], [[-1.0], [-1.0], [-1.0]]
    >>> LostEngine().measure(from_columns(0, [0, 0, 0], engine_logprob=engine, logprob=trainer), None).tolist()
    [0.0, 1.0, 1.0]
    """

    name = "engine.lost_share"
    grain = "rollout"
    needs = ("engine_logprob", "logprob")
    bounds = (0.0, 1.0)
    local = True
    counts_nan = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        ours, theirs = batch.engine_logprob, batch.logprob
        assert ours is not None
        assert theirs is not None
        return token_sweep(ours.values, ours.offsets, theirs.values, theirs.offsets).lost
