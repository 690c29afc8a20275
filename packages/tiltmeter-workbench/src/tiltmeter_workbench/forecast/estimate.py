"""Forecasts how far a reward can be optimised until gold falls, from samples of the reference and a few labels.

Two ways to optimise it are forecast, as both can be computed from the reference's own samples: the optimum of reward
minus β KL, which is the reference tilted by exp(score / β), and the best of n by score. What is said holds as far as
the samples reach, and no further: **it cannot see what the reference never samples.**

How far that is, is decided by figures fixed on the development families of `lab` (see docs/forecast.md): no KL above
(1/2) ln N for N samples a prompt, no effective sample below 50, no KL that half of the samples would have told
differently, no weight on samples that too few labels speak for. A heavy tail of the score refuses everything, since
then the samples say nothing of the largest scores, which is where a policy goes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.tails import CANNOT_TELL, HEAVY, prompt_tail
from tiltmeter_workbench.forecast.curves import Curve, along_best, along_tilt, drop_if_short, few_samples_dominate
from tiltmeter_workbench.stats.reweighting import Reweighted, SampleTable

Floats = NDArray[np.float64]

DRAWS = 600
PROMPTS, LABELS, SAMPLES = 20, 60, 8  # fewest of each; samples for each prompt
SMALLEST = 1e-100  # spread of scores whose square is still a number


@dataclass(frozen=True)
class GoldForecast:
    """The forecast from samples and labels, or the reasons against one: the cheapest test for over-optimisation.

    >>> rng = np.random.default_rng(0)
    >>> score = rng.normal(size=(60, 128))
    >>> gold = rng.random((60, 128)) < 1 / (1 + np.exp(2 * score**2 - 2 * score - 1))
    >>> forecast = forecast_gold(SampleTable(score, gold.astype(float), np.ones((60, 128))))
    >>> forecast.exit_code, forecast.tilt.peak is not None, 0.1 < forecast.tilt.points[forecast.tilt.peak].kl.mean < 0.6
    (1, True, True)
    """

    prompts: int
    samples: int
    labels: int
    tilt: Curve
    best: Curve
    refused: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def exit_code(self) -> int:
        """0: gold peaks nowhere in reach. 1: it does. 2: refused."""
        if self.refused:
            return 2
        return int(self.tilt.peak is not None or self.best.peak is not None)


def forecast_gold(sheet: SampleTable, *, notes: Sequence[str] = (), seed: int = 0) -> GoldForecast:
    """Both curves with their peaks; or the reasons against them."""
    all_notes = list(notes)
    prompts = int((sheet.sizes > 0).sum())
    size = int(np.quantile(sheet.sizes, 0.1)) if len(sheet.sizes) else 0  # nine in ten prompts have as many, or more
    is_full = sheet.sizes >= size
    if size >= SAMPLES and not is_full.all():
        all_notes.append(f"{int((~is_full).sum())} prompts with fewer than {size} samples are left out")
        sheet = SampleTable(sheet.score[is_full], sheet.gold[is_full], sheet.chance[is_full])
    refused, tail_notes = _refusals(sheet, size, seed)
    facts = (prompts, int(sheet.sizes.sum()), sheet.labels)
    nothing = Curve((), "refused")
    if refused:
        return GoldForecast(*facts, nothing, nothing, tuple(refused), (*all_notes, *tail_notes))
    means = Reweighted(sheet, draws=DRAWS, seed=seed)
    curves = [drop_if_short(curve) for curve in (along_tilt(means, size, seed), along_best(means, size))]
    why = [curve.ended for curve in curves] if not any(curve.points for curve in curves) else []
    return GoldForecast(*facts, curves[0], curves[1], tuple(dict.fromkeys(why)), (*all_notes, *tail_notes))


def _refusals(sheet: SampleTable, size: int, seed: int) -> tuple[list[str], list[str]]:
    """Reasons to refuse before anything is computed, and what to note of the tail."""
    short = []
    for have, need, what in (
        (len(sheet.score), PROMPTS, "prompts"),
        (size, SAMPLES, "samples a prompt"),
        (sheet.labels, LABELS, "labels"),
    ):
        if have < need:
            short.append(f"{have} {what}, and {need} are the fewest that can tell")
    if short:
        return short, []
    scores = sheet.score[sheet.sampled]
    if not (np.nanmax(sheet.score, axis=1) > np.nanmin(sheet.score, axis=1)).any():
        return ["no prompt has two samples with different scores: nothing would be learned"], []
    with np.errstate(over="ignore", invalid="ignore"):
        spread = float(np.nanmean(np.nanstd(sheet.score, axis=1)))
    if not SMALLEST < spread < 1.0 / SMALLEST:
        return [f"the scores spread by {spread:.2g}, with which nothing can be computed: scale the reward"], []
    labelled = np.isfinite(sheet.gold)
    if np.ptp(sheet.gold[labelled]) == 0.0:
        return ["all labels are alike: gold cannot be told from them"], []
    even = np.ptp(sheet.chance[labelled]) == 0.0 and sheet.labels < len(scores)
    if even and _uneven(sheet.ranks[labelled], sheet.ranks[sheet.sampled]):
        why = "the labelled samples were not drawn evenly by score: give each label's chance, or let --choose draw them"
        return [why], []
    tail = prompt_tail(scores, np.concatenate(([0], np.cumsum(sheet.sizes))).astype(np.int64))
    if tail.verdict == HEAVY:
        return [
            "the score's upper tail is heavy: the largest scores a policy will find are not among the samples, and no "
            "KL penalty holds it from them; bound the reward first"
        ], []
    if few_samples_dominate(sheet, size, seed):
        return [
            "a few of the highest scores outweigh all other samples already near the reference: with other samples it "
            "would tell otherwise; bound the reward, or take many more samples"
        ], []
    unsettled = tail.verdict == CANNOT_TELL or (tail.verdict != tail.verdict and tail.reason in ("too few", "ties"))
    return [], ["whether the score's tail is heavy cannot be told from these samples"] if unsettled else []


def _uneven(labelled: Floats, scored: Floats) -> bool:
    """Kolmogorov-Smirnov at 1 %: do labels fall on other ranks than samples do?"""
    at = np.sort(scored)
    gap = np.searchsorted(np.sort(labelled), at, "right") / len(labelled) - np.arange(1, len(at) + 1) / len(at)
    last = np.append(at[1:] != at[:-1], True)
    return bool(math.sqrt(len(labelled)) * np.abs(gap[last]).max() > 1.63)
