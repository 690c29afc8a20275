"""How far raters agree with each other, and a reward with gold."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.numba_jit import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def count_ratings(ratings: Floats) -> Ints:
    """How many raters put each item into each category (items x categories), from items x raters with NaN for none.

    >>> count_ratings(np.array([[0.0, 2.0, 2.0], [5.0, np.nan, 0.0]])).tolist()
    [[1, 2, 0], [1, 0, 1]]
    """
    rated = np.isfinite(ratings)
    categories = np.unique(ratings[rated])
    table = np.zeros((len(ratings), len(categories)), np.int64)
    items = np.broadcast_to(np.arange(len(ratings))[:, None], ratings.shape)[rated]
    np.add.at(table, (items, np.searchsorted(categories, ratings[rated])), 1)
    return table


def fleiss_kappa(counts: Ints) -> float:
    """Agreement beyond chance when every item has the same number of ratings (Fleiss 1971).

    κ = (P - P_e) / (1 - P_e), P the mean share of agreeing pairs per item, P_e the sum of squared category shares.
    1: all agree; 0: as much as if everyone drew from the same urn. NaN when only one category was ever used: agreement
    is then complete and says nothing. For missing ratings use Krippendorff's alpha.

    >>> round(fleiss_kappa(np.array([[3, 0], [0, 3], [2, 1]])), 4)
    0.55
    """
    raters = counts.sum(axis=1)
    if not len(counts) or raters[0] < 2 or (raters != raters[0]).any():
        raise ValueError("Fleiss' kappa needs items, at least two ratings of each, and as many of one as of another")
    m = float(raters[0])
    table = counts.astype(np.float64)
    agree = float(((np.square(table).sum(axis=1) - m) / (m * (m - 1.0))).mean())
    chance = float(np.square(table.sum(axis=0) / table.sum()).sum())
    return float("nan") if chance > 1.0 - 1e-12 else (agree - chance) / (1.0 - chance)


def krippendorff_alpha(ratings: Floats, level: Literal["nominal", "interval"] = "nominal") -> float:
    """α = 1 - D_o / D_e over items x raters with NaN where a rater did not rate (Krippendorff 2011).

    D_o is the disagreement between ratings of one item, D_e that between all ratings that could have been paired; two
    ratings disagree by 1 if they differ (nominal) or by the square of their difference (interval). Items with fewer
    than two ratings are not pairable and drop out. NaN when nothing is pairable or all ratings are equal.

    >>> ratings = np.array([[1.0, 1.0, np.nan], [2.0, 2.0, 3.0], [3.0, 3.0, 3.0], [np.nan, 1.0, np.nan]])
    >>> round(krippendorff_alpha(ratings), 4), round(krippendorff_alpha(ratings, "interval"), 4)
    (0.65, 0.8409)
    """
    if level not in ("nominal", "interval"):
        raise ValueError(f"level must be nominal or interval, not {level!r}")
    pairable = np.isfinite(ratings).sum(axis=1) > 1
    ratings = ratings[pairable]
    rated = np.isfinite(ratings)
    m = rated.sum(axis=1)
    n = int(m.sum())
    if not n:
        return float("nan")
    if level == "nominal":
        table = count_ratings(ratings).astype(np.float64)
        within = (table * (m[:, None] - table)).sum(axis=1)
        totals = table.sum(axis=0)
        between = float((totals * (n - totals)).sum())
    else:
        values = np.where(rated, ratings - ratings[rated].mean(), 0.0)
        values = values / (np.abs(values).max() or 1.0)
        within = 2.0 * (m * np.square(values).sum(axis=1) - np.square(values.sum(axis=1)))
        between = 2.0 * (n * float(np.square(values).sum()) - float(values.sum()) ** 2)
    return float("nan") if between <= 0.0 else 1.0 - float((within / (m - 1)).sum()) * (n - 1) / between


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
