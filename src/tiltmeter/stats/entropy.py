"""Means over the tokens of each completion, where a token that is not a number must not pass for a 0."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.memo import shared

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ROUNDING = 0.01  # nats: what a sum of p ln p in half precision can lose where the policy is certain


@shared()
def row_means(values: NDArray[np.generic], offsets: Ints) -> tuple[Floats, Floats]:
    """Mean of each row of a ragged column, and the share of its values that are not finite.

    Row i is `values[offsets[i]:offsets[i + 1]]`. The mean of a row with a value that is not finite is NaN; both are NaN
    for an empty row.

    >>> means, shares = row_means(np.float32([1.0, 3.0, np.nan, 5.0]), np.array([0, 2, 2, 4]))
    >>> means.tolist(), shares.tolist()
    ([2.0, nan, nan], [0.0, nan, 0.5])
    """
    sizes = np.diff(offsets)
    row = np.repeat(np.arange(len(sizes)), sizes)
    plain = values[offsets[0] : offsets[-1]].astype(np.float64)
    totals = np.bincount(row, plain, len(sizes))
    lost = np.zeros(len(sizes), np.int64)
    if not np.isfinite(totals).all():
        lost = np.bincount(row[~np.isfinite(plain)], minlength=len(sizes))
    means, shares = np.full((2, len(sizes)), np.nan)
    np.divide(totals, sizes, out=means, where=(sizes > 0) & (lost == 0))
    np.divide(lost, sizes, out=shares, where=sizes > 0)
    return means, shares


def mean_entropy(values: NDArray[np.generic], offsets: Ints) -> Floats:
    """Mean entropy of each row's tokens. NaN where `row_means` has none, and where it is negative beyond rounding:
    that is then some other quantity under the name of entropy.

    >>> mean_entropy(np.float32([0.5, -1e-4, -2.0]), np.array([0, 1, 2, 3])).tolist()
    [0.5, 0.0, nan]
    """
    means, _ = row_means(values, offsets)
    return np.where(means > -ROUNDING, np.maximum(means, 0.0), np.nan)
