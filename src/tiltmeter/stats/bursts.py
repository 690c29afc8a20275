"""How many rows a step has, estimated from the pauses between rows: a trainer scores in bursts, then trains."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BURSTS = 4  # complete ones that are needed
AGREEING = 0.75  # share of bursts that must have the same size
CONTRAST = 8.0  # longest pause against the usual one, below which there are no bursts
SHORTEST = 1e-4  # seconds; rows of one call have no pause between them


def burst_size(times: NDArray[np.float64]) -> int | None:
    """The size of most bursts, or None while too few are complete or they do not agree. `times` in order, in seconds.

    >>> burst = np.repeat(np.arange(6) * 10.0, 8) + np.tile(np.arange(8) * 0.01, 6)
    >>> burst_size(burst), burst_size(np.arange(48.0)), burst_size(burst[:20])
    (8, None, None)
    """
    pauses = np.maximum(np.diff(times), SHORTEST)
    if not len(pauses) or pauses.max() < CONTRAST * np.median(pauses):
        return None
    cuts = np.flatnonzero(pauses > np.sqrt(pauses.max() * np.median(pauses))) + 1
    sizes = np.diff(np.concatenate(([0], cuts)))  # the last burst may go on
    if len(sizes) < BURSTS:
        return None
    values, counts = np.unique(sizes, return_counts=True)
    return int(values[counts.argmax()]) if counts.max() >= AGREEING * len(sizes) else None
