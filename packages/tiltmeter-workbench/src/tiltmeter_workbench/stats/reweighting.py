"""Mean gold under other weights than those of the sample, from a few labels with known sampling probabilities.

Every prompt has samples of a reference policy and a score for each; a few samples have a label. A tilted policy or
best-of-n gives those same samples other weights. Its mean gold is the weighted mean of a line through the labels, plus
what the labels themselves say the line misses, each counted 1 / chance times: right whatever the line, as long as the
chances are, and less noisy than the labels alone (the difference estimator of survey sampling).

Prompts are the units that were drawn, so the bootstrap draws prompts, with all of their samples and labels: what it
shows is the error of the prompts, of the samples inside them, of which were labelled, and of the labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tiltmeter_workbench.stats.tilting import best_of_n_weights

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

RIDGE = 1e-3  # of the mean squared feature: keeps the line defined where all scores of a draw are alike
BEST = 16  # half of the labels go to the best of so many


@dataclass(frozen=True, eq=False)
class SampleTable:
    """Samples as prompts x samples. Rows end in NaN scores where a prompt has fewer; gold is NaN where not labelled.

    `chance` is what each sample's chance of being labelled was. Only those of labelled samples are used.

    >>> score, gold = np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [np.nan, 1.0]])
    >>> sheet = SampleTable(score, gold, np.full((2, 2), 0.75))
    >>> sheet.labels, sheet.sizes.tolist()
    (3, [2, 2])
    """

    score: Floats
    gold: Floats
    chance: Floats

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        return np.asarray(self.sampled.sum(1), np.int64)

    @cached_property
    def sampled(self) -> Flags:
        return np.asarray(~np.isnan(self.score), np.bool_)

    @cached_property
    def labels(self) -> int:
        return int(np.isfinite(self.gold).sum())

    @cached_property
    def label_weights(self) -> Floats:
        """How many samples each label stands for; 0 where there is none."""
        labelled = np.isfinite(self.gold)
        return np.divide(1.0, self.chance, out=np.zeros(self.gold.shape), where=labelled)

    @cached_property
    def ranks(self) -> Floats:
        """The place of each score among its prompt's, from 0 to 1, ties in the middle of theirs."""
        places = np.full(self.score.shape, np.nan)
        for row, (scores, size) in enumerate(zip(self.score, self.sizes, strict=True)):
            _, level, count = np.unique(scores[:size], return_inverse=True, return_counts=True)
            places[row, :size] = ((np.cumsum(count) - 0.5 * count) / size)[level]
        return places


def tilt_weights(score: Floats, beta: float, part: Flags | None = None) -> Floats:
    """Weights ∝ exp(score / β) inside each row, of all samples or of a part of them; β = inf weighs them alike.

    >>> tilt_weights(np.array([[0.0, 1.0, np.nan]]), 1.0).round(4).tolist()
    [[0.2689, 0.7311, 0.0]]
    """
    included = ~np.isnan(score) if part is None else part
    logs = np.where(included, score, -np.inf)
    gap = logs - logs.max(1, keepdims=True)
    with np.errstate(over="ignore"):
        weights = np.exp(gap / beta) if np.isfinite(beta) else included.astype(np.float64)
    return np.asarray(weights / weights.sum(1, keepdims=True), np.float64)


def rank_weights(table: SampleTable, n: int) -> Floats:
    """Chance of each sample to be the best, by score, of n drawn from its prompt's without putting back."""
    weights = np.zeros(table.score.shape)
    for row, (scores, size) in enumerate(zip(table.score, table.sizes, strict=True)):
        weights[row, :size] = best_of_n_weights(scores[:size], n)
    return weights


def tilt_kl(weights: Floats, sizes: NDArray[np.int64]) -> Floats:
    """Σ w ln(N w) of each row: the KL of the weights to the sample they weigh.

    >>> tilt_kl(np.array([[0.0, 1.0]]), np.array([2])).round(4).tolist()
    [0.6931]
    """
    support = weights > 0.0
    logs = np.log(np.where(support, weights, 1.0))
    # Rounding may leave the KL of equal weights a hair under 0.
    return np.asarray(np.maximum((weights * logs).sum(1) + np.log(sizes), 0.0), np.float64)


