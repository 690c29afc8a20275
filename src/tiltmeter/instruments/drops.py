"""What a trainer leaves out of its update, and whether that is a fair choice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch


class Drops:
    """Share of trajectories that were dropped before the update (`share`), and by how much the dropped differ from the
    others: in length (`length`, share of the mean) and in reward (`reward`, in standard deviations).

    Dropping what is too old starves slow tasks, which are the hard ones: a silent choice of what is learnt. No
    difference is fair; dropped trajectories that are longer or paid less are not.

    Formula: mean(1[not trained]); (mean length dropped - kept) / mean length; (mean reward dropped - kept) / spread
    Source: own; the bias is that of tinker-cookbook#822

    >>> from tiltmeter.data.batches import from_columns
    >>> batch = from_columns(0, [0] * 4, trained=[1, 1, 1, 0], length=[10, 10, 10, 30], reward=[1, 0, 1, 0])
    >>> {name: values.round(2).tolist() for name, values in Drops().measure(batch, None).items()}
    {'share': [0.25], 'length': [1.33], 'reward': [-1.33]}
    """

    name = "drops"
    grain = "batch"
    needs = ("trained",)
    bounds = (None, None)

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.trained is not None
        dropped = ~batch.trained
        share = dropped.mean() if len(dropped) else np.nan
        answer = {"share": np.array([share])}
        if batch.length is not None:
            answer["length"] = np.array([_difference(batch.length.astype(np.float64), dropped, np.mean)])
        if batch.reward is not None:
            answer["reward"] = np.array([_difference(batch.reward, dropped, np.std)])
        return answer


def _difference(values: Floats, dropped: np.ndarray, scale: Callable[[Floats], np.floating]) -> float:
    scored = np.isfinite(values)
    left, stayed = values[scored & dropped], values[scored & ~dropped]
    if not len(left) or not len(stayed):
        return float("nan")
    size = float(scale(values[scored]))
    return float(left.mean() - stayed.mean()) / size if np.isfinite(size) and size > 0.0 else float("nan")
