"""Gold of each prompt, where all of its answers have gold."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.groups import group_sums


class GoldPrompts:
    """Mean gold of each prompt group of which every answer was labelled: the alarm compares it with earlier steps.

    The slope says where the reward pushes gold inside a prompt; this says where gold stands. A network can lose gold
    although the slope is positive, by forgetting or by what other prompts teach it. Groups of another size than most of
    the step are left out: the bound counts answers.

    Formula: mean over the group of g_i, where every g_i is known with gold_chance 1; of all, the mean over groups
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> GoldPrompts().measure(from_columns(0, [0, 0, 1, 1], gold=[1, 0, 1, None]), None).tolist()
    [0.5, nan]
    """

    name = "gold.prompts"
    grain = "group"
    needs = ("gold", "gold_chance")
    bounds = (0.0, 1.0)
    audited = True
    by_prompt = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.gold is not None
        assert batch.gold_chance is not None
        sums, labelled = group_sums(np.where(batch.gold_chance == 1.0, batch.gold, np.nan), batch.starts)
        sizes = np.diff(batch.starts)
        usual = int(np.bincount(sizes).argmax()) if len(sizes) else 0
        means = np.full(len(sizes), np.nan)
        np.divide(sums, labelled, out=means, where=(labelled == sizes) & (sizes == usual) & (sizes > 0))
        return means.clip(0.0, 1.0)
