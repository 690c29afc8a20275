"""Covariance of the optimiser's advantages with gold."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.groups import group_sums


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
        starts, sizes = batch.starts, np.diff(batch.starts)
        labelled = np.isfinite(batch.advantage) & np.isfinite(batch.gold) & (batch.gold_chance > 0)
        weight = np.divide(1.0, batch.gold_chance, out=np.full(len(batch), np.nan), where=labelled)
        total, count = group_sums(weight, starts)
        squares, _ = group_sums(weight * weight, starts)
        has_pair = count > 1
        safe = np.where(has_pair, total, 1.0)

        def centred(values: Floats) -> Floats:
            return values - np.repeat(group_sums(weight * values, starts)[0] / safe, sizes)

        products, _ = group_sums(weight * centred(batch.advantage) * centred(batch.gold), starts)
        _, scored = group_sums(batch.advantage, starts)
        shrunk = 1.0 - squares / (safe * safe)  # (m - 1) / m
        whole = (scored - 1.0) / np.maximum(scored, 1)
        covariances = np.full(len(has_pair), np.nan)
        np.divide(products / safe * whole, shrunk, out=covariances, where=has_pair)
        return covariances
