"""Entropy against where the run began."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.entropy import mean_entropy


class EntropyRatio:
    """Mean entropy of a completion over the mean entropy of the baseline's completions: 1 at the start.

    Nats of entropy mean little across models and prompts; the ratio says directly what happened to this one. Towards 0
    is collapse: nothing is explored and groups die. Well above 1 is an explosion: the policy is turning into noise,
    often after a learning rate or an entropy bonus that is too high. Usual innocent cause of a fall: a verifiable task
    is being mastered; of a rise: harder or more open prompts.

    Formula: H_i / mean(H of the baseline), H a completion's mean entropy per token
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> start = Baseline(from_columns(0, [0, 0], entropy=[[2.0, 2.0], [6.0]]))
    >>> EntropyRatio().measure(from_columns(9, [0, 0], entropy=[[1.0], [8.0]]), start).tolist()
    [0.25, 2.0]
    """

    name = "policy.entropy_ratio"
    grain = "rollout"
    needs = ("entropy",)
    bounds = (0.0, None)
    local = True
    compares = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.entropy is not None
        before = np.nan if baseline is None else baseline.once(_baseline_entropy)
        if not before > 0.0:
            return np.full(len(batch), np.nan)
        return mean_entropy(batch.entropy.values, batch.entropy.offsets) / before


def _baseline_entropy(batch: RolloutBatch) -> float:
    assert batch.entropy is not None
    means = mean_entropy(batch.entropy.values, batch.entropy.offsets)
    finite = means[np.isfinite(means)]
    return float(finite.mean()) if len(finite) else float("nan")
