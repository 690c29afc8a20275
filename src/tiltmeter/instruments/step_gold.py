"""Whether what a step is paid goes with gold, step by step."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.groups import labelled_covariance

POSITIONS = 8  # steps of an answer that have a reading of their own


class StepGold:
    """Covariance of a step's score and the answer's gold inside each prompt group, by the step's place from 1.

    A process reward pays steps. Which of them is paid and does not help: the one whose covariance with gold is 0 or
    below while its score goes up. Answers that do that step better are then no better answers. A covariance of 0 also
    comes from a step that all answers do alike, and a step may matter without being scored: look at its rollouts.

    Formula: Cov_g(s_k, gold) over answers with a step k, as `gold.covariance` has it for the advantage
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0, 0], step_reward=[[1.0, 0.0], [0.0, 1.0]], gold=[0, 1])
    >>> {name: values.tolist() for name, values in StepGold().measure(batch, None).items()}
    {'1': [-0.25], '2': [0.25]}
    """

    name = "step.gold"
    grain = "group"
    needs = ("step_reward", "gold", "gold_chance")
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.step_reward is not None
        assert batch.gold is not None
        assert batch.gold_chance is not None
        scores, offsets = batch.step_reward.values.astype(np.float64), batch.step_reward.offsets
        lengths = np.diff(offsets)
        readings: dict[str, Floats] = {}
        for place in range(min(POSITIONS, int(lengths.max(initial=0)))):
            column, has_step = np.full(len(batch), np.nan), lengths > place
            column[has_step] = scores[offsets[:-1][has_step] + place]
            readings[str(place + 1)] = labelled_covariance(column, batch.gold, batch.gold_chance, batch.starts)
        return readings
