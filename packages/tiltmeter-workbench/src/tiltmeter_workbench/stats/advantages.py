"""Group advantages, in the forms trainers use; each says which standard deviation it means."""

from __future__ import annotations

from math import comb
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.groups import group_sums, standardise

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Form = Literal["population", "sample", "centred", "leave_one_out"]


def advantages(rewards: Floats, starts: Ints, form: Form, epsilon: float = 0.0) -> Floats:
    """Advantage of each completion inside its prompt group.

    `population`: (r - mean) / sd with divisor G (Shao et al. 2024, GRPO, arXiv 2402.03300). `sample`: divisor G - 1,
    which is what TRL computes. `centred`: r - mean, without a standard deviation (Liu et al. 2025, Dr. GRPO, arXiv
    2503.20783). `leave_one_out`: r minus the mean of the others, G / (G - 1) times `centred` (Ahmadian et al. 2024,
    RLOO, arXiv 2402.14740). `epsilon` is added to the standard deviation; TRL adds 1e-4. A group of one has advantage
    0: there is nothing to compare it with. A group without spread has 0 too. What was not scored has none.

    >>> rewards, starts = np.array([0.2, 0.8, 0.5, 0.3, 7.0]), np.array([0, 4, 5])
    >>> advantages(rewards, starts, "population").round(2).tolist()
    [-1.09, 1.53, 0.22, -0.65, 0.0]
    >>> advantages(rewards, starts, "sample").round(2).tolist()
    [-0.94, 1.32, 0.19, -0.57, 0.0]
    """
    if form not in get_args(Form):
        raise ValueError(f"form must be one of {', '.join(get_args(Form))}, not {form!r}")
    z, sd, _ = standardise(rewards, starts)
    sizes = np.diff(starts)
    _, counts = group_sums(rewards, starts)
    degrees = np.maximum(counts - 1, 1)
    scale = np.where(np.isfinite(sd), sd, 0.0)
    centred = np.where(np.isfinite(z), z, 0.0) * np.repeat(scale, sizes)
    if form in ("population", "sample"):
        if form == "sample":
            scale = scale * np.sqrt(counts / degrees)
        scale = scale + epsilon
        factor = np.divide(1.0, scale, out=np.zeros(len(scale)), where=scale > 0.0)
    else:
        factor = counts / degrees if form == "leave_one_out" else np.ones(len(scale))
    return np.where(np.isfinite(rewards), centred * np.repeat(factor, sizes), np.nan)


def expected_spread(chance: float, size: int) -> float:
    """Expected population standard deviation of `size` independent 0/1 rewards that are 1 with this chance.

    >>> round(expected_spread(0.5, 2), 3), round(expected_spread(0.5, 8), 3)
    (0.25, 0.464)
    """
    total = 0.0
    for ones in range(size + 1):
        share = ones / size
        total += comb(size, ones) * chance**ones * (1.0 - chance) ** (size - ones) * (share * (1.0 - share)) ** 0.5
    return total


def dead_share(chance: float, size: int) -> float:
    """p^G + (1 - p)^G: how often a group of independent 0/1 rewards has no spread, and so teaches nothing.

    >>> dead_share(0.5, 2), round(dead_share(0.5, 8), 4)
    (0.5, 0.0078)
    """
    return chance**size + (1.0 - chance) ** size
