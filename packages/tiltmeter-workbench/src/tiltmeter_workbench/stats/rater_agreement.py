"""How far raters agree with each other beyond chance."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

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
