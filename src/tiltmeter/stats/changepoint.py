"""The change point of a mean: an estimate from the peak of the running sum, an interval from a block bootstrap.

A simplification of the usual change-point model: one turn, constant mean on each side. The estimate is not read off a
detector's state, so it does not inherit the detector's delay.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def change_point(values: Floats, *, repeats: int = 200, block: int = 5, cover: float = 0.8) -> tuple[int, int, int]:
    """Index of the first value after the running sum's peak, with the low and high end of its interval.

    >>> quiet = np.tile([0.3, 0.1], 20)
    >>> change_point(np.concatenate([quiet, quiet - 0.5]))
    (40, 40, 40)
    """
    best = _after_peak(values)
    if best <= 0 or best >= len(values) - 1:
        return best, best, best
    # The generator's seed is fixed: replay must give the interval it gave live.
    rng = np.random.default_rng(len(values))
    sides = (values[:best], values[best:])
    means = np.repeat([side.mean() for side in sides], [len(side) for side in sides])
    residual = values - means
    width = min(block, len(values))
    blocks = -(-len(values) // width)
    draws = []
    for _ in range(repeats):
        starts = rng.integers(0, len(values) - width + 1, blocks)
        noise = np.concatenate([residual[start : start + width] for start in starts])[: len(values)]
        draws.append(_after_peak(means + noise))
    low, high = np.quantile(draws, [(1 - cover) / 2, (1 + cover) / 2], method="nearest")
    return best, min(int(low), best), max(int(high), best)


def _after_peak(values: Floats) -> int:
    sums = np.concatenate(([0.0], np.cumsum(values)))
    return min(int(np.argmax(sums)), len(values) - 1)
