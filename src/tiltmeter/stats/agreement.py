"""How far a reward agrees with gold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.numba_jit import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def pair_agreement(gold: Floats, reward: Floats, starts: Ints, weights: Floats | None = None) -> Floats:
    """Per group, share of pairs with different gold that the reward puts in the same order; reward ties count half.

    The area under the ROC curve when gold is 0/1, and Kendall's (1 + γ) / 2 without reward ties. A pair weighs the
    product of its rows' weights. NaN for a group in which no two complete rows differ in gold. n log n per group: ranks
    in a Fenwick tree.

    >>> gold, reward = np.array([0.0, 0.0, 1.0, 1.0, 1.0, 1.0]), np.array([1.0, 2.0, 2.0, 3.0, 5.0, 6.0])
    >>> pair_agreement(gold, reward, np.array([0, 4, 6])).tolist()
    [0.875, nan]
    """
    if weights is None:
        weights = np.ones(len(gold))
    usable = np.isfinite(gold) & np.isfinite(reward) & np.isfinite(weights) & (weights > 0.0)
    group = np.repeat(np.arange(len(starts) - 1), np.diff(starts))[usable]
    gold, reward, weights = gold[usable], reward[usable], weights[usable]
    # Sorted once in numpy for all groups; the kernel then only counts.
    by_reward = np.lexsort((reward, group))
    new = np.ones(len(group), bool)
    ranked, owner = reward[by_reward], group[by_reward]
    new[1:] = (ranked[1:] != ranked[:-1]) | (owner[1:] != owner[:-1])
    by_gold = np.lexsort((gold, group))
    bounds = np.searchsorted(group, np.arange(len(starts)))
    places = np.cumsum(new)
    level = np.empty(len(group), np.int64)
    level[by_reward] = places - places[bounds[owner]]
    shares = np.full(len(starts) - 1, np.nan)
    tree = np.zeros(int(np.diff(bounds).max(initial=0)) + 1)
    _agreeing_shares(gold[by_gold], level[by_gold], weights[by_gold], bounds, tree, shares)
    return shares


@kernel
def _agreeing_shares(gold: Floats, level: Ints, weights: Floats, starts: Ints, tree: Floats, shares: Floats) -> None:
    """Rows sorted by gold inside each group; `level` ranks the rewards of each from 0 on, ties equal; `tree` is room
    for the largest group."""
    for k in range(len(starts) - 1):
        first, stop = starts[k], starts[k + 1]
        size = stop - first
        for at in range(size + 1):
            tree[at] = 0.0
        entered, right, pairs = 0.0, 0.0, 0.0
        block = first
        while block < stop:
            end = block
            while end < stop and gold[end] == gold[block]:
                end += 1
            for row in range(block, end):
                below, upto = 0.0, 0.0  # the weight that the reward puts below this row, without and with its equals
                at = level[row]
                while at > 0:
                    below += tree[at]
                    at -= at & -at
                at = level[row] + 1
                while at > 0:
                    upto += tree[at]
                    at -= at & -at
                right += weights[row] * 0.5 * (below + upto)
                pairs += weights[row] * entered
            for row in range(block, end):
                entered += weights[row]
                at = level[row] + 1
                while at <= size:
                    tree[at] += weights[row]
                    at += at & -at
            block = end
        if pairs > 0.0:
            shares[k] = min(right / pairs, 1.0)
