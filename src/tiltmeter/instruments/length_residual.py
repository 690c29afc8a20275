"""The reward's gain after length is taken out."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.regression import RegressionLine, within_line


class LengthResidual:
    """How much more a completion is paid than the baseline's mean, beyond what its length was worth at the start.

    When the reward rises and this does not, the gain is length and nothing else. The price of length is that of the
    baseline: today's would explain the effect away, since a policy that writes only long answers shows no slope any
    more. It assumes that length was paid in a straight line. Longer answers that are better lose their due here too.

    Formula: r_i - mean r0 - b0 (L_i - mean L0), b0 the slope of reward on length inside prompts of the baseline
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> start = Baseline(from_columns(0, [0, 0], reward=[1, 2], length=[100, 200]))
    >>> LengthResidual().measure(from_columns(9, [0, 0], reward=[3, 4], length=[300, 300]), start).round(6).tolist()
    [0.0, 1.0]
    """

    name = "length.residual_gain"
    grain = "rollout"
    needs = ("reward", "length")
    bounds = (None, None)
    compares = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        assert batch.length is not None
        if baseline is None:
            return np.full(len(batch), np.nan)
        residual = baseline.once(_line).residual(batch.reward, batch.length.astype(np.float64))
        return np.where(np.isfinite(residual), residual, np.nan)


def _line(batch: RolloutBatch) -> RegressionLine:
    assert batch.reward is not None
    assert batch.length is not None
    return within_line(batch.reward, batch.length.astype(np.float64), batch.starts)
