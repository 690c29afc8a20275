"""Which flagged rollouts leave an update that compares each with its group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def screened_rows(pay: NDArray[np.float64], flagged: NDArray[np.bool_], groups: NDArray[np.int64]) -> NDArray[np.bool_]:
    """The flagged rows that would gain: paid above the mean of those that stay in their group.

    A flagged row that is paid less is pushed down by its own pay, and stays. Were it left out, its pay could no longer
    speak against it: whatever the flag covers and nobody pays for would be safe from the update, and spread. A group
    without an unflagged row that is paid has nothing to compare with: all of its flagged rows leave.

    >>> out = screened_rows(np.array([1.0, 0.0, 0.5, 0.6]), np.array([True, True, False, False]), np.zeros(4, int))
    >>> out.tolist()
    [True, False, False, False]
    """
    out = np.zeros(len(pay), bool)
    for group in np.unique(groups[flagged]):
        rows = np.flatnonzero(groups == group)
        flags, paid = flagged[rows], pay[rows]
        stays = np.isfinite(paid)
        if not (stays & ~flags).any():
            out[rows] = flags
            continue
        noise = 1e-6 * float(np.abs(paid[stays]).max())  # of a mean of equal values
        while (gains := flags & stays & (paid > paid[stays].mean() + noise)).any():  # who leaves lowers the mean
            stays &= ~gains
        out[rows] = flags & ~stays
    return out
