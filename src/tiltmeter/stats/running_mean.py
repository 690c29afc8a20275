"""The average of a mean that changes over a run: intervals over windows of the run that hold at any time, together.

A policy changes at every step, so there is no one mean that could be estimated. Covered is what the values of a
window are drawn from: m_i is the mean of value i given everything before its step, and m the average of the m_i in
the window so far. Values lie in [0, 1]; those of one step are independent given the past. Which of them are counted,
how many, and where a window begins may depend on everything seen before, but not on the values themselves.

Proof, for the low end; 1 - x gives the high one. For λ > 0 both of these are nonnegative supermartingales from 1:

    A_λ = exp(λ Σ x_i) / Π (1 - m_i + m_i e^λ)           because e^(λx) <= 1 - x + x e^λ on [0, 1];
    B_λ = exp(λ Σ (x_i - m_i) - ψ(λ) Σ (x_i - g_i)²)     ψ(λ) = -log(1 - λ) - λ, λ < 1, g_i known before the step,

B by Fan, Grama & Liu 2015 (Howard, Ramdas, McAuliffe & Sekhon 2021, theorem 4). The logarithm is concave, so the
product in A is at most (1 - m + m e^λ)^n: with the average m in place of the m_i, A is smaller than it was and B is
what it was. The mean of all of them over fixed λ, as a function of the true average, is therefore below a
supermartingale from 1. It ever reaches 1/α with chance at most α (Ville), and it falls in m: the m at which it stands
at 1/α is the low end. A is sharp while values are few or near 0 and 1, B where values scatter less than a coin.

Where a value is itself the mean of k independent draws in [0, 1], as the gold of a prompt is of its answers, A counts
the draws: E exp(λ k x) <= (1 - m_i + m_i e^λ)^k, also if there were more than k. Given their prompts, that is.

Window j has the share (j + 1)^-1.5 / 2.613 of α, half of it for each end. These sum to at most 1, so with chance 1 -
α every interval of every window holds at every time; a best of several windows, or a difference of two, needs no
further correction. (A betting interval for one fixed mean, `confidence_sequence`, does not cover an average that
moves.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

TILTS = 0.04 * 2.0 ** np.arange(7)  # λ of A, on the scale of log-odds
BETS = np.array([0.03, 0.06, 0.12, 0.24, 0.45, 0.7])  # λ of B
ALL_SHARES = 2.613  # Σ (j + 1)^-1.5 over all windows is below this
HALVINGS = 20  # of the range in which an end is looked for: one in a million

STEPS = 20  # after so many a further window begins
LEAST = 60  # values, before which it does not
MEAN = 8  # the column of an ended window's mean, after its own numbers
WIDTH = MEAN + 3  # and before the ends of its interval
FULL = 500  # values, from which it does after fewer steps


class MeanInterval(NamedTuple):
    """The mean of the values so far, and the ends of its interval; (nan, 0, 1) of none."""

    mean: float
    low: float
    high: float


def low_end(count: Floats, total: Floats, scatter: Floats, draws: Floats, alpha: Floats) -> Floats:
    """The low end of the average, of many windows at once: number, sum and scatter Σ (x_i - g_i)² of their values, and
    of how many draws each is the mean.

    >>> low_end(*(np.array([x]) for x in (100.0, 80.0, 17.0, 1.0, 0.005))).round(2).tolist()
    [0.62]
    """
    parts = (np.asarray(part, np.float64)[..., None] for part in (count, total, scatter, draws, alpha))
    count, total, scatter, draws, alpha = parts
    threshold = np.log(len(TILTS) + len(BETS)) - np.log(alpha[..., 0])
    fixed = np.concatenate([TILTS * draws * total, BETS * total + (np.log1p(-BETS) + BETS) * scatter], axis=-1)
    low, high = np.zeros(total.shape[:-1]), np.ones(total.shape[:-1])
    rises, draws = np.expm1(TILTS), count * draws
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        m = middle[..., None]
        logs = fixed - np.concatenate([draws * np.log1p(m * rises), count * m * BETS], axis=-1)
        excluded = np.logaddexp.reduce(logs, axis=-1) >= threshold
        low, high = np.where(excluded, middle, low), np.where(excluded, high, middle)
    return low  # an excluded value or 0: rounding widens


@dataclass
class MeanWindow:
    """Values of some consecutive steps: how many, their sum and scatter, and the share of α that is theirs."""

    share: float
    first: int  # step
    last: int
    count: float = 0.0
    total: float = 0.0
    scatter: float = 0.0
    draws: float = np.inf  # behind each value, at least
    unknown: float = 0.0  # values that were counted as 1 and could be anything

    def interval(self, alpha: float) -> MeanInterval:
        """The average so far and its ends, at this window's share of α; (nan, 0, 1) of nothing."""
        if not self.count:
            return MeanInterval(np.nan, 0.0, 1.0)
        count, total = np.array([self.count] * 2), np.array([self.total - self.unknown, self.count - self.total])
        scatter = np.array([self.scatter + self.unknown, self.scatter])  # a changed value adds at most 1
        draws, part = np.full(2, self.draws), np.full(2, 0.5 * alpha * self.share)
        ends = low_end(count, np.maximum(total, 0.0), scatter, draws, part)
        return MeanInterval(self.total / self.count, float(ends[0]), 1.0 - float(ends[1]))