def split_halves(sampled: Flags, rng: np.random.Generator) -> tuple[Flags, Flags]:
    """Each prompt's samples parted in two by chance."""
    keys = np.where(sampled, rng.random(sampled.shape), np.inf)
    place = keys.argsort(1).argsort(1)
    first = sampled & (place < (sampled.sum(1, keepdims=True) // 2))
    return first, sampled & ~first


def label_chances(table: SampleTable, labels: int) -> Floats:
    """The chance with which each sample should be labelled: half of the labels evenly, half as the best of 16 would be.

    Even labels alone hardly ever fall on the few samples that a tilted policy would give; best-of-16 labels alone say
    nothing of where it starts. Each sample is meant to be drawn by itself, so that its chance is exactly this.

    >>> sheet = SampleTable(np.arange(64.0)[None, :], np.full((1, 64), np.nan), np.ones((1, 64)))
    >>> chances = label_chances(sheet, 4)[0]
    >>> round(float(chances.sum()), 4), chances[[0, -1]].round(4).tolist()
    (4.0, [0.0312, 0.5312])
    """
    chances = np.zeros(table.score.shape)
    each = 0.5 * labels / len(table.score)
    for row, (scores, size) in enumerate(zip(table.score, table.sizes, strict=True)):
        best = best_of_n_weights(scores[:size], int(max(1, min(BEST, size // 2))))
        chances[row, :size] = each / size + each * best
    return np.minimum(chances, 1.0)


class Reweighted:
    """Means over prompts under any weights, each with bootstrap draws: the first is the estimate itself.

    >>> sheet = SampleTable(np.array([[0.0, 1.0]] * 3), np.array([[0.0, 1.0]] * 3), np.ones((3, 2)))
    >>> Reweighted(sheet, draws=2, seed=0).gold(tilt_weights(sheet.score, 1.0)).round(4).tolist()
    [0.7311, 0.7311, 0.7311]
    """

    def __init__(self, table: SampleTable, *, draws: int, seed: int) -> None:
        self.table = table
        prompts = len(table.score)
        counts = np.random.default_rng(seed).multinomial(prompts, np.full(prompts, 1.0 / prompts), draws)
        self._shares = np.vstack((np.ones(prompts), counts)) / prompts
        place = np.where(table.sampled, table.ranks, 0.5)
        top = -np.log(1.0 - place + 0.5 / np.maximum(table.sizes[:, None], 1)) - 1.0
        self._features = np.stack((np.ones_like(place), place - 0.5, np.square(place - 0.5), top), axis=-1)
        self._worth = np.where(np.isfinite(table.gold), table.gold, 0.0)
        weighted = table.label_weights[..., None] * self._features
        square = np.einsum("pnk,pnl->pkl", weighted, self._features)
        square = np.einsum("dp,pkl->dkl", self._shares, square)
        size = np.trace(square, axis1=1, axis2=2) / square.shape[1]
        square = square + RIDGE * np.maximum(size, 1e-9)[:, None, None] * np.eye(square.shape[1])
        aimed = self._shares @ np.einsum("pnk,pn->pk", weighted, self._worth)
        self._line = np.linalg.solve(square, aimed[..., None])[..., 0]

    def mean(self, by_prompt: Floats) -> Floats:
        """The mean of a figure that each prompt has."""
        return np.asarray(self._shares @ by_prompt, np.float64)

    def gold(self, weights: Floats) -> Floats:
        """Mean gold of a policy that gives each prompt's samples these weights."""
        weighted = weights * self.table.label_weights
        labelled = (weighted * self._worth).sum(1)
        unlabelled = np.einsum("pn,pnk->pk", weights - weighted, self._features)
        return self.mean(labelled) + np.asarray(
            np.einsum("dk,dk->d", self._shares @ unlabelled, self._line), np.float64
        )

    def coverage(self, weights: Floats) -> Floats:
        """What the labels' counts say of the weight, which is 1 in each prompt: far from 1, the chances are wrong."""
        return self.mean((weights * self.table.label_weights).sum(1))

    def labels_at(self, weights: Floats) -> float:
        """How many labels of equal count would say as much of these weights: (Σ c)² / Σ c²."""
        weighted = weights * self.table.label_weights
        squares = float(np.square(weighted).sum())
        return float(weighted.sum()) ** 2 / squares if squares > 0.0 else 0.0
