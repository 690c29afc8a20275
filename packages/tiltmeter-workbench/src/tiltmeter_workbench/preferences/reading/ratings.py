"""Ratings of items by several raters in any categories, for agreement and rater checks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.memo import shared
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.stats.dawid_skene import DawidSkeneFit, dawid_skene

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Ratings:
    """Items by raters, each cell the number of a category, NaN where somebody did not rate.

    How far people agree limits what a model can learn from them, and it is the same question for preferences (first,
    second, tie) as for any labels. It also covers files without the answers' texts.

    >>> seen = Ratings(np.array([[0.0, 0.0, 1.0], [1.0, 1.0, np.nan]]), ("yes", "no"), ("ann", "bob", "eve"))
    >>> seen.counts.tolist(), seen.winner.tolist()
    ([[2, 1], [0, 2]], [0.0, 1.0])
    """

    codes: Floats
    categories: Sequence[str]
    raters: Sequence[str]
    items: Sequence[str] = ()  # what each item is called; empty: by number
    tie: int | None = None  # the category that takes no side
    first: int | None = None  # the category that means "the one shown first", where the order is known

    @staticmethod
    def of(pairs: Comparisons) -> Ratings:
        """Votes as categories: second, tie and first; a vote in between is for the side it leans to."""
        return _ratings_of_pairs(pairs)

    @cached_property
    def counts(self) -> Ints:
        """How many raters put each item into each category."""
        item, rater = np.nonzero(np.isfinite(self.codes))
        k = len(self.categories)
        cell = item * k + self.codes[item, rater].astype(np.int64)
        return np.bincount(cell, minlength=len(self.codes) * k).reshape(len(self.codes), k).astype(np.int64)

    @cached_property
    def winner(self) -> Floats:
        """Per item the category with more ratings than any other; NaN where there is none."""
        if not len(self.categories):
            return np.full(len(self.codes), np.nan)
        top = self.counts.max(axis=1, initial=0)
        alone = (self.counts == top[:, None]).sum(axis=1) == 1
        return np.where(alone & (top > 0), self.counts.argmax(axis=1), np.nan)

    @cached_property
    def truth(self) -> DawidSkeneFit:
        """What items most likely are when raters weigh by how reliable they are, and how reliable they are."""
        return dawid_skene(self.codes)

    @property
    def several(self) -> NDArray[np.bool_]:
        """Items that at least two people rated."""
        return np.asarray(self.counts.sum(axis=1) > 1)


@shared()
def _ratings_of_pairs(pairs: Comparisons) -> Ratings:
    votes = pairs.votes
    codes = np.where(np.isfinite(votes), 1.0 + np.sign(np.nan_to_num(votes) - 0.5), np.nan)
    return Ratings(codes, ("second", "tie", "first"), pairs.raters, (), 1, 2 if pairs.order_known else None)
