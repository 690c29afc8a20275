"""`pareto`: the Pareto front of a sweep, with its knee and hypervolume."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ParetoFront:
    """The Pareto front over a sweep: the points that no other point dominates.

    >>> found = pareto([[1.0, 0.0], [0.8, 0.8], [0.0, 1.0], [0.5, 0.5]], reference=[0.0, 0.0])
    >>> found.front, found.dominated, found.knee, round(found.hypervolume, 2)
    ((0, 1, 2), {3: 1}, 1, 0.64)
    """

    front: tuple[int, ...]  # rows, by the first outcome, largest first
    dominated: dict[int, int]  # row: a row of the front that is at least as good in all outcomes and better in one
    knee: int | None  # row of the front beyond which both ends are expensive; None where the front has no bend
    hypervolume: float | None  # of two outcomes, above the reference point


def pareto(outcomes: ArrayLike, *, reference: ArrayLike | None = None) -> ParetoFront:
    """The front of points x outcomes, in which larger is better; turn the sign of what should be small.

    A dominated setting is a mistake whatever you prefer; on the front, the choice is a trade-off. Outcomes should be
    measured on held-out answers: the reward that was trained on flatters itself. With noise some points are on the
    front by luck: repeat seeds and give means.

    The knee (two outcomes) is the point farthest above the straight line between the front's ends, each outcome scaled
    to its range on the front. The hypervolume (two outcomes) is the area that the front dominates above `reference`,
    by default the worst value of each outcome: compare sweeps only with the same reference. A point with an outcome
    that is missing is neither on the front nor behind it. Of equal points all are on it.

    >>> found = pareto([[1.0, 0.0], [0.8, 0.8], [0.5, 0.5], [0.0, 1.0]])
    >>> found.front, found.knee, found.dominated
    ((0, 1, 3), 1, {2: 1})
    """
    points = np.asarray(outcomes, np.float64)
    if points.ndim != 2 or points.shape[1] < 1:
        raise ValueError("outcomes must be a table: one row per point of the sweep, one column per outcome")
    finite = np.flatnonzero(np.isfinite(points).all(axis=1))
    dominated: dict[int, int] = {}
    front: list[int] = []
    # By the first outcome, then the next: whatever dominates a point comes before it.
    for row in finite[np.lexsort(-points[finite].T[::-1])].tolist():
        over = [other for other in front if _beats(points[other], points[row])]
        if over:
            dominated[row] = over[0]
        else:
            front.append(row)
    if points.shape[1] != 2 or not front:
        return ParetoFront(tuple(front), dominated, None, None)
    best = points[front]
    floor = points[finite].min(axis=0) if reference is None else np.asarray(reference, np.float64)
    return ParetoFront(tuple(front), dominated, _knee(front, best), _area(best, floor))


def _beats(one: Floats, other: Floats) -> bool:
    return bool((one >= other).all() and (one > other).any())


def _knee(front: list[int], best: Floats) -> int | None:
    size = best.max(axis=0) - best.min(axis=0)
    if len(front) < 3 or not size.all():
        return None
    # The scaled ends are (1, 0) and (0, 1); above the line between them the sum exceeds 1.
    above = ((best - best.min(axis=0)) / size).sum(axis=1) - 1.0
    top = int(np.argmax(above))
    return front[top] if above[top] > 1e-12 else None


def _area(best: Floats, floor: Floats) -> float:
    """Σ width x height of the strips from the largest first outcome to the smallest."""
    above = best[(best > floor).all(axis=1)]
    area, height = 0.0, float(floor[1])
    for first, second in above.tolist():
        area += (first - floor[0]) * max(second - height, 0.0)
        height = max(height, second)
    return float(area)
