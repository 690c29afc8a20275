"""Gold of trajectories with an act, and of others."""

from __future__ import annotations

import numpy as np

from tiltmeter.acts import batch_acts
from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class ActGold:
    """Mean gold of the labelled trajectories in which an act is seen (`with`), and of the other ones (`without`).

    Lower gold with an act says that the act is an exploit; equal gold, that it is harmless here. Where only some
    rollouts are labelled, labels for closer looks give the same two readings.

    Formula: mean of g_i over rows with an act; over rows without
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> code = ["```\\nimport os\\nos._exit(0)\\n```", "```\\ndef f(): return 1\\n```"]
    >>> answer = ActGold().measure(from_columns(0, [0, 0], completion=code, gold=[0.0, 1.0]), None)
    >>> answer["with"].tolist(), answer["without"].tolist()
    ([0.0, nan], [nan, 1.0])
    """

    name = "acts.gold"
    grain = "rollout"
    needs = ("completion", "gold")
    bounds = (0.0, 1.0)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.gold is not None
        acts = batch_acts(batch)
        seen = np.array([bool(of_row) for of_row in acts], bool)
        others = np.array([of_row == () for of_row in acts], bool) & seen.any()
        return {"with": np.where(seen, batch.gold, np.nan), "without": np.where(others, batch.gold, np.nan)}
