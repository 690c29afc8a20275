"""Testing by betting: evidence that may be looked at after every step, at any number of steps, and still be believed.

Under the null the u, which never exceed 1, have conditional mean >= 0. Each grid value λ bets on the opposite: its
wealth is multiplied by 1 - λu, whose conditional mean is then <= 1. Wealth enters in instalments: at each restart j a
share w_j of one unit, sum of w <= 1, so that a turn late in the run meets new wealth. With M the sum over λ and
restarts, M_t + 1 - Σ_{j<=t} w_j is a nonnegative supermartingale from 1, and Ville's inequality gives
P(M ever reaches 1/α) <= α. (Waudby-Smith & Ramdas 2010.09686 for bets; the restart argument is in
docs/decisions/alarms.md#one-bet-serves-alarms-and-warnings.)
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

#: Bets from cautious to bold; the sum over them needs no tuning and loses at most log(7) against the best.
GRID = np.array([0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8])

FIRST_ARMING, LATER_ARMINGS = 0.8, 0.15  # of a run's α


def initial_wealth() -> Floats:
    """Log wealth of each bet before the first instalment: nothing."""
    return np.full(len(GRID), -np.inf)


def add_instalment(log_wealth: Floats, j: int) -> Floats:
    """Instalment j = 1, 2, ... of size 1 / (j (j + 1)), spread over the grid. The sizes sum to one."""
    return np.asarray(np.logaddexp(log_wealth, -np.log(j * (j + 1.0) * len(GRID))), np.float64)


def bet(log_wealth: Floats, values: Iterable[float]) -> Floats:
    """Wealth after each u in turn, u <= 1; negative u pay.

    >>> float(evidence(bet(add_instalment(initial_wealth(), 1), [-1.0] * 20)).round(2))
    9.22
    """
    for u in values:
        log_wealth = log_wealth + np.log1p(-GRID * u)
    return log_wealth


def evidence(log_wealth: Floats) -> np.float64:
    """Logarithm of the total wealth; reaching log(1/α) has probability at most α under the null."""
    top = log_wealth.max()
    return np.float64(top) if np.isneginf(top) else np.float64(top + np.log(np.exp(log_wealth - top).sum()))


def alpha_share(alpha: float, arming: int) -> float:
    """The part of a run's α that the first, second, ... arming may spend: 0.8, then 0.075, 0.0375, ...

    They sum to 0.95. Of the gold alarm's α the rest belongs to the coverage alarm (`detectors.coverage_fall`).

    >>> [round(alpha_share(0.01, k), 7) for k in (1, 2, 3)]
    [0.008, 0.00075, 0.000375]
    """
    return FIRST_ARMING * alpha if arming == 1 else LATER_ARMINGS * alpha * 2.0 ** -(arming - 1)


def alpha_left(alpha: float, arming: int) -> float:
    """The part of a run's α that this arming and all later ones may spend.

    >>> [round(alpha_left(0.01, k), 6) for k in (1, 2, 3)]
    [0.0095, 0.0015, 0.00075]
    """
    later = 2.0 * LATER_ARMINGS * alpha * 2.0 ** -(max(arming, 2) - 1)
    return FIRST_ARMING * alpha + later if arming == 1 else later
