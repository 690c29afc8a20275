"""Log wealth of the betting test on labels, computed for all steps of a run at once."""

from __future__ import annotations

import numpy as np

from tiltmeter.stats.betting import GRID
from tiltmeter_lab.baselines.windows import by_step
from tiltmeter_lab.simulate import Ints
from tiltmeter_lab.worlds.world import Floats

#: Steps between two instalments of money.
BLOCK = 20


def evidence(u: Floats, step: Ints, steps: int, begin: int = 0) -> Floats:
    """Log wealth after each step of bets that the mean of u, at most 1, is below zero: `stats.betting` along a run.

    The run's length is known here, so every block from the step `begin` on gets an equal share of the money. Steps
    before `begin` are NaN. Reaching log(1/alpha) has a chance of at most alpha while the mean of u is not below zero.

    >>> wealth = evidence(np.full(20, -1.0), np.arange(20), 20)
    >>> wealth.shape, bool((np.diff(wealth) > 0).all()), bool(wealth[-1] > np.log(100))
    ((20,), True, True)
    """
    starts = np.arange(begin, steps, BLOCK)
    wealth = np.full(steps, np.nan)
    if not len(starts):
        return wealth
    gains = np.log1p(-GRID[:, None] * u)
    log_growth = np.stack([by_step(step, gain, steps) for gain in gains])
    path = np.concatenate([np.zeros((len(GRID), 1)), np.cumsum(log_growth, axis=1)], axis=1)
    # Money put in at the start of a block has grown by all that came since.
    parts = path[:, None, 1:] - path[:, starts, None]
    parts = np.where(np.arange(steps) >= starts[:, None], parts, -np.inf).reshape(-1, steps)[:, begin:]
    top = parts.max(0)
    wealth[begin:] = top + np.log(np.exp(parts - top).sum(0)) - np.log(len(GRID) * len(starts))
    return wealth
