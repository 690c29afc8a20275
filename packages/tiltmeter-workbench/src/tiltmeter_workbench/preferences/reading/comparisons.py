"""Preference comparisons in memory: prompts, two answers each, and votes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Comparisons:
    """Two answers to each prompt, and who preferred which.

    A vote is 1.0 for the first answer, 0.0 for the second and 0.5 for a tie; NaN is no vote. A file of chosen and
    rejected has one rater who always chose the first, and says nothing about the order in which answers were shown:
    `order_known` is then False, and nothing may be read from who stands first.

    >>> pair = Comparisons(("2 + 2?",), ("4",), ("5",), np.array([[1.0, 1.0, 0.0]]), ("ann", "bob", "eve"))
    >>> pair.share.round(2).tolist(), pair.winner.tolist()
    ([0.67], [1.0])
    """

    prompts: Sequence[str]
    first: Sequence[str]
    second: Sequence[str]
    votes: Floats  # items x raters
    raters: Sequence[str] = ("label",)
    swapped: Floats | None = None  # votes on the same answers when the second one was shown first
    order_known: bool = False  # whether `first` was the answer shown first
    quality: Floats | None = None  # items x 2: somebody's rating of each answer by itself
    splits: Sequence[str] = ()  # by item; empty where there is one
    rows: Sequence[int] = ()  # of the file, from 1; empty: in order

    def __len__(self) -> int:
        return len(self.prompts)

    @cached_property
    def share(self) -> Floats:
        """Per item the share of votes for the first answer, ties half; NaN without votes."""
        finite = np.isfinite(self.votes)
        count = finite.sum(axis=1)
        total = np.where(finite, self.votes, 0.0).sum(axis=1)
        return np.asarray(np.divide(total, count, out=np.full(len(count), np.nan), where=count > 0), np.float64)

    @cached_property
    def winner(self) -> Floats:
        """Per item 1.0 where more votes are for the first answer than for the second, 0.0 fewer, 0.5 even, NaN none."""
        return np.where(np.isfinite(self.share), 0.5 + 0.5 * np.sign(np.nan_to_num(self.share) - 0.5), np.nan)

    def row(self, item: int) -> int:
        return self.rows[item] if len(self.rows) else item + 1

    def at(self, items: NDArray[np.int64] | Sequence[int]) -> Comparisons:
        """Some of the items, in this order."""
        where = np.asarray(items, np.int64)
        indices = where.tolist()
        return replace(
            self,
            prompts=[self.prompts[i] for i in indices],
            first=[self.first[i] for i in indices],
            second=[self.second[i] for i in indices],
            votes=self.votes[where],
            swapped=None if self.swapped is None else self.swapped[where],
            quality=None if self.quality is None else self.quality[where],
            splits=[self.splits[i] for i in indices] if len(self.splits) else (),
            rows=[self.row(i) for i in indices],
        )
