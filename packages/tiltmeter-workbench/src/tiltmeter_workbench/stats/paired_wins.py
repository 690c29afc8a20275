"""Wins of answers with a feature over answers without it: exact paired tests and intervals, with odds of each pair.

The sign test (McNemar's) takes every pair for a fair coin. Here coin i has odds of its own, from what else is known of
the pair: how much longer the answer is, how much better it was rated. With all odds even it is the sign test.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.numba_jit import kernel
from tiltmeter_workbench.stats.logistic import sigmoid

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

FARTHEST = 8.0  # log-odds beyond which an end is not looked for: 3000 to 1
EXACT = 1_000  # pairs; with more, the normal law with a correction for continuity stands in


class Shift(NamedTuple):
    """Log-odds of winning that the feature adds, with the interval of an exact test; an end of ±8 stands for none."""

    estimate: float
    low: float
    high: float


def win_tails(chance: Floats, wins: int) -> tuple[float, float]:
    """P(W <= wins) and P(W >= wins) for the number W of wins of independent pairs with these chances.

    >>> low, high = win_tails(np.full(10, 0.5), 9)
    >>> round(low, 5), round(high, 5)
    (0.99902, 0.01074)
    """
    n = len(chance)
    if n <= EXACT:
        law = np.zeros(n + 1)
        _win_distribution(np.ascontiguousarray(chance, np.float64), law)
        return min(1.0, float(law[: wins + 1].sum())), min(1.0, float(law[wins:].sum()))
    spread = math.sqrt(max(float((chance * (1.0 - chance)).sum()), 1e-12))
    middle = float(chance.sum())
    normal = NormalDist()
    return normal.cdf((wins + 0.5 - middle) / spread), normal.cdf(-(wins - 0.5 - middle) / spread)


def p_value(chance: Floats, wins: int) -> float:
    """Twice the smaller tail: the chance of so uneven a result in either direction, and not more.

    >>> round(p_value(np.full(10, 0.5), 9), 4)
    0.0215
    """
    return min(1.0, 2.0 * min(win_tails(chance, wins)))


def shift(offset: Floats, wins: int, alpha: float) -> Shift:
    """What added to all log-odds explains the wins: its likeliest value, and all that a test at `alpha` keeps.

    For even odds this is the logit of Clopper and Pearson's interval (Biometrika 26, 1934).

    >>> found = shift(np.zeros(20), 15, 0.05)
    >>> [round(float(end), 3) for end in sigmoid(np.array(found))]
    [0.75, 0.509, 0.913]
    """
    n = len(offset)
    if not 0 < wins < n:  # one side only: half a win is added to each, so that a number can be given
        estimate = _root(lambda s: float(sigmoid(offset + s).mean()) - (wins + 0.5) / (n + 1.0)) if n else math.nan
    else:
        estimate = _root(lambda s: float(sigmoid(offset + s).sum()) - wins)
    low = _root(lambda s: win_tails(sigmoid(offset + s), wins)[1] - alpha / 2.0) if wins > 0 else -FARTHEST
    high = _root(lambda s: alpha / 2.0 - win_tails(sigmoid(offset + s), wins)[0]) if wins < n else FARTHEST
    return Shift(estimate, low, high)


def fewest_pairs(counts: Ints, alpha: float) -> int:
    """The fewest pairs a feature must tell apart to be tested, so that all tests together err with chance `alpha`.

    A feature that tells k pairs apart cannot have a p-value below 2^(1-k). Those that could not pass whatever the
    labels are need no part of `alpha` (Tarone, Biometrics 46, 1990): the smallest k with 2^(1-k) m_k <= alpha, where
    m_k features tell k pairs or more apart. Each is then tested at alpha / m_k.

    >>> fewest_pairs(np.array([3, 3, 9, 40]), 0.05)
    7
    """
    k = 2
    while k < 64 and 2.0 ** (1 - k) * int((counts >= k).sum()) > alpha:
        k += 1
    return max(k, math.ceil(1.0 - math.log2(alpha)))


def _root(rising: Callable[[float], float]) -> float:
    """Where a rising function crosses 0, within what is looked for."""
    low, high = -FARTHEST, FARTHEST
    if rising(low) >= 0.0:
        return low
    if rising(high) <= 0.0:
        return high
    for _ in range(40):
        middle = (low + high) / 2.0
        low, high = (middle, high) if rising(middle) < 0.0 else (low, middle)
    return (low + high) / 2.0


@kernel
def _win_distribution(chance: Floats, law: Floats) -> None:
    """The chances of 0, 1, ... wins, by adding one pair after the other."""
    law[0] = 1.0
    for i in range(len(chance)):
        p = chance[i]
        for k in range(i + 1, 0, -1):
            law[k] = law[k] * (1.0 - p) + law[k - 1] * p
        law[0] *= 1.0 - p
