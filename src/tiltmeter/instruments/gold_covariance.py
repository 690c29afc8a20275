"""Covariance of the optimiser's advantages with gold."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.groups import labelled_covariance


class GoldCovariance:
    """Covariance of advantage and gold inside each prompt group, with the advantages the optimiser used.

    To first order the change of gold per step is this covariance times the step size, so below 0 the update lowers
    gold. `gold.slope` is the bounded form an alarm may bet on; this one is in the units of the update and needs only
    two labelled completions per group. It is noisy and shrinks as the policy becomes sure of itself: a value near 0 is
    not yet harm.

    Formula: Cov_g(A, gold), population form; over the labelled completions weighted by 1 / gold_chance, times
    m / (m - 1) (G - 1) / G for m labelled (effective number) of G, so that labelling a part with equal chances changes
    no mean
    Source: first-order identity d/dη E[g] = Cov(g, A) of an exponential tilt

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0, 0, 1, 1, 2, 2], advantage=[1, -1, 1, -1, 1, -1], gold=[1, 0, 0, 1, 1, None])
    >>> GoldCovariance().measure(batch, None).tolist()
    [0.5, -0.5, nan]
    """

    name = "gold.covariance"
    grain = "group"
    needs = ("advantage", "gold", "gold_chance")
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.advantage is not None
        assert batch.gold is not None
        assert batch.gold_chance is not None
        return labelled_covariance(batch.advantage, batch.gold, batch.gold_chance, batch.starts)
