"""The Vendi score: how many different things a set of embeddings amounts to. Cosine kernel, so that it can be merged.

The state of a set is `(n, S)`, the number of rows and the sum of x xᵀ over its unit rows; states add across steps and
workers. Friedman and Dieng 2022 (arXiv 2210.02410).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_ZERO = 1e-12  # eigenvalues below are rounding


def unit_rows(rows: Floats) -> Floats:
    """Rows of length 1. Rows that are zero or not finite have no direction and are left out.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0], [np.nan, 1.0]])).tolist()
    [[0.6, 0.8]]
    """
    rows = np.asarray(rows, np.float64)
    rows = rows[np.isfinite(rows).all(axis=1)]
    largest = np.abs(rows).max(axis=1, initial=0.0, keepdims=True)
    rows = rows[largest[:, 0] > 0] / largest[largest[:, 0] > 0]  # first by the largest: squares must not overflow
    unit: Floats = rows / np.sqrt(np.square(rows).sum(axis=1, keepdims=True))
    return unit


def vendi_score(rows: Floats, order: int = 1) -> float:
    """exp(-Σ λ ln λ) over the eigenvalues λ of K/n, K the cosines of the rows; of order 2, 1 / Σ λ².

    n for n orthogonal rows, 1 for rows that all point the same way, NaN without rows. The smaller of K (n x n) and
    S (d x d) is decomposed: both have the same eigenvalues but for zeros.

    >>> round(vendi_score(np.array([[1.0, 0], [0, 2], [3, 0], [0, 1]])), 6), vendi_score(np.zeros((0, 3)))
    (2.0, nan)
    """
    unit = unit_rows(rows)
    if len(unit) > unit.shape[1]:
        return vendi_of_state(*vendi_state(rows), order)
    return vendi_of_state(len(unit), unit @ unit.T, order)


def vendi_state(rows: Floats) -> tuple[int, Floats]:
    """The mergeable state of a set of rows: two sets together have the sums of theirs.

    >>> n, s = vendi_state(np.array([[1.0, 0.0], [0.0, 2.0]]))
    >>> n, s.tolist()
    (2, [[1.0, 0.0], [0.0, 1.0]])
    """
    unit = unit_rows(rows)
    return len(unit), unit.T @ unit


def vendi_of_state(n: int, kernel_sum: Floats, order: int = 1) -> float:
    """The Vendi score of a state (or of n and K). Order 2 needs no eigenvalues: Σ λ² is the sum of squares of S/n.

    >>> round(vendi_of_state(4, np.eye(2) * 2.0, order=2), 6)
    2.0
    """
    if not n:
        return float("nan")
    scaled = kernel_sum / n
    if order == 2:
        return float(1.0 / np.square(scaled).sum())
    shares = np.linalg.eigvalsh(scaled)
    shares = shares[shares > _ZERO]
    return float(np.exp(-(shares * np.log(shares)).sum()))
