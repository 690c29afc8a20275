"""Curves that rise, stay on a top, fall and stay there: all of a grid fitted to a mean by step, and how well each fits.

    level(t) = a + b min(t - tau + p, 0) + d min(t - tau, 0) - c F((t - tau) / w),    b, c, d >= 0

rises until the turn `tau`, from `p` steps before it more slowly or not at all, and falls over `w` steps, straight,
along an S or ever faster (`F`, 0 to 1). With (tau, p, w, F) given this is least squares with bounds, and since a rise
and a fall have no steps in common the products of all columns are few: thousands of curves are fitted as a few arrays.
Source: own; the family is that of bent lines, Muggeo 2003.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

TOPS = 12.0 * 1.4 ** np.arange(10)  # steps before the turn in which gold rises less or not at all
KINDS = (0.5, 0.25, 0.25)  # prior of a rise up to the turn, of a flat top, and of a top on which gold still rises
WIDTH, WIDTHS = 4.0, 1.5  # steps of the shortest fall, and by how much the next is longer
SHAPES = np.array([0.6, 0.25, 0.15])  # prior of a fall that is straight, along an S, ever faster
SHORT = 8.0  # steps: the shape of such a fall cannot be seen
WITHIN = 1.3  # of the labels' span: a longer fall looks as the longest
ACTIVE = np.array([[0, 0, 1], [1, 0, 1], [0, 1, 1], [1, 1, 1]], dtype=bool)  # which of b, d, c are not at their bound
OF_KIND = ((0, 2), (0, 1), (0, 1, 2, 3))  # and which of those each kind may have
BLOCK = 8  # residuals that are summed, where errors of neighbours resemble each other
BELIEF = 10.0  # blocks' worth of belief that they do not


class Means(NamedTuple):
    """A mean by step of so many labels, in the order of steps."""

    steps: Floats
    values: Floats
    counts: Floats

    def pool(self, edges: Floats) -> Means:
        """One row for what lies from each edge to the next, at the mean step of its labels."""
        place = np.maximum(np.searchsorted(edges, self.steps, side="right") - 1, 0)
        n = np.bincount(place, self.counts, len(edges))
        there = n > 0.0
        steps, values = (
            np.bincount(place, self.counts * one, len(edges))[there] / n[there] for one in (self.steps, self.values)
        )
        return Means(steps, values, n[there].astype(np.float64))


class BentLines(NamedTuple):
    """All curves of a grid that fall. `grid`: turn, top, width and shape of each; `active`: which of b, d, c it uses.

    `reduction`: by how much each reduces the weighted sum of squares around the mean; `never`: the best that does not
    fall. `residual`: what the best one leaves; `prior` as in `KINDS`, evenly over steps within.
    """

    means: Means
    grid: Floats
    active: Bools
    prior: Floats
    reduction: Floats
    never: float
    residual: float

    def refit(self, which: NDArray[np.int64], at: Floats) -> tuple[Floats, Floats]:
        """The given curves at some steps, and the variance of each there in units of a label's."""
        grid = self.grid[which]
        on = np.concatenate([np.ones((len(which), 1), bool), self.active[which]], 1)
        roots = np.sqrt(self.means.counts)
        x = columns(grid, self.means.steps) * roots[None, :, None]
        square, product = np.swapaxes(x, 1, 2) @ x, np.swapaxes(x, 1, 2) @ (self.means.values * roots)
        square += np.eye(4) * 1e-9 * square[:, :1, :1]
        both = on[:, :, None] & on[:, None, :]
        inverse = np.where(both, np.linalg.inv(np.where(both, square, np.eye(4))), 0.0)
        own = columns(grid, at)
        lines = np.einsum("kpi,kij,kj->kp", own, inverse, product, optimize=True)
        return lines, np.einsum("kpi,kpi->kp", own @ inverse, own)

    @property
    def likeness(self) -> float:
        """The variance of sums of neighbouring residuals over that of independent ones; at least 1."""
        line, _ = self.refit(np.array([int(np.argmax(self.reduction))]), self.means.steps)
        errors = (self.means.values - line[0]) * np.sqrt(self.means.counts)
        blocks = len(errors) // BLOCK
        sums = errors[: blocks * BLOCK].reshape(blocks, BLOCK).sum(1)
        one = float((errors * errors).mean())
        if blocks < 2 or one <= 0.0:
            return 1.0
        return max(1.0, (BELIEF + float((sums * sums).sum()) / (BLOCK * one)) / (BELIEF + blocks))