class EndedWindows:
    """Windows that have ended and their intervals, as rows of numbers: one comes every twenty steps."""

    def __init__(self) -> None:
        self._rows: Floats = np.empty((0, WIDTH))
        self._size = 0

    def add(self, window: MeanWindow, interval: MeanInterval) -> None:
        if self._size == len(self._rows):
            grown = np.empty((max(16, self._size + self._size // 2), WIDTH))
            grown[: self._size] = self._rows[: self._size]
            self._rows = grown
        self._rows[self._size] = (*astuple(window), *interval)
        self._size += 1

    def leave_out(self, step: float) -> None:
        """Forget those that reach this step."""
        rows = self._rows[: self._size]
        self._rows = rows[rows[:, 2] < step]
        self._size = len(self._rows)

    @property
    def best(self) -> tuple[MeanWindow, MeanInterval] | None:
        """The first of those with the highest mean; None if there is none."""
        rows = self._rows[: self._size]
        return _ended(rows[int(np.argmax(rows[:, MEAN]))]) if self._size else None

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[tuple[MeanWindow, MeanInterval]]:
        return map(_ended, self._rows[: self._size])


def _ended(row: Floats) -> tuple[MeanWindow, MeanInterval]:
    share, first, last, *rest = row[:MEAN].tolist()
    return MeanWindow(share, int(first), int(last), *rest), MeanInterval(*row[MEAN:].tolist())


@dataclass
class MeanWindows:
    """The windows of a run. One begins every 20 steps that bring 60 values, or earlier with 500; each lasts until the
    second after it begins, so the current one reaches back over at least one such stretch, where there is one.

    Promise: over all windows and all times together, the chance that any interval misses the average it is about is at
    most `alpha`; see the proof above.

    >>> windows = MeanWindows(alpha=0.01)
    >>> for step in range(100):
    ...     began = windows.place(step, 0.75 if step < 50 else 0.25, 8, 1.5)
    >>> [round(end, 2) for end in windows.current.interval(0.01)], windows.current.first
    ([0.25, 0.15, 0.37], 60)
    """

    alpha: float
    follows: bool = False  # a window begins when the owner says so
    windows: list[MeanWindow] = field(default_factory=list)  # those that follow each other since the last restart
    beginning: MeanWindow | None = None  # the first of them, as it stood when the next began
    earlier: EndedWindows = field(default_factory=lambda: EndedWindows())
    _opened: int = 0

    def place(
        self, step: int, mean: float, count: float, spread: float, *, draws: float = 1.0, unknown: float = 0.0
    ) -> bool:
        """The values of a step: their mean, number, and sum of squared deviations from it. Whether a window began."""
        if not (0.0 <= mean <= 1.0 and count > 0.0 and spread >= 0.0):
            raise ValueError("an interval that holds at any time needs values from 0 to 1")
        begins = self._is_due(step)
        if begins:
            self.open(step)
        guess = self.current.total / self.current.count if self.current.count else 0.5
        for window in self.windows[-2:]:
            window.last = max(window.last, step)
            window.count += count
            window.total += count * mean
            window.scatter += spread + count * (mean - guess) ** 2
            window.draws = min(window.draws, draws)
            window.unknown += unknown
        return begins

    def _is_due(self, step: int) -> bool:
        newest = self.windows[-1] if self.windows else None
        if newest is None or self.follows:
            return newest is None
        return newest.count >= LEAST and (newest.count >= FULL or step - newest.first >= STEPS)

    def open(self, step: int) -> None:
        """A further window begins before this step's values are placed."""
        if len(self.windows) == 1 and self.beginning is None:
            self.beginning = replace(self.windows[0])
        if len(self.windows) >= 2:
            ended = self.windows.pop(0)
            self.earlier.add(ended, ended.interval(self.alpha))
        self.windows.append(MeanWindow((self._opened + 1.0) ** -1.5 / ALL_SHARES, step, step))
        self._opened += 1

    def restart(self, step: float) -> None:
        """What follows is another mean: the run goes on from this step, and what was seen of later ones is left out of
        its past."""
        for one in self.windows:
            self.earlier.add(one, one.interval(self.alpha))
        self.earlier.leave_out(step)
        self.windows = []
        if self.beginning is not None and self.beginning.last >= step:
            self.beginning = None

    @property
    def current(self) -> MeanWindow:
        return self.windows[-2] if len(self.windows) > 1 else self.windows[-1]
