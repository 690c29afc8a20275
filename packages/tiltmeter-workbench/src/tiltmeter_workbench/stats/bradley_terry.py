"""The Bradley-Terry model: win probabilities from strengths, and strengths from wins."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def win_chance(a: ArrayLike, b: ArrayLike) -> Floats:
    """P(A beats B) = sigmoid(r_A - r_B) (Bradley & Terry 1952), without overflow for any difference.

    Only the difference counts: a constant added to both changes nothing, so rewards trained this way have no zero.

    >>> win_chance(2.0, 1.0).round(4).item(), win_chance(102.0, 101.0).round(4).item(), win_chance(0.0, 1e9).item()
    (0.7311, 0.7311, 0.0)
    """
    gap = np.asarray(a, np.float64) - np.asarray(b, np.float64)
    small = np.exp(-np.abs(gap))
    return np.asarray(np.where(gap >= 0.0, 1.0 / (1.0 + small), small / (1.0 + small)), np.float64)


class Strengths(NamedTuple):
    """Fitted strengths, mean 0 inside each part. Items of different `part`s never met, directly or through others:
    their strengths cannot be compared. `unbounded`: someone won every game against all the rest of its part, so that
    the likelihood has no maximum and only the ridge keeps the strengths finite."""

    strength: Floats
    part: Ints
    unbounded: bool


def fit_strengths(wins: Floats, ridge: float = 0.0) -> Strengths:
    """Strengths that make the win counts most likely; `wins[i, j]` is how often i beat j (a tie is half a win each).

    Newton's method on Σ wins_ij log sigmoid(s_i - s_j) - ridge/2 Σ s_i². Without a ridge a finite maximum exists only
    if, inside each part of the comparison graph, every item can be reached from every other by a chain of wins (Ford
    1957); otherwise this raises ValueError and names the items. With a ridge there is always an answer, and it says
    when the ridge alone decided.

    >>> fit = fit_strengths(np.array([[0.0, 3.0], [1.0, 0.0]]))
    >>> fit.strength.round(4).tolist(), fit.part.tolist(), fit.unbounded
    ([0.5493, -0.5493], [0, 0], False)
    """
    wins = np.array(wins, np.float64)
    n = len(wins)
    if wins.shape != (n, n) or not np.isfinite(wins).all() or (wins < 0.0).any() or ridge < 0.0:
        raise ValueError("wins must be a square table of counts from 0 on, and the ridge at least 0")
    np.fill_diagonal(wins, 0.0)
    games = wins + wins.T
    met, beaten = _reachable(games > 0.0), _reachable(wins > 0.0)
    part = np.unique(met.argmax(axis=1), return_inverse=True)[1].astype(np.int64) if n else np.zeros(0, np.int64)
    one_way = met & ~beaten
    if one_way.any() and not ridge:
        worst = np.flatnonzero(one_way.any(axis=1))
        raise ValueError(
            f"no finite strengths: items {worst[:10].tolist()} have no chain of wins over some of those they were "
            "compared with; collect more comparisons or set a ridge"
        )
    strength = np.zeros(n)
    value = _likelihood(strength, wins, ridge)
    for _ in range(200):
        chance = win_chance(strength[:, None], strength[None, :])
        slope = (wins - games * chance).sum(axis=1) - ridge * strength
        curve = games * chance * (1.0 - chance)
        hessian = np.diag(curve.sum(axis=1) + ridge) - curve
        step = np.linalg.lstsq(hessian, slope, rcond=1e-12)[0]
        size = 1.0
        while size > 1e-9 and _likelihood(strength + size * step, wins, ridge) < value:
            size /= 2.0
        if size <= 1e-9:
            break
        strength = strength + size * step
        value = _likelihood(strength, wins, ridge)
        if np.abs(size * step).max(initial=0.0) < 1e-12 * (1.0 + np.abs(strength).max(initial=0.0)):
            break
    for each in np.unique(part):
        strength[part == each] -= strength[part == each].mean()
    return Strengths(strength, part, bool(one_way.any()))


def _likelihood(strength: Floats, wins: Floats, ridge: float) -> float:
    gap = strength[:, None] - strength[None, :]
    return float(-(wins * np.logaddexp(0.0, -gap)).sum() - 0.5 * ridge * np.square(strength).sum())


def _reachable(linked: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which items can be reached from which along links, themselves included."""
    reach = linked | np.eye(len(linked), dtype=bool)
    while True:
        further = (reach.astype(np.float32) @ reach.astype(np.float32)) > 0.0
        if (further == reach).all():
            return reach
        reach = further
