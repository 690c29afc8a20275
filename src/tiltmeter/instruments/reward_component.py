"""Each reward function by itself."""

from __future__ import annotations

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class RewardComponent:
    """Reward per completion and reward function, before weights.

    A total that rises because one component rises, while the one you care about stands still, is a common hack and
    invisible in the total. Early on it is innocent: easy components, such as format, are learnt first.

    Formula: r_k,i for each reward function k
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0, 0], rewards={"correct": [1, 0], "format": [1, None]})
    >>> {name: values.tolist() for name, values in RewardComponent().measure(batch, None).items()}
    {'correct': [1.0, 0.0], 'format': [1.0, nan]}
    """

    name = "reward.component"
    grain = "rollout"
    needs = ("rewards",)
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        return dict(batch.rewards)
