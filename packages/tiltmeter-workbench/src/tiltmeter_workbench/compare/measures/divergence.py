"""Measure: KL of the checkpoint from its base in nats, estimated on the checkpoint's own samples."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.intervals import student_t_quantile
from tiltmeter_workbench.common.chat_model import ChatAnswer
from tiltmeter_workbench.compare.measures.measure import Measure
from tiltmeter_workbench.compare.sampling import AnswerSampler, Prompts

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
        reach = student_t_quantile(len(means) - 1, 1.0 - alpha) * float(means.std(ddof=1)) / math.sqrt(len(means))
    return Distance(mean, mean - reach, mean + reach, total / tokens if tokens else math.nan)


def measure(sampler: AnswerSampler, prompts: Prompts, *, alpha: float) -> list[Measure]:
    """One measure, which is neither good nor bad by itself: the verdict reads it beside the win rate."""
    if sampler.base.tokenizer.get_vocab() != sampler.checkpoint.tokenizer.get_vocab():
        sentence = "The two models have different tokens, so the one's answers have no probability under the other."
        return [Measure(NAME, TITLE, "cannot tell", sentence)]
    answers = sampler.answers("checkpoint", prompts.name, prompts.turns, sampler.samples)
    all_answers = [answer for group in answers for answer in group]
    kl = distance(log_ratios(sampler, prompts, answers), alpha)
    cut_share = float(np.mean([not answer.ended for answer in all_answers])) if all_answers else math.nan
    ends = f" [{kl.low:.3g}, {kl.high:.3g}]" if math.isfinite(kl.low) else ""
    unfinished = (
        f"; {cut_share:.0%} of answers were cut at {sampler.limit} tokens, and count up to there"
        if cut_share > 0
        else ""
    )
    return [
        Measure(
            NAME, TITLE, "shown",
            f"{kl.mean:.3g}{ends} nats per completion, {kl.token:.2g} per token{unfinished}.",
            "", "nats per completion", 0.0, kl.mean, kl.mean, kl.low, kl.high, len(prompts),
            ({"per completion": kl.mean, "per token": kl.token, "answers": len(all_answers), "cut": cut_share},),
        )
    ]  # fmt: skip


def log_ratios(sampler: AnswerSampler, prompts: Prompts, answers: Sequence[Sequence[ChatAnswer]]) -> list[list[Floats]]:
    """ln pi - ln ref of each token of the checkpoint's own answers."""
    prompt_turns = [turns for turns, group in zip(prompts.turns, answers, strict=True) for _ in group]
    all_answers = [answer for group in answers for answer in group]
    ratios: list[Floats] = []
    step = sampler.checkpoint.batch
    for first in range(0, len(all_answers), step):
        part = slice(first, first + step)
        tokens = [answer.tokens for answer in all_answers[part]]
        own, ref = (model.log_likelihoods(prompt_turns[part], tokens) for model in (sampler.checkpoint, sampler.base))
        ratios += [one - other for one, other in zip(own, ref, strict=True)]
        if sampler.progress is not None:
            sampler.progress(
                "how likely the base finds the answers", min(first + step, len(all_answers)), len(all_answers)
            )
    each = iter(ratios)
    return [[next(each) for _ in group] for group in answers]
