"""Several reward models as one reward."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Rule = Literal["min", "mean", "median", "mean_minus_std", "mean_minus_variance"]


def combined(members: Floats, rule: Rule, penalty: float = 1.0) -> Floats:
    """One reward per column from members x rows; the spread in the last two rules is the population one.

    `min` is worst-case optimisation, `mean_minus_variance` uncertainty-weighted optimisation (Coste et al. 2023, arXiv
    2310.02743). Scores that are not on one scale must be standardised first. A row that any member did not score is
    NaN: leaving the member out would change the rule from row to row.

    >>> members = np.array([[1.0, 0.0], [2.0, 0.0], [6.0, np.nan]])
    >>> {rule: combined(members, rule).round(4).tolist() for rule in ("min", "mean", "median", "mean_minus_std")}
    {'min': [1.0, nan], 'mean': [3.0, nan], 'median': [2.0, nan], 'mean_minus_std': [0.8398, nan]}
    """
    if rule not in get_args(Rule):
        raise ValueError(f"rule must be one of {', '.join(get_args(Rule))}, not {rule!r}")
    if not len(members):
        raise ValueError("an ensemble needs at least one member")
    whole = np.isfinite(members).all(axis=0)
    scores = np.where(whole, members, 0.0)
    if rule == "min":
        reward = scores.min(axis=0)
    elif rule == "median":
        reward = np.median(scores, axis=0)
    else:
        reward = scores.mean(axis=0)
        if rule == "mean_minus_std":
            reward = reward - penalty * scores.std(axis=0)
        elif rule == "mean_minus_variance":
            reward = reward - penalty * scores.var(axis=0)
    return np.where(whole, reward, np.nan)
