"""What each step is paid."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch

POSITIONS = 8  # steps of an answer that have a reading of their own


class StepPaid:
    """The score of each step, by its place from 1, of answers that have such a step.

    Beside `step.gold`: a step whose score goes up while its covariance with gold is not above 0 is paid and does not
    help. Early on it is innocent: easy steps are learnt first.

    Formula: s_i,k of a process reward
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0, 0], step_reward=[[1.0, 0.0], [0.5]])
    >>> {name: values.tolist() for name, values in StepPaid().measure(batch, None).items()}
    {'1': [1.0, 0.5], '2': [0.0, nan]}
    """

    name = "step.paid"
    grain = "rollout"
    needs = ("step_reward",)
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.step_reward is not None
        scores, offsets = batch.step_reward.values.astype(np.float64), batch.step_reward.offsets
        lengths = np.diff(offsets)
        readings: dict[str, Floats] = {}
        for place in range(min(POSITIONS, int(lengths.max(initial=0)))):
            column, has_step = np.full(len(batch), np.nan), lengths > place
            column[has_step] = scores[offsets[:-1][has_step] + place]
            readings[str(place + 1)] = column
        return readings
