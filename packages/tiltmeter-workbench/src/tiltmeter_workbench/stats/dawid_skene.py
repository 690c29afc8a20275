"""The Dawid-Skene model: the true answers and each rater's error rates, estimated together from their ratings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DawidSkeneFit:
    """The most likely answer to each item, and each rater's confusion matrix.

    A majority counts a careless rater as much as a careful one. Here a rater weighs by how far their answers go with
    the truth, and one who always answers the other way round is turned round instead of outvoted. With fewer than three
    raters of an item nothing but the prior tells who is right.

    >>> votes = np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 1.0, np.nan]])
    >>> found = dawid_skene(votes)
    >>> found.best.tolist(), bool(found.reliability[0] > 0.8 > 0.5 > found.reliability[2])
    ([1.0, 0.0, 1.0, 0.0, 1.0], True)
    """

    categories: Floats  # the answers that occur, in order
    posterior: Floats  # items x categories; NaN for an item without ratings
    confusion: Floats  # raters x truth x answer
    prior: Floats  # how common each answer is
    path: Floats  # what is maximised, by iteration: it never falls

    @property
    def best(self) -> Floats:
        """Per item the most likely answer; NaN without ratings."""
        rated = np.isfinite(self.posterior).all(axis=1) & (self.posterior.shape[1] > 0)
        answers = np.full(len(self.posterior), np.nan)
        if rated.any():
            answers[rated] = self.categories[self.posterior[rated].argmax(axis=1)]
        return answers

    @property
    def reliability(self) -> Floats:
        """Per rater the chance of giving the true answer, over answers as common as they are."""
        right = np.diagonal(self.confusion, axis1=1, axis2=2)
        return np.asarray(right @ self.prior, np.float64)


def dawid_skene(ratings: Floats, *, smoothing: float = 0.5, most: int = 100, tolerance: float = 1e-8) -> DawidSkeneFit:
    """Fit of Dawid and Skene (Applied Statistics 28, 1979) to items x raters, NaN where there is no rating.

    π_k ∏ C[r, k, answer] is the chance of an item's answers if it is k; expectation and maximisation in turn, from the
    shares of votes. Each row of a rater's table C begins with `smoothing` answers of each kind and as many right ones
    again, which keeps the answers' names in place and a rater with three votes from looking perfect or hopeless.
    Stops when an iteration adds less than `tolerance` per rating.
    """
    present = np.isfinite(ratings)
    item, rater = np.nonzero(present)
    categories, answer = np.unique(ratings[present], return_inverse=True)
    items, raters, k = len(ratings), ratings.shape[1], len(categories)
    if not k:
        blank = np.full((items, 0), np.nan)
        return DawidSkeneFit(categories, blank, np.zeros((raters, 0, 0)), np.zeros(0), np.zeros(0))
    cell = rater * k + answer
    pseudo_counts = smoothing * (np.ones((k, k)) + np.eye(k))
    counts = np.bincount(item * k + answer, minlength=items * k).reshape(items, k).astype(np.float64)
    rated = counts.sum(axis=1) > 0.0
    posterior = np.where(rated[:, None], counts, 1.0)
    posterior /= posterior.sum(axis=1, keepdims=True)
    path: list[float] = []
    while True:
        weighted = np.stack([np.bincount(cell, posterior[item, t], raters * k) for t in range(k)])
        table = weighted.reshape(k, raters, k).transpose(1, 0, 2) + pseudo_counts
        confusion = table / table.sum(axis=2, keepdims=True)
        share = posterior[rated].sum(axis=0) + smoothing
        prior = share / share.sum()
        log_confusion = np.log(confusion).transpose(1, 0, 2).reshape(k, raters * k)
        chance = np.log(prior) + np.stack([np.bincount(item, log_confusion[t, cell], items) for t in range(k)], axis=1)
        top = chance.max(axis=1, keepdims=True)
        total = top[:, 0] + np.log(np.exp(chance - top).sum(axis=1))
        posterior = np.exp(chance - total[:, None])
        path.append(
            float(total[rated].sum() + (pseudo_counts * np.log(confusion)).sum() + smoothing * np.log(prior).sum())
        )
        if len(path) >= most or (len(path) > 1 and path[-1] - path[-2] < tolerance * len(item)):
            break
    posterior[~rated] = np.nan
    return DawidSkeneFit(categories, posterior, confusion, prior, np.array(path))
