"""Which component brought the reward's gain."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.stats.regression import linear_weights
from tiltmeter.stats.trend import mean_change


class GainShare:
    """Share of the reward's gain since the baseline that each reward function brings, by its weight in the total.

    A component that holds most of the level may be healthy; one that brings all of the gain while the others stand
    still, or fall (negative shares), is what the policy has found to optimise. Early in training an easy component,
    such as format, honestly brings most of it. Components that move together share their weight; where the total is
    not a weighted sum (clipping, gates) the shares do not add up to 1.

    Formula: w_k (mean_k - mean0_k) / (mean_r - mean0_r), w by least squares of the total on the components over batch
    and baseline; no reading unless the gain exceeds 2 clustered standard errors, nor after a change of the reward
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> def step(correct, style): return from_columns(0, [0, 1, 2, 3], rewards={"correct": correct, "style": style},
    ...                                               reward=np.add(correct, 0.5 * np.array(style)))
    >>> start, now = step([0, 1, 0, 1], [0, 0, 1, 0]), step([0, 1, 0, 1], [5, 6, 6, 5])
    >>> {name: values.round(3).tolist() for name, values in GainShare().measure(now, Baseline(start)).items()}
    {'correct': [0.0], 'style': [1.0]}
    """

    name = "reward.gain_share"
    grain = "batch"
    needs = ("reward", "rewards")
    bounds = (None, None)
    compares = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> dict[str, Floats]:
        assert batch.reward is not None
        nothing = {name: np.full(1, np.nan) for name in batch.rewards}
        if baseline is None:
            return nothing
        before = baseline.batch
        names = [name for name, scores in batch.rewards.items() if np.isfinite(scores).any()]
        assert before.reward is not None
        if set(batch.rewards) != set(before.rewards) or not names:
            return nothing  # with other components the gain of one would be attributed to another
        gain, stderr = mean_change(batch.reward, batch.starts, before.reward, before.starts)
        if not gain > 2.0 * stderr:
            return nothing
        now, then = _parts(batch, names), _parts(before, names)
        weights = linear_weights(np.concatenate((batch.reward, before.reward)), np.concatenate((now, then)))
        change = _means(now, batch.reward) - _means(then, before.reward)
        # The last bits of a least-squares solution depend on the processor, and a replay must agree on any.
        shares = np.round(weights * change / gain, 9)
        return nothing | {name: np.array([share]) for name, share in zip(names, shares, strict=True)}


def _parts(batch: RolloutBatch, names: list[str]) -> Floats:
    """Rows x components; a component that did not score a row adds nothing to it."""
    table = np.column_stack([batch.rewards[name] for name in names])
    return np.where(np.isfinite(table), table, 0.0)


def _means(parts: Floats, total: Floats) -> Floats:
    return np.asarray(parts[np.isfinite(total)].mean(axis=0), np.float64)
