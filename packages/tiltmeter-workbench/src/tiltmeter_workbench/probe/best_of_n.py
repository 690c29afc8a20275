"""Rank agreement and the best-of-n curve of a score on samples with gold labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.agreement import pair_agreement
from tiltmeter.stats.tails import UpperTail, prompt_tail
from tiltmeter_workbench.common.table_files import need_columns, parse_number, read_rows
from tiltmeter_workbench.probe.attack_effects import ALPHA, PromptInterval, mean_over_prompts
from tiltmeter_workbench.probe.pairs import ProbeItem
from tiltmeter_workbench.stats.tilting import best_of_n_mean

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
        sorted_names = [names[at] for at in order]
        starts = [at for at in range(len(sorted_names)) if at == 0 or sorted_names[at] != sorted_names[at - 1]]
        worth = gold if gold is not None else [None] * len(names)
        return cls(
            tuple(sorted_names[at] for at in starts),
            np.array([parse_number(score[at]) for at in order], np.float64),
            np.array([parse_number(worth[at]) for at in order], np.float64),
            np.array([*starts, len(sorted_names)], np.int64),
        )


@dataclass(frozen=True)
class BestOfNPoint:
    """Mean gold when the best of n samples is taken by the score, by an oracle, or at random."""

    n: int
    chosen: PromptInterval
    oracle: PromptInterval
    random: PromptInterval
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
    agreement: PromptInterval
    curve: tuple[BestOfNPoint, ...]
    peak: int
    fall: PromptInterval
    tail: UpperTail | None

    @property
    def sentence(self) -> str:
        if not self.curve:
            return "no group has a score and a gold label for its samples"
        last = self.curve[-1]
        gain = last.chosen.mean - last.random.mean
        room = last.oracle.mean - last.random.mean
        text = f"best of {last.n} by the score gains {gain:+.3f} of the {room:.3f} that an oracle would gain"
        if self.fall.low > 0.0:
            return f"{text}; gold peaks at n = {self.peak} and falls beyond doubt"
        return text


def read_samples(path: str | Path, group: str, score: str, gold: str) -> Samples:
    """Scored samples from a file, by the names of its columns."""
    rows = read_rows(path)
    need_columns(path, rows, group, score)
    return Samples.of(
        [row.get(group) for row in rows], [row.get(score) for row in rows], [row.get(gold) for row in rows]
    )


def ranking(samples: Samples) -> Ranking:
    """Agreement, best-of-n curve and tail of scored samples."""
    items = [ProbeItem(name, "") for name in samples.groups]
    agree = pair_agreement(samples.gold, samples.score, samples.starts)
    usable = []
    for at, item in enumerate(items):
        rows = slice(samples.starts[at], samples.starts[at + 1])
        has_both = np.isfinite(samples.score[rows]) & np.isfinite(samples.gold[rows])
        if has_both.sum() > 0:
            usable.append((item, samples.score[rows][has_both], samples.gold[rows][has_both]))
    sizes = sorted(len(score) for _, score, _ in usable)
    top = sizes[len(sizes) // 10] if sizes else 0  # nine in ten groups are that large or larger
    used = [each for each in usable if len(each[1]) >= top]
    curve = tuple(_point(used, n) for n in _sizes(top))
    peak = max(curve, key=lambda point: point.chosen.mean).n if curve else 0
    fall = PromptInterval(math.nan, math.nan, math.nan, 0)
    if curve:
        high, last = (np.array([best_of_n_mean(s, g, n) for _, s, g in used]) for n in (peak, curve[-1].n))
        fall = mean_over_prompts([item for item, _, _ in used], high - last, 1.0 - ALPHA)
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


def _point(used: Sequence[tuple[ProbeItem, Floats, Floats]], n: int) -> BestOfNPoint:
    items = [item for item, _, _ in used]
    by_score = np.array([best_of_n_mean(score, gold, n) for _, score, gold in used])
    by_gold = np.array([best_of_n_mean(gold, gold, n) for _, _, gold in used])
    plain = np.array([float(gold.mean()) for _, _, gold in used])
    chosen, oracle, random = (_share(items, values) for values in (by_score, by_gold, plain))
    return BestOfNPoint(n, chosen, oracle, random, len(used))


def _share(items: Sequence[ProbeItem], values: Floats) -> PromptInterval:
    """Over prompts; values from 0 to 1 have an interval that stays there."""
    interval = mean_over_prompts(items, values, 1.0 - ALPHA)
    inside = np.nanmin(values, initial=0.0) >= 0.0 and np.nanmax(values, initial=0.0) <= 1.0
    return interval._replace(low=max(interval.low, 0.0), high=min(interval.high, 1.0)) if inside else interval


def _sizes(top: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, ... up to the largest."""
    wanted = {1, *(round(2**power) for power in range(1, 12)), *(3 * 2**power for power in range(11)), top}
    return sorted(n for n in wanted if 1 <= n <= top)
