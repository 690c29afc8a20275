"""Accuracy of a reward on held-out preference pairs, and calibration of its margins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.intervals import wilson_interval
from tiltmeter_workbench.probe.attack_effects import ALPHA, PromptInterval, mean_over_prompts
from tiltmeter_workbench.probe.pairs import ProbeItem
from tiltmeter_workbench.probe.reward_target import Target
from tiltmeter_workbench.stats.bradley_terry import win_chance

Floats = NDArray[np.float64]

BINS = 5  # of equal size: with fewer pairs in each, chance alone makes a bin look wrong
FEWEST = 50  # pairs, below which nothing is said about calibration
DRAWS = 500  # bootstrap over pairs
CHANCE, GOOD = 0.5, 0.7  # of pairs in the right order: a coin, and what good reward models reach (0.7 to 0.8)


@dataclass(frozen=True)
class Bin:
    """Pairs about whose order the reward was about equally sure."""

    predicted: float  # mean chance that the surer answer is preferred
    observed: float
    pairs: int


@dataclass(frozen=True)
class Accuracy:
    """Share of pairs that the reward puts in the order of the preference; ties count half.

    0.5 is a coin; good reward models reach 0.7 to 0.8 on held-out pairs. `shorter` and `longer` are the same where the
    preferred answer is the shorter or the longer one: a reward that only measures length has 0 and 1 there, and its
    overall accuracy is the share of longer ones. `error` is the expected calibration error of sigmoid(margin), which
    means anything for log-odds only: Σ (pairs in bin / pairs) |predicted - observed| over five bins of equal size,
    folded so that the surer side is predicted. It is never 0 by chance, so its interval (bootstrap, 95 %) is shown.
    """

    overall: PromptInterval
    shorter: PromptInterval
    longer: PromptInterval
    ties: int
    pairs: int
    error: float = math.nan
    error_low: float = math.nan
    error_high: float = math.nan
    bins: tuple[Bin, ...] = ()

    @property
    def sentence(self) -> str:
        if self.pairs < 2 or not math.isfinite(self.overall.low):
            return "too few pairs to tell how accurate it is"
        text = f"{self.overall.mean:.1%} of {self.pairs} pairs in the right order"
        if self.overall.high < CHANCE:
            return f"{text}: worse than a coin"
        if self.overall.low <= CHANCE:
            return f"{text}: not to be told from a coin"
        return f"{text}: {'good' if self.overall.mean >= GOOD else 'weak'}"


def accuracy(target: Target, items: Sequence[ProbeItem], seed: int = 0) -> Accuracy:
    """Of a reward on pairs; calibration only of a reward model, whose margins are log-odds."""
    pairs = [item for item in items if item.wrong is not None]
    right = target.scores([i.prompt for i in pairs], [i.right for i in pairs], [i.columns for i in pairs])
    wrong = target.scores([i.prompt for i in pairs], [i.wrong or "" for i in pairs], [i.columns for i in pairs])
    margin = right - wrong
    finite = np.isfinite(margin)
    pairs = [item for item, here in zip(pairs, finite, strict=True) if here]
    margin = margin[finite]
    won = np.where(margin == 0.0, 0.5, margin > 0.0)
    more = np.array([len(item.right.split()) - len((item.wrong or "").split()) for item in pairs])
    whole, shorter, longer = (_share(pairs, won, here) for here in (np.ones(len(pairs), bool), more < 0, more > 0))
    ties = int((margin == 0.0).sum())
    if target.kind != "model" or len(margin) < FEWEST:
        return Accuracy(whole, shorter, longer, ties, len(margin))
    error, bins = calibration(margin)
    rng = np.random.default_rng(seed)
    resampled = [calibration(rng.choice(margin, len(margin)))[0] for _ in range(DRAWS)]
    low, high = np.quantile(resampled, [ALPHA / 2, 1.0 - ALPHA / 2])
    return Accuracy(whole, shorter, longer, ties, len(margin), error, float(low), float(high), tuple(bins))


def calibration(margin: Floats) -> tuple[float, list[Bin]]:
    """Expected calibration error of sigmoid(|margin|) as the chance of being right, and its bins.

    >>> error, bins = calibration(np.array([2.0, 2.0, 2.0, -2.0] * 25))
    >>> round(error, 3), round(bins[0].predicted, 3), bins[0].observed
    (0.131, 0.881, 0.75)
    """
    sure = win_chance(np.abs(margin), 0.0)
    right = np.where(margin == 0.0, 0.5, margin > 0.0).astype(np.float64)
    ranked = np.argsort(sure, kind="stable")
    if sure[ranked[0]] == sure[ranked[-1]]:
        parts = [ranked]
    else:
        parts = [part for part in np.array_split(ranked, BINS) if len(part)]
    bins = [Bin(float(sure[part].mean()), float(right[part].mean()), len(part)) for part in parts]
    error = sum(each.pairs * abs(each.predicted - each.observed) for each in bins) / len(margin)
    return error, bins


def _share(items: Sequence[ProbeItem], won: Floats, here: NDArray[np.bool_]) -> PromptInterval:
    """Over prompts; where that interval is empty because all agree, Wilson's, which knows that others may not."""
    chosen = [item for item, use in zip(items, here, strict=True) if use]
    interval = mean_over_prompts(chosen, won[here], 1.0 - ALPHA)
    if interval.prompts < 2:
        return interval
    low, high = wilson_interval(interval.mean, interval.prompts)
    return PromptInterval(
        interval.mean, max(0.0, min(interval.low, low)), min(1.0, max(interval.high, high)), interval.prompts
    )
