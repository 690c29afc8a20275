"""Tasks of which nothing is learnt."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class StarvedTasks:
    """Share of the tasks of a step of which no trajectory counts: each was dropped before the update, or has no reward
    that can be trusted.

    Slow tasks are dropped as too old, and hard ones fail in their containers: the policy is then trained on what is
    left. Innocent: a task with a single trajectory that failed.

    Formula: of the tasks of the batch, the share without a row that was trained on and has a finite reward
    Source: own; tinker-cookbook#822 describes how slow tasks starve

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0, 0, 1], task=["a", "a", "b"], reward=[1, 0, 1], trained=[0, 1, 0])
    >>> StarvedTasks().measure(batch, None).tolist()
    [0.5]
    """

    name = "tasks.starved_share"
    grain = "batch"
    needs = ("task",)
    bounds = (0.0, 1.0)
    counts_nan = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.task is not None
        counts = np.ones(len(batch), bool) if batch.trained is None else batch.trained.copy()
        if batch.reward is not None:
            counts &= np.isfinite(batch.reward)
        fed: dict[str, bool] = {}
        for task, good in zip(batch.task, counts.tolist(), strict=True):
            if task is not None:
                fed[task] = fed.get(task, False) or good
        return np.array([1.0 - sum(fed.values()) / len(fed) if fed else np.nan])
