"""Win rates of values against a reference sample."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def prepare_reference(reference: Floats, weights: Floats | None = None) -> tuple[Floats, Floats]:
    """A reference sample prepared for `win_share`: its finite values in order, and the weight below each."""
    usable = (
        np.isfinite(reference) if weights is None else np.isfinite(reference) & np.isfinite(weights) & (weights > 0)
    )
    order = np.argsort(reference[usable], kind="stable")
    weight = np.ones(len(order)) if weights is None else weights[usable][order]
    return reference[usable][order], np.concatenate((np.zeros(1), np.cumsum(weight)))


def win_share(values: Floats, sample: tuple[Floats, Floats]) -> Floats:
    """Chance that each value exceeds a draw from the reference sample, ties half; NaN without value or sample.

    Scale-free: any strictly increasing change of both gives the same. Draws from the reference itself have mean 1/2.

    >>> win_share(np.array([0.0, 2.0, np.nan, 9.0]), prepare_reference(np.array([3.0, 1.0, 2.0]))).round(4).tolist()
    [0.0, 0.5, nan, 1.0]
    """
    ranked, below = sample
    if not len(ranked):
        return np.full(len(values), np.nan)
    low, high = np.searchsorted(ranked, values, "left"), np.searchsorted(ranked, values, "right")
    return np.where(np.isfinite(values), (below[low] + below[high]) / (2.0 * below[-1]), np.nan)
