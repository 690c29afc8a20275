"""How much of the reward's gain is length."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.regression import within_slope
from tiltmeter.stats.trend import mean_change


class LengthGain:
    """Share of the reward's gain since the baseline that longer completions account for.

    1 says that the whole gain is what length alone was worth at the start; above 1, that everything else got worse;
    below 0, that completions became shorter where long ones were paid. Longer answers that are better look the same:
    read it beside gold. There is no reading while the reward has not risen beyond its noise. Like
    `length.residual_gain` it takes the baseline's price of length and a straight line.

    Formula: b0 (mean L - mean L0) / (mean r - mean r0), b0 the slope of reward on length inside prompts of the
    baseline; no reading unless the gain exceeds 2 clustered standard errors
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> start = Baseline(from_columns(0, [0, 0, 1, 1], reward=[1, 2, 1, 2], length=[100, 200, 100, 200]))
    >>> LengthGain().measure(from_columns(9, [0, 1], reward=[4, 5], length=[300, 400]), start).round(6).tolist()
    [0.666667]
    """

    name = "length.gain_share"
    grain = "batch"
    needs = ("reward", "length")
    bounds = (None, None)
    compares = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        assert batch.reward is not None
        assert batch.length is not None
        nothing = np.full(1, np.nan)
        if baseline is None:
            return nothing
        before = baseline.batch
        assert before.reward is not None
        assert before.length is not None
        gain, stderr = mean_change(batch.reward, batch.starts, before.reward, before.starts)
        price = baseline.once(_price)
        if not gain > 2.0 * stderr or not np.isfinite(price):
            return nothing
        longer = batch.length[np.isfinite(batch.reward)].mean() - before.length[np.isfinite(before.reward)].mean()
        return np.array([price * longer / gain])


def _price(batch: RolloutBatch) -> float:
    assert batch.reward is not None
    assert batch.length is not None
    return within_slope(batch.reward, batch.length.astype(np.float64), batch.starts)[0]
