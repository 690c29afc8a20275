"""Several reward models as one reward, and how far they disagree."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def disagreement(members: Floats, least: int = 3) -> Floats:
    """Population standard deviation over the members that scored a row (members x rows); NaN with fewer than `least`.

    >>> disagreement(np.array([[0.0, 1.0], [0.0, 1.0], [3.0, np.nan]])).round(4).tolist()
    [1.4142, nan]
    """
    scored = np.isfinite(members)
    counts = scored.sum(axis=0)
    mean = np.where(scored, members, 0.0).sum(axis=0) / np.maximum(counts, 1)
    squares = np.square(np.where(scored, members - mean, 0.0)).sum(axis=0)
    return np.where(counts >= least, np.sqrt(squares / np.maximum(counts, 1)), np.nan)
