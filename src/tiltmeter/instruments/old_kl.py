"""KL between the policy that sampled a batch and the policy after its updates."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class OldKl:
    """KL between the policy that sampled the batch and the policy being updated, as the trainer itself reports it.

    About 0 with one update per batch; with several, the size of a step. A jump says that the learning rate or the
    number of passes over a batch is too high, often before loss or reward show it; during warm-up it rises by design.
    It bounds no drift: a run may go a long way from the reference in steps that are all small. Trainers estimate it in
    different ways, some of which may be negative. This is neither the KL to the reference (`policy.kl`) nor the one
    between engine and trainer (`engine.gap`).

    Formula: the trainer's scalar `kl_old_new`, mean per token, nats
    Source: the trainer

    >>> from tiltmeter.data.batches import from_columns
    >>> OldKl().measure(from_columns(0, [0, 0], scalars={"kl_old_new": 0.02}), None).tolist()
    [0.02]
    """

    name = "policy.kl_old"
    grain = "batch"
    needs = ("scalars",)
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        value = float(batch.scalars.get("kl_old_new", np.nan))
        return np.array([value if np.isfinite(value) else np.nan])
