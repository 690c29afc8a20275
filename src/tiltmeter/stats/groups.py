"""Statistics inside prompt groups. `starts` holds the row at which each group begins, then the number of rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def group_sums(values: Floats, starts: Ints) -> tuple[Floats, Ints]:
    """Sum and count of the finite values of each group.

    >>> sums, counts = group_sums(np.array([1.0, np.nan, 4.0]), np.array([0, 2, 3]))
    >>> sums.tolist(), counts.tolist()
    ([1.0, 4.0], [1, 1])
    """
    if len(starts) < 2:
        return np.zeros(0), np.zeros(0, np.int64)
    finite = np.isfinite(values)
    sums = np.add.reduceat(np.where(finite, values, 0.0), starts[:-1])
    return sums, np.add.reduceat(finite.astype(np.int64), starts[:-1])


def standardise(values: Floats, starts: Ints) -> tuple[Floats, Floats, Floats]:
    """Each value's deviation from its group's mean in population standard deviations, the deviations and the means.

    A group with fewer than two finite values, or with no spread beyond rounding, has standard deviation NaN and 0
    respectively, and its z are NaN and 0: nothing can be learnt from it, and nothing is invented.

    >>> z, sd, mean = standardise(np.array([0.2, 0.8, 0.5, 0.3, 7.0]), np.array([0, 4, 5]))
    >>> z.round(2).tolist(), sd.round(4).tolist(), mean.tolist()
    ([-1.09, 1.53, 0.22, -0.65, nan], [0.2291, nan], [0.45, 7.0])
    """
    sums, counts = group_sums(values, starts)
    sizes = np.diff(starts)
    mean = np.divide(sums, counts, out=np.full(len(sums), np.nan), where=counts > 0)
    centred = values - np.repeat(mean, sizes)
    squares, _ = group_sums(centred * centred, starts)
    sd = np.sqrt(np.divide(squares, counts, out=np.full(len(sums), np.nan), where=counts > 1))
    has_sd = np.isfinite(sd)
    flat = np.zeros(len(sd), bool)
    flat[has_sd] = sd[has_sd] < 1e-9 * (1.0 + np.abs(mean[has_sd]))
    sd = np.where(flat, 0.0, sd)
    scale = np.repeat(np.where(flat, 1.0, sd), sizes)
    z = np.where(np.repeat(flat, sizes) & np.isfinite(values), 0.0, np.divide(centred, scale))
    return z, sd, mean


def clustered_mean(values: Floats, starts: Ints, weights: Floats | None = None) -> tuple[float, int, float | None]:
    """Mean of the finite values, their number, and a standard error that treats the group as the unit drawn.

    Completions of one prompt resemble each other; a standard error that ignores it is too small by the square root of
    the group size. The sandwich form with factor m / (m - 1) for m groups; None with fewer than two groups.

    >>> clustered_mean(np.array([1.0, 1.0, 3.0, 3.0]), np.array([0, 2, 4]))
    (2.0, 4, 1.0)
    """
    if weights is None and len(values) and np.isfinite(values).all():
        # The common case, to the same last bit as below.
        mean = float(values.sum() / float(len(values)))
        if len(starts) < 3:
            return mean, len(values), None
        off, many = np.add.reduceat(values - mean, starts[:-1]), len(starts) - 1
        return mean, len(values), float(np.sqrt(np.square(off).sum() * many / (many - 1)) / float(len(values)))
    finite = np.isfinite(values) if weights is None else np.isfinite(values) & np.isfinite(weights) & (weights > 0)
    n = int(finite.sum())
    if not n:
        return float("nan"), 0, None
    weight = np.where(finite, 1.0 if weights is None else weights, 0.0)
    total = weight.sum()
    mean = float((weight * np.where(finite, values, 0.0)).sum() / total)
    residual, counts = group_sums(np.where(finite, weight * (values - mean), np.nan), starts)
    groups = int((counts > 0).sum())
    if groups < 2:
        return mean, n, None
    return mean, n, float(np.sqrt(np.square(residual).sum() * groups / (groups - 1)) / total)


def labelled_covariance(values: Floats, gold: Floats, chance: Floats, starts: Ints) -> Floats:
    """Covariance of values with gold inside each group, population form; NaN where fewer than two rows have both.

    Over labelled rows weighted by 1 / `chance` of being labelled, times m / (m - 1) (G - 1) / G for m labelled
    (effective number) of G with a value, so that labelling a part with equal chances changes no mean.

    >>> halves = np.full(4, 0.5)
    >>> labelled_covariance(np.array([1.0, 0, 1, 0]), np.array([1.0, 0, 0, 0]), halves, np.array([0, 2, 4])).tolist()
    [0.25, 0.0]
    """
    sizes = np.diff(starts)
    labelled = np.isfinite(values) & np.isfinite(gold) & (chance > 0)
    weight = np.divide(1.0, chance, out=np.full(len(values), np.nan), where=labelled)
    total, count = group_sums(weight, starts)
    squares, _ = group_sums(weight * weight, starts)
    has_pair = count > 1
    safe = np.where(has_pair, total, 1.0)

    def centred(column: Floats) -> Floats:
        return column - np.repeat(group_sums(weight * column, starts)[0] / safe, sizes)

    products, _ = group_sums(weight * centred(values) * centred(gold), starts)
    _, scored = group_sums(values, starts)
    shrunk = 1.0 - squares / (safe * safe)  # (m - 1) / m
    whole = (scored - 1.0) / np.maximum(scored, 1)
    covariances = np.full(len(has_pair), np.nan)
    np.divide(products / safe * whole, shrunk, out=covariances, where=has_pair)
    return covariances
