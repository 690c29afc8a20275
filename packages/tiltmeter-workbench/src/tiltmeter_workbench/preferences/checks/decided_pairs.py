"""Comparisons with a winner, as the bias checks use them: feature differences, labels, prompts and thresholds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.intervals import student_t_quantile
from tiltmeter.stats.word_hashes import Texts, Words
from tiltmeter_workbench.check_report.report import Example
from tiltmeter_workbench.preferences.finding import State, example_pair
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons
from tiltmeter_workbench.stats.logistic import Logistic

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Fixed before anything was measured.
MATTERS = 0.05  # beyond one half: what wins 55 times in 100 for no other reason is worth knowing
LOG_ODDS = math.log((0.5 + MATTERS) / (0.5 - MATTERS))  # the same in log-odds, 0.2
FEWEST = 30  # prompts with a decision; with fewer, no interval here can be trusted
EXAMPLES = 5


@dataclass(frozen=True)
class DecidedPairs:
    """The comparisons with a winner, ties left out and counted.

    Whatever predicts these labels without reading the answers, a reward model learns first. Rows are differences, first
    answer minus second; where nobody knows which was shown first there is no intercept, so that turning a comparison
    round changes nothing.

    >>> some = Comparisons(["q", "q"], ["a b", "a"], ["a", "b c"], np.array([[1.0], [0.5]]))
    >>> one = DecidedPairs.of(some)
    >>> one.won.tolist(), one.doublings.tolist(), one.ties
    ([1.0], [1.0], 1)
    """

    pairs: Comparisons  # of these only
    won: Floats  # 1.0: the first answer
    prompt: Ints  # number of the prompt
    ties: int
    without_votes: int

    @classmethod
    def of(cls, pairs: Comparisons) -> DecidedPairs:
        winner = pairs.winner
        items = np.flatnonzero((winner == 0.0) | (winner == 1.0))
        subset = pairs if len(items) == len(pairs) else pairs.at(items)
        number: dict[str, int] = {}
        # Comparisons whose prompts nobody knows are not thereby of one prompt.
        names = (text or f"\0{at}" for at, text in enumerate(subset.prompts))
        prompt = np.array([number.setdefault(name, len(number)) for name in names], np.int64)
        return cls(subset, winner[items], prompt, int((winner == 0.5).sum()), int((~np.isfinite(winner)).sum()))

    def __len__(self) -> int:
        return len(self.won)

    @cached_property
    def prompts(self) -> int:
        return int(self.prompt.max()) + 1 if len(self) else 0

    @cached_property
    def doublings(self) -> Floats:
        """How many times the first answer would have to be halved to have as many words as the second."""
        first, second = word_counts(tuple(self.pairs.first)), word_counts(tuple(self.pairs.second))
        return np.log2(np.maximum(first, 1) / np.maximum(second, 1))

    @cached_property
    def better(self) -> Floats | None:
        """How much better the first answer was rated; None unless all were."""
        quality = self.pairs.quality
        if quality is None or not np.isfinite(quality).all():
            return None
        return np.asarray(quality[:, 0] - quality[:, 1], np.float64)

    def table(self, *columns: Floats, length: bool = True, quality: bool = True) -> Floats:
        """The given columns, then the controls: length, and quality and order where they are known."""
        all_columns = [*columns]
        if length and self.doublings.any():
            all_columns.append(self.doublings)
        if quality and self.better is not None and self.better.any():
            all_columns.append(self.better)
        if self.pairs.order_known:
            all_columns.append(np.ones(len(self)))
        return np.column_stack(all_columns) if all_columns else np.zeros((len(self), 0))

    @property
    def held_equal(self) -> str:
        """The controls of `table`, in words."""
        parts = ["length"] + ["rated quality"] * (self.better is not None) + ["order"] * self.pairs.order_known
        return ", ".join(parts[:-1]) + " and " * (len(parts) > 1) + parts[-1]

    @property
    def counts(self) -> dict[str, Any]:
        return {
            "decided": len(self),
            "prompts": self.prompts,
            "ties_left_out": self.ties,
            "without_votes": self.without_votes,
        }

    def example(self, item: int, why: str) -> Example:
        chosen, rejected = self.pairs.first[item], self.pairs.second[item]
        if not self.won[item]:
            chosen, rejected = rejected, chosen
        return example_pair(self.pairs.row(item), self.pairs.prompts[item], chosen, rejected, why)


@lru_cache(maxsize=4)  # every check asks for the same
def word_counts(texts: tuple[str, ...]) -> Ints:
    """Words of each text."""
    return Words.of(Texts.of(texts)).lengths


def coefficient_interval(fit: Logistic, column: int, alpha: float) -> tuple[float, float, float]:
    """A coefficient with its interval, from cluster-robust errors."""
    estimate, error = float(fit.coefficients[column]), float(fit.stderr[column])
    wide = student_t_quantile(max(fit.clusters - 1, 1), 1.0 - alpha) * error
    return estimate, estimate - wide, estimate + wide


def interval_state(
    estimate: float, low: float, high: float, near: tuple[float, float], middle: float, matters: float
) -> State:
    """Found: the interval leaves out `middle`, and the estimate is at least `matters` from it. Clear: the interval
    `near` (90 %: two one-sided tests at 5 %) stays closer than that.

    >>> interval_state(0.5, 0.1, 0.9, (0.2, 0.8), 0.0, 0.2), interval_state(0.0, -0.2, 0.2, (-0.1, 0.1), 0.0, 0.2)
    ('found', 'clear')
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return "cannot tell"
    if (low > middle or high < middle) and abs(estimate - middle) >= matters:
        return "found"
    return "clear" if max(middle - near[0], near[1] - middle) < matters else "cannot tell"


def too_few(decided: DecidedPairs, *, one_each: bool = False) -> str:
    """The reason why there are too few prompts, or an empty text. `one_each`: one comparison per prompt is used.

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


def round_values(values: Sequence[float] | Floats, digits: int = 4) -> list[float | None]:
    """Ready for JSON: None where there is no number."""
    return [round(float(value), digits) if math.isfinite(value) else None for value in values]
