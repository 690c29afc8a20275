"""Mean gold of the labelled completions."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class GoldMean:
    """Gold per labelled completion, in [0, 1]; the mean is weighted by the chance each had of being asked.

    The reward says how the proxy sees the run, this says how the run is. It moves late: near its peak it is flat. Other
    prompts move it too, and where labels are few so does the choice of what was labelled.

    Formula: sum(g_i / chance_i) / sum(1 / chance_i) over labelled completions
    Source: Horvitz and Thompson 1952, in Hajek's form

    >>> from tiltmeter.data.batches import from_columns
    >>> GoldMean().measure(from_columns(0, [0, 0], gold=[1, None]), None).tolist()
    [1.0, nan]
    """

    name = "gold.mean"
    grain = "rollout"
    needs = ("gold", "gold_chance")
    bounds = (0.0, 1.0)
    by_env = True
    by_slice = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.gold is not None
        return batch.gold
