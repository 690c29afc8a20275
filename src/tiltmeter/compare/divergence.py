"""How far the checkpoint went from its base: KL in nats, by sampling from the checkpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tiltmeter.compare.measure import Measure
from tiltmeter.compare.samples import Material, Prompts
from tiltmeter.stats.intervals import student

Floats = NDArray[np.float64]

NAME, TITLE = "kl", "KL from base"


class Distance(NamedTuple):
    """KL(checkpoint || base) in nats of a completion, its interval over prompts, and the same of a token."""

    mean: float
    low: float
    high: float
    token: float


def distance(ratios: Sequence[Sequence[Floats]], alpha: float) -> Distance:
    """From ln pi - ln ref of each token of each answer of each prompt; answers are drawn from pi.

    The mean over answers of the sum over tokens is an unbiased estimate (k1). Prompts are what was drawn, so the
    interval is Student's over their means; of one prompt there is none.

    >>> distance([[np.array([0.5, 0.5]), np.array([1.0])], [np.array([2.0, 1.0, 0.0])]], 0.05)._replace(low=0, high=0)
    Distance(mean=2.0, low=0, high=0, token=0.8333333333333334)
    """
    means = np.array([np.mean([float(row.sum()) for row in rows]) for rows in ratios if len(rows)], np.float64)
    if not len(means):
        return Distance(math.nan, math.nan, math.nan, math.nan)
    tokens = sum(len(row) for rows in ratios for row in rows)
    total = sum(float(row.sum()) for rows in ratios for row in rows)
    mean, reach = float(means.mean()), math.nan
    if len(means) > 1:
        reach = student(len(means) - 1, 1.0 - alpha) * float(means.std(ddof=1)) / math.sqrt(len(means))
    return Distance(mean, mean - reach, mean + reach, total / tokens if tokens else math.nan)


def measured(material: Material, prompts: Prompts, *, alpha: float) -> list[Measure]:
    """One measure, which is neither good nor bad by itself: the verdict reads it beside the win rate."""
    if material.base.tokenizer.get_vocab() != material.checkpoint.tokenizer.get_vocab():
        told = "The two models have different tokens, so the one's answers have no probability under the other."
        return [Measure(NAME, TITLE, "cannot tell", told)]
    answers = material.answers("checkpoint", prompts.name, prompts.turns, material.samples)
    asked = [turns for turns, given in zip(prompts.turns, answers, strict=True) for _ in given]
    said = [answer for given in answers for answer in given]
    ratios: list[Floats] = []
    step = material.checkpoint.batch
    for first in range(0, len(said), step):
        part = slice(first, first + step)
        tokens = [answer.tokens for answer in said[part]]
        own, ref = (model.log_likelihoods(asked[part], tokens) for model in (material.checkpoint, material.base))
        ratios += [one - other for one, other in zip(own, ref, strict=True)]
        if material.progress is not None:
            material.progress("how likely the base finds the answers", min(first + step, len(said)), len(said))
    each = iter(ratios)
    found = distance([[next(each) for _ in given] for given in answers], alpha)
    cut = float(np.mean([not answer.ended for answer in said])) if said else math.nan
    ends = f" [{found.low:.3g}, {found.high:.3g}]" if math.isfinite(found.low) else ""
    unfinished = f"; {cut:.0%} of answers were cut at {material.limit} tokens, and count up to there" if cut > 0 else ""
    return [
        Measure(
            NAME, TITLE, "shown",
            f"{found.mean:.3g}{ends} nats per completion, {found.token:.2g} per token{unfinished}.",
            "", "nats per completion", 0.0, found.mean, found.mean, found.low, found.high, len(prompts),
            ({"per completion": found.mean, "per token": found.token, "answers": len(said), "cut": cut},),
        )
    ]  # fmt: skip
