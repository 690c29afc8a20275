"""Samples that were scored and checked: does the score rank them, and what does picking the best of n by it gain?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.probe.effects import ALPHA, Interval, over_prompts
from tiltmeter.probe.pairs import Item
from tiltmeter.rows import need_columns, number, read_rows
from tiltmeter.stats.agreement import pair_agreement
from tiltmeter.stats.tails import Tail, prompt_tail
from tiltmeter.stats.tilting import best_of_n_mean

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TAIL = 100  # samples, from which a tail may be judged


@dataclass(frozen=True)
class Samples:
    """Scored samples in groups of one prompt, and how right each is from 0 to 1 (NaN: not known)."""

    groups: tuple[str, ...]
    score: Floats
    gold: Floats
    starts: Ints

    @classmethod
    def of(cls, group: Sequence[Any], score: Sequence[Any], gold: Sequence[Any] | None = None) -> Samples:
        """Rows in any order.

        >>> Samples.of(["a", "b", "a"], [1, 2, 3], [True, False, None]).score.tolist()
        [1.0, 3.0, 2.0]
        """
        names = [str(each) for each in group]
        order = sorted(range(len(names)), key=lambda at: names[at])
        kept = [names[at] for at in order]
        starts = [at for at in range(len(kept)) if at == 0 or kept[at] != kept[at - 1]]
        worth = gold if gold is not None else [None] * len(names)
        return cls(
            tuple(kept[at] for at in starts),
            np.array([number(score[at]) for at in order], np.float64),
            np.array([number(worth[at]) for at in order], np.float64),
            np.array([*starts, len(kept)], np.int64),
        )


@dataclass(frozen=True)
class Point:
    """Mean gold when the best of n samples is taken by the score, by an oracle, or at random."""

    n: int
    chosen: Interval
    oracle: Interval
    random: Interval
    groups: int


@dataclass(frozen=True)
class Ranking:
    """What scored samples say about a score.

    `agreement` is the share of pairs inside a group that the score puts in gold's order (the area under the ROC curve
    for right or wrong), mean over groups that have both. `curve` is the best-of-n curve up to the smallest group size
    that most groups reach. `peak` is the n at which gold by the score is highest, and `fall` the loss from there to the
    largest n, paired by prompt: its lower end above 0 is over-optimisation beyond doubt.
    """

    samples: int
    groups: int
    mixed: int  # groups with right and wrong samples: only these can tell
    agreement: Interval
    curve: tuple[Point, ...]
    peak: int
    fall: Interval
    tail: Tail | None

    @property
    def sentence(self) -> str:
        if not self.curve:
            return "no group has a score and a gold label for its samples"
        last = self.curve[-1]
        gain = last.chosen.mean - last.random.mean
        room = last.oracle.mean - last.random.mean
        told = f"best of {last.n} by the score gains {gain:+.3f} of the {room:.3f} that an oracle would gain"
        if self.fall.low > 0.0:
            return f"{told}; gold peaks at n = {self.peak} and falls beyond doubt"
        return told


def read_samples(path: str | Path, group: str, score: str, gold: str) -> Samples:
    """Scored samples from a file, by the names of its columns."""
    rows = read_rows(path)
    need_columns(path, rows, group, score)
    return Samples.of(
        [row.get(group) for row in rows], [row.get(score) for row in rows], [row.get(gold) for row in rows]
    )


def ranking(samples: Samples) -> Ranking:
    """Agreement, best-of-n curve and tail of scored samples."""
    items = [Item(name, "") for name in samples.groups]
    agree = pair_agreement(samples.gold, samples.score, samples.starts)
    usable = []
    for at, item in enumerate(items):
        rows = slice(samples.starts[at], samples.starts[at + 1])
        known = np.isfinite(samples.score[rows]) & np.isfinite(samples.gold[rows])
        if known.sum() > 0:
            usable.append((item, samples.score[rows][known], samples.gold[rows][known]))
    sizes = sorted(len(score) for _, score, _ in usable)
    top = sizes[len(sizes) // 10] if sizes else 0  # nine in ten groups are that large or larger
    used = [each for each in usable if len(each[1]) >= top]
    curve = tuple(_point(used, n) for n in _steps(top))
    peak = max(curve, key=lambda point: point.chosen.mean).n if curve else 0
    fall = Interval(math.nan, math.nan, math.nan, 0)
    if curve:
        high, last = (np.array([best_of_n_mean(s, g, n) for _, s, g in used]) for n in (peak, curve[-1].n))
        fall = over_prompts([item for item, _, _ in used], high - last, 1.0 - ALPHA)
    finite = int(np.isfinite(samples.score).sum())
    return Ranking(
        finite,
        len(items),
        int(np.isfinite(agree).sum()),
        _share(items, agree),
        curve,
        peak,
        fall,
        prompt_tail(samples.score, samples.starts) if finite >= TAIL else None,
    )


def _point(used: Sequence[tuple[Item, Floats, Floats]], n: int) -> Point:
    items = [item for item, _, _ in used]
    by_score = np.array([best_of_n_mean(score, gold, n) for _, score, gold in used])
    by_gold = np.array([best_of_n_mean(gold, gold, n) for _, _, gold in used])
    plain = np.array([float(gold.mean()) for _, _, gold in used])
    chosen, oracle, random = (_share(items, values) for values in (by_score, by_gold, plain))
    return Point(n, chosen, oracle, random, len(used))


def _share(items: Sequence[Item], values: Floats) -> Interval:
    """Over prompts; values from 0 to 1 have an interval that stays there."""
    found = over_prompts(items, values, 1.0 - ALPHA)
    inside = np.nanmin(values, initial=0.0) >= 0.0 and np.nanmax(values, initial=0.0) <= 1.0
    return found._replace(low=max(found.low, 0.0), high=min(found.high, 1.0)) if inside else found


def _steps(top: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ... up to the largest."""
    wanted = {1, *(round(2**power) for power in range(1, 12)), *(3 * 2**power for power in range(11)), top}
    return sorted(n for n in wanted if 1 <= n <= top)
