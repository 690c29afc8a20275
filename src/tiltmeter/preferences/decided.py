"""Comparisons that somebody won, as every check of a bias looks at them: differences, labels and prompts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.preferences.finding import Example, State
from tiltmeter.preferences.pairs import Comparisons
from tiltmeter.stats.intervals import student
from tiltmeter.stats.logistic import Logistic
from tiltmeter.stats.words import Texts, Words

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Fixed before anything was measured.
MATTERS = 0.05  # beyond one half: what wins 55 times in 100 for no other reason is worth knowing
LOG_ODDS = math.log((0.5 + MATTERS) / (0.5 - MATTERS))  # the same in log-odds, 0.2
FEWEST = 30  # prompts with a decision; with fewer, no interval here can be trusted
EXAMPLES = 5


@dataclass(frozen=True)
class Decided:
    """The comparisons with a winner, ties left out and counted.

    Whatever predicts these labels without reading the answers, a reward model learns first. Rows are differences, first
    answer minus second; where nobody knows which was shown first there is no intercept, so that turning a comparison
    round changes nothing.

    >>> some = Comparisons(["q", "q"], ["a b", "a"], ["a", "b c"], np.array([[1.0], [0.5]]))
    >>> one = Decided.of(some)
    >>> one.won.tolist(), one.doublings.tolist(), one.tied
    ([1.0], [1.0], 1)
    """

    pairs: Comparisons  # of these only
    won: Floats  # 1.0: the first answer
    prompt: Ints  # number of the prompt
    tied: int
    unvoted: int

    @classmethod
    def of(cls, pairs: Comparisons) -> Decided:
        winner = pairs.winner
        items = np.flatnonzero((winner == 0.0) | (winner == 1.0))
        kept = pairs if len(items) == len(pairs) else pairs.at(items)
        number: dict[str, int] = {}
        # Comparisons whose prompts nobody knows are not thereby of one prompt.
        names = (text or f"\0{at}" for at, text in enumerate(kept.prompts))
        prompt = np.array([number.setdefault(name, len(number)) for name in names], np.int64)
        return cls(kept, winner[items], prompt, int((winner == 0.5).sum()), int((~np.isfinite(winner)).sum()))

    def __len__(self) -> int:
        return len(self.won)

    @cached_property
    def prompts(self) -> int:
        return int(self.prompt.max()) + 1 if len(self) else 0

    @cached_property
    def doublings(self) -> Floats:
        """How many times the first answer would have to be halved to have as many words as the second."""
        first, second = lengths(tuple(self.pairs.first)), lengths(tuple(self.pairs.second))
        return np.log2(np.maximum(first, 1) / np.maximum(second, 1))

    @cached_property
    def better(self) -> Floats | None:
        """How much better the first answer was rated; None unless all were."""
        quality = self.pairs.quality
        if quality is None or not np.isfinite(quality).all():
            return None
        return np.asarray(quality[:, 0] - quality[:, 1], np.float64)

    def table(self, *columns: Floats, length: bool = True, quality: bool = True) -> Floats:
        """Some columns, then what is held equal: length, quality where it is known, order where it is known."""
        held = [*columns]
        if length and self.doublings.any():
            held.append(self.doublings)
        if quality and self.better is not None and self.better.any():
            held.append(self.better)
        if self.pairs.order_known:
            held.append(np.ones(len(self)))
        return np.column_stack(held) if held else np.zeros((len(self), 0))

    @property
    def held(self) -> str:
        """What `table` holds equal, in words."""
        parts = ["length"] + ["rated quality"] * (self.better is not None) + ["order"] * self.pairs.order_known
        return ", ".join(parts[:-1]) + " and " * (len(parts) > 1) + parts[-1]

    @property
    def counts(self) -> dict[str, Any]:
        return {
            "decided": len(self),
            "prompts": self.prompts,
            "ties_left_out": self.tied,
            "without_votes": self.unvoted,
        }

    def example(self, item: int, why: str) -> Example:
        chosen, rejected = self.pairs.first[item], self.pairs.second[item]
        if not self.won[item]:
            chosen, rejected = rejected, chosen
        return Example(self.pairs.row(item), self.pairs.prompts[item], chosen, rejected, why)


@lru_cache(maxsize=4)  # every check asks for the same
def lengths(texts: tuple[str, ...]) -> Ints:
    """Words of each text."""
    return Words.of(Texts.of(texts)).lengths


def reach(fit: Logistic, column: int, alpha: float) -> tuple[float, float, float]:
    """A coefficient with its interval, by clusters."""
    estimate, error = float(fit.coefficients[column]), float(fit.stderr[column])
    wide = student(max(fit.clusters - 1, 1), 1.0 - alpha) * error
    return estimate, estimate - wide, estimate + wide


def judged(estimate: float, low: float, high: float, near: tuple[float, float], middle: float, matters: float) -> State:
    """Found: the interval leaves out `middle`, and the estimate is at least `matters` from it. Clear: the interval
    `near` (90 %: two one-sided tests at 5 %) stays closer than that.

    >>> judged(0.5, 0.1, 0.9, (0.2, 0.8), 0.0, 0.2), judged(0.0, -0.2, 0.2, (-0.1, 0.1), 0.0, 0.2)
    ('found', 'clear')
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return "cannot tell"
    if (low > middle or high < middle) and abs(estimate - middle) >= matters:
        return "found"
    return "clear" if max(middle - near[0], near[1] - middle) < matters else "cannot tell"


def too_few(decided: Decided, *, one_each: bool = False) -> str:
    """Why nothing can be said, or nothing. `one_each`: of every prompt one comparison is looked at.

    Errors by prompts hold while no prompt is much of the whole. As many prompts of equal size as give the same sum of
    squared sizes are asked for: one that has a fifth of all comparisons counts for 25.
    """
    if decided.prompts < FEWEST:
        return f"{decided.prompts} prompts have a decided comparison and {FEWEST} are needed."
    sizes = np.bincount(decided.prompt).astype(np.float64)
    if not one_each and np.square(sizes.sum()) < FEWEST * np.square(sizes).sum():
        most = f"{100.0 * sizes.max() / sizes.sum():.0f} %"
        return (
            f"few prompts have most of the comparisons (one has {most}), and speak for themselves; keep fewer of each."
        )
    return ""


def rounded(values: Sequence[float] | Floats, digits: int = 4) -> list[float | None]:
    """Ready for JSON: None where there is no number."""
    return [round(float(value), digits) if math.isfinite(value) else None for value in values]