def fit_bent_lines(means: Means, turns: Floats, share: Floats) -> BentLines | None:
    """All curves that turn at one of these steps, of which each has this share of the prior; None: none of them falls.

    >>> steps = np.arange(100.0)
    >>> fall = Means(steps, np.interp(steps, [40, 60], [0.7, 0.3]), np.ones(100))
    >>> lines = fit_bent_lines(fall, steps[2:98], np.ones(96))
    >>> float(lines.grid[np.argmax(lines.reduction), 0]), bool(lines.residual < 1e-3)
    (40.0, True)
    """
    turn, width, shape = _falls(means.steps, turns)
    shares = share[turn] * np.where(width <= SHORT, 1.0, SHAPES[shape.astype(int)])
    one = _Products.of(means, turns, turn, width, shape)
    worth = np.stack(list(one.reductions()))
    best = worth.max(0)
    if not np.isfinite(best.max(initial=-np.inf)):
        return None
    parts = []
    for kind, (candidates, prior) in enumerate(zip(OF_KIND, KINDS, strict=True)):
        tops = slice(0, len(TOPS) if kind else 1)
        own = worth[list(candidates), :, tops]
        pick = own.argmax(0)
        top = np.broadcast_to(TOPS[tops] if kind else np.zeros(1), pick.shape)
        grid = np.stack(np.broadcast_arrays(turns[turn][:, None], top, width[:, None], shape[:, None]), 2)
        active = ACTIVE[list(candidates)][pick]
        each = np.broadcast_to((shares * prior / pick.shape[1])[:, None], pick.shape)
        parts.append((grid.reshape(-1, 4), active.reshape(-1, 3), each.ravel(), own.max(0).ravel()))
    grid, active, each, reduction = (np.concatenate(part) for part in zip(*parts, strict=True))
    falls = np.isfinite(reduction)
    n, y = means.counts, means.values - float(means.counts @ means.values / means.counts.sum())
    residual = max(float(n @ (y * y) - reduction.max()), 0.0)
    return BentLines(means, grid[falls], active[falls], each[falls], reduction[falls], one.never(), residual)


class _Products(NamedTuple):
    """Of a fall (f) and of rises that end `p` steps before it (e) and at it (d), with each other and with gold (y).

    All around their means. The fall's sign is turned, so that all coefficients are to be positive. A rise and a fall
    have no step in common: their product is that of their means.
    """

    ee: Floats
    dd: Floats
    ff: Floats
    ed: Floats
    ef: Floats
    df: Floats
    ey: Floats
    dy: Floats
    fy: Floats

    @classmethod
    def of(cls, means: Means, turns: Floats, turn: NDArray[np.int64], width: Floats, shape: Floats) -> _Products:
        at, n = means.steps, means.counts
        total = float(n.sum())
        y = n * (means.values - float(n @ means.values / total))
        fall = _fall((at[None] - turns[turn][:, None]) / width[:, None], shape[:, None])
        late = np.minimum(at[None] - turns[:, None], 0.0)
        early = np.minimum(at[None, None] - turns[:, None, None] + TOPS[None, :, None], 0.0)
        e, d, f, tiny = early @ n, late @ n, (fall @ n)[:, None], 1e-9 * total
        ed = np.einsum("ipb,ib->ip", early, late * n, optimize=True) - e * d[:, None] / total
        return cls(
            ((early * early) @ n - e * e / total + tiny)[turn],
            ((late * late) @ n - d * d / total + tiny)[turn, None],
            ((fall * fall) @ n)[:, None] - f * f / total + tiny,
            ed[turn], e[turn] * f / total, d[turn, None] * f / total,
            (early @ y)[turn], (late @ y)[turn, None], -(fall @ y)[:, None],
        )  # fmt: skip

    def reductions(self) -> Iterator[Floats]:
        """What each of `ACTIVE` explains where its coefficients are positive, by fall and top; else -inf."""
        fall = self.fy * self.fy / self.ff
        ee, dd = self.ee - self.ef * self.ef / self.ff, self.dd - self.df * self.df / self.ff
        ed = self.ed - self.ef * self.df / self.ff
        ey, dy = self.ey - self.ef * self.fy / self.ff, self.dy - self.df * self.fy / self.ff
        det = np.maximum(ee * dd - ed * ed, 1e-9 * ee * dd)
        zero = np.zeros_like(ey)
        both = (dd * ey - ed * dy) / det, (ee * dy - ed * ey) / det
        for early, late in ((zero, zero), (ey / ee, zero), (zero, dy / dd + zero), both):
            right = (early >= 0.0) & (late >= 0.0) & (self.fy - self.ef * early - self.df * late > 0.0)
            yield np.where(right, fall + early * ey + late * dy, -np.inf)

    def never(self) -> float:
        """The most that a rise explains without a fall, or with a top that is level."""
        rises = ((self.ey, self.ee), (self.dy, self.dd))
        return max(float(np.max(np.where(product > 0.0, product**2 / square, 0.0))) for product, square in rises)


def _falls(at: Floats, turns: Floats) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Which turn, width and shape: the shape of a short fall cannot be seen, nor the end of a long one."""
    span = float(at[-1] - at[0])
    widths = WIDTH * WIDTHS ** np.arange(1 + int(np.log(max(span / WIDTH, 1.0)) / np.log(WIDTHS)))
    turn, width, shape = (
        one.ravel() for one in np.meshgrid(np.arange(len(turns)), widths, np.arange(3.0), indexing="ij")
    )
    short = width <= SHORT
    usable = np.where(short, shape == 0.0, turns[turn] + width <= at[0] + WITHIN * span)
    return turn[usable], width[usable], shape[usable]


def columns(grid: Floats, at: Floats) -> Floats:
    """What a level is a sum of, by curve and step: 1, the two rises, the fall."""
    past = at[None] - grid[:, :1]
    fall = _fall(past / grid[:, 2:3], grid[:, 3:4])
    return np.stack([np.ones_like(past), np.minimum(past + grid[:, 1:2], 0.0), np.minimum(past, 0.0), -fall], 2)


def _fall(share: Floats, shape: Floats) -> Floats:
    """From 0 to 1 while `share` does: straight (0), along an S (1), ever faster (2)."""
    share = np.clip(share, 0.0, 1.0)
    square = share * share
    return np.where(shape == 0.0, share, np.where(shape == 1.0, square * (3.0 - 2.0 * share), square))
