"""Logistic regression: what moves the odds of winning, with errors that treat the prompt as the unit drawn.

For comparisons, rows are differences (first answer minus second), the label is whether the first won, and there is no
intercept unless the order of showing is known. Such a fit is the Bradley-Terry model with strengths linear in the
features; turning a comparison round negates its row and its label, and changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SINGULAR = 1e-10  # smallest eigenvalue of the columns' correlation matrix at which they can still be told apart
SURE = 1e-6  # of the information at even odds: where less is left in some direction, labels are separated
PRIOR = 1.0  # ridge that is put in where the likelihood has no maximum: each coefficient, so scaled, about N(0, 1)
STEPS = 100


class Logistic(NamedTuple):
    """Coefficients in the columns' own units, their covariance by the Hessian and by clusters, and what was done.

    `separated`: some direction tells winners from losers without a mistake, so the likelihood has no maximum, and the
    coefficients rest on a ridge. Without clusters every row is one. NaN where columns never vary or vary together.
    """

    coefficients: Floats
    covariance: Floats
    robust: Floats
    likelihood: float  # log, without the ridge's part
    separated: bool
    clusters: int

    @property
    def stderr(self) -> Floats:
        """By clusters."""
        return np.sqrt(np.diag(self.robust))


def fit_logistic(x: Floats, y: Floats, *, clusters: Ints | None = None, ridge: float = 0.0) -> Logistic:
    """Newton's method on Σ y log p + (1 - y) log(1 - p) - ridge/2 Σ (b s)², p = sigmoid(x b), s the columns' roots of
    mean squares: the ridge does not depend on units. An intercept is a column of ones.

    The robust covariance is A^-1 (Σ_g e_g e_g') A^-1 m / (m - 1), with A the Hessian, e_g the sum of x (y - p) over
    cluster g of m (Liang & Zeger 1986; the factor as in Cameron & Miller 2015).

    >>> x = np.array([1.0, 1.0, 1.0, 1.0, -1.0, -1.0])[:, None]
    >>> fit = fit_logistic(x, np.array([1.0, 1.0, 1.0, 0.0, 0.0, 1.0]))  # 4 of 6: ln 2
    >>> fit.coefficients.round(4).tolist(), fit.separated
    ([0.6931], False)
    >>> fit_logistic(x, (x[:, 0] > 0).astype(float)).separated
    True
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if x.ndim != 2 or y.shape != (len(x),) or not np.isfinite(x).all() or not ((y >= 0.0) & (y <= 1.0)).all():
        raise ValueError("a logistic regression needs a finite table with one label from 0 to 1 for each row")
    names = np.arange(len(x)) if clusters is None else np.unique(clusters, return_inverse=True)[1]
    groups, width = (int(names.max()) + 1 if len(names) else 0), x.shape[1]
    scale = np.sqrt(np.square(x).mean(axis=0)) if len(x) else np.zeros(width)
    if not _distinct(x, scale):
        empty = np.full((width, width), np.nan)
        return Logistic(np.full(width, np.nan), empty, empty, np.nan, False, groups)
    z = x / scale
    b, converged = _newton(z, y, ridge)
    separated = not converged
    if separated:
        ridge = max(ridge, PRIOR)
        b, _ = _newton(z, y, ridge)
    p = sigmoid(z @ b)
    inverse = np.linalg.inv((z * (p * (1.0 - p))[:, None]).T @ z + ridge * np.eye(width))
    scores = np.zeros((groups, width))
    np.add.at(scores, names, z * (y - p)[:, None])
    factor = groups / (groups - 1.0) if groups > 1 else np.nan
    back = np.outer(scale, scale)
    robust = inverse @ (scores.T @ scores) @ inverse * factor
    return Logistic(b / scale, inverse / back, robust / back, _likelihood(z @ b, y), separated, groups)


def out_of_fold(x: Floats, y: Floats, clusters: Ints, *, folds: int, ridge: float, seed: int) -> Floats:
    """The chance of winning of each row, from a fit to the other folds; a cluster is never on both sides.

    >>> x = np.linspace(-2.0, 2.0, 40)[:, None]
    >>> guess = out_of_fold(x, (x[:, 0] > 0).astype(float), np.arange(40), folds=5, ridge=1.0, seed=0)
    >>> bool(((guess > 0.5) == (x[:, 0] > 0)).all())
    True
    """
    names = np.unique(clusters, return_inverse=True)[1]
    groups = int(names.max()) + 1 if len(names) else 0
    if groups < 2:
        raise ValueError("with one prompt there is nothing to hold out; give labels of two prompts or more")
    fold = np.random.default_rng(seed).permutation(groups)[names] % min(folds, groups)
    guesses = np.full(len(y), np.nan)
    for each in np.unique(fold):
        rest = fold != each
        scale = np.sqrt(np.square(x[rest]).mean(axis=0))
        varies = scale > 0.0
        b = _newton(x[np.ix_(rest, varies)] / scale[varies], y[rest], ridge)[0]
        guesses[~rest] = sigmoid(x[np.ix_(~rest, varies)] / scale[varies] @ b)
    return guesses


def sigmoid(logit: Floats) -> Floats:
    """Sigmoid, without overflow.

    >>> sigmoid(np.array([-1000.0, 0.0, 1000.0])).tolist()
    [0.0, 0.5, 1.0]
    """
    small = np.exp(-np.abs(logit))
    return np.asarray(np.where(logit >= 0.0, 1.0 / (1.0 + small), small / (1.0 + small)), np.float64)


def _distinct(x: Floats, scale: Floats) -> bool:
    if not len(x) or not x.shape[1] or not (scale > 0.0).all():
        return False
    return bool(np.linalg.eigvalsh((x / scale).T @ (x / scale) / len(x))[0] > SINGULAR)


def _newton(z: Floats, y: Floats, ridge: float) -> tuple[Floats, bool]:
    """Coefficients of scaled columns, and whether a maximum was reached."""
    b = np.zeros(z.shape[1])
    value = _likelihood(z @ b, y)
    even = np.linalg.cholesky(z.T @ z / 4.0) if not ridge else None
    for _ in range(STEPS):
        p = sigmoid(z @ b)
        slope = z.T @ (y - p) - ridge * b
        hessian = (z * (p * (1.0 - p))[:, None]).T @ z + ridge * np.eye(len(b))
        if even is not None:
            relative = np.linalg.solve(even, np.linalg.solve(even, hessian).T)
            if np.linalg.eigvalsh((relative + relative.T) / 2.0)[0] < SURE:
                return b, False
        step = np.linalg.lstsq(hessian, slope, rcond=1e-14)[0]
        size = 1.0
        while size > 1e-6 and (new := _penalised(z, y, b + size * step, ridge)) < value - 1e-12 * abs(value):
            size /= 2.0
        if size <= 1e-6:
            return b, True  # no step gains anything: as far as rounding allows, this is the top
        b, value = b + size * step, new
        if np.abs(step).max(initial=0.0) < 1e-9 * (1.0 + np.abs(b).max(initial=0.0)):
            return b, True
    return b, False


def _likelihood(logit: Floats, y: Floats) -> float:
    return float(-(y * np.logaddexp(0.0, -logit) + (1.0 - y) * np.logaddexp(0.0, logit)).sum())


def _penalised(z: Floats, y: Floats, b: Floats, ridge: float) -> float:
    return _likelihood(z @ b, y) - 0.5 * ridge * float(b @ b)
