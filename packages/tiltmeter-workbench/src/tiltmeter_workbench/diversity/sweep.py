"""Sweeps how a model is sampled, and finds where its answers differ most at no loss of gold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.batches import from_columns
from tiltmeter.errors import AttachError
from tiltmeter.instruments.prompt_diversity import PromptDiversity
from tiltmeter.stats.checkpoint_falls import LEAST_PROMPTS
from tiltmeter.stats.intervals import student_t_quantile
from tiltmeter_workbench.compare.referees import ScoringReferee
from tiltmeter_workbench.compare.sampling import AnswerSampler, Prompts
from tiltmeter_workbench.diversity.list_prompt import ask_for_list, read_list

Floats = NDArray[np.float64]
SweepState = Literal["better", "same", "cannot tell"]

ALPHA = 0.05  # over all settings, gold and diversity together
MATTERS = 0.02  # of diversity: a setting that differs by less is no other one


@dataclass(frozen=True)
class SamplingPoint:
    """What a model says when it is sampled in one way."""

    name: str
    gold: Floats  # of each prompt, the mean over its answers; NaN: not known
    diversity: Floats  # of each prompt, 1 - self-BLEU of its answers' words
    lacking: int = 0  # prompts for which fewer answers came than were asked for


class PairedDifference(NamedTuple):
    """Of a setting from temperature 1, over prompts, with its interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class SweepReport:
    """Ways of sampling one model; temperature 1 stands first."""

    points: Sequence[SamplingPoint]
    margin: float  # of gold that may be lost
    judge: str
    judged: bool  # by a model's opinion
    samples: int

    @property
    def prompts(self) -> int:
        return len(self.points[0].gold)

    @property
    def others(self) -> Sequence[SamplingPoint]:
        return self.points[1:]

    def gold_difference(self, point: SamplingPoint, missing: float = 0.0) -> PairedDifference:
        """A prompt without gold counts against the setting, as 0 there and as 1 at temperature 1; with `missing` 1 for
        it, the other way round."""
        first = np.nan_to_num(self.points[0].gold, nan=1.0 - missing)
        return self._difference(np.nan_to_num(point.gold, nan=missing) - first)

    def diversity_difference(self, point: SamplingPoint, missing: float = 0.0) -> PairedDifference:
        """A prompt to which too few answers came has none; with `missing` 1, as much as there can be."""
        first = np.nan_to_num(self.points[0].diversity, nan=0.0)
        return self._difference(np.nan_to_num(point.diversity, nan=missing) - first)

    def loses_gold(self, point: SamplingPoint) -> bool:
        """Beyond chance, whatever the gold is that nobody knows."""
        return self.gold_difference(point, 1.0).high < 0.0

    def _difference(self, values: Floats) -> PairedDifference:
        mean = float(values.mean())
        if len(values) < 2:
            return PairedDifference(mean, -math.inf, math.inf)
        confidence = 1.0 - ALPHA / (2 * max(len(self.others), 1))
        reach = student_t_quantile(len(values) - 1, confidence) * float(values.std(ddof=1)) / math.sqrt(len(values))
        return PairedDifference(mean, mean - reach, mean + reach)

    def is_as_good(self, point: SamplingPoint) -> bool:
        return self.gold_difference(point).low >= -self.margin

    @cached_property
    def best(self) -> SamplingPoint | None:
        """The most diverse setting that differs more than temperature 1, and loses no more gold than the margin, both
        beyond chance."""
        if self.prompts < LEAST_PROMPTS:
            return None
        good = [one for one in self.others if self.is_as_good(one) and self.diversity_difference(one).low > 0.0]
        return max(good, key=lambda one: self.diversity_difference(one).mean, default=None)

    @property
    def state(self) -> SweepState:
        if self.best is not None:
            return "better"
        settled = [self.loses_gold(one) or self.diversity_difference(one, 1.0).high < MATTERS for one in self.others]
        return "same" if self.prompts >= LEAST_PROMPTS and all(settled) else "cannot tell"

    @property
    def exit_code(self) -> int:
        return {"better": 0, "same": 0, "cannot tell": 2}[self.state]


def sweep_sampling(
    sampler: AnswerSampler,
    temperatures: Sequence[float],
    prompts: Prompts,
    gold: ScoringReferee,
    *,
    margin: float,
    at_once: bool = False,
) -> SweepReport:
    """Ask the same prompts in each way; temperature 1 always, and `at_once` for all answers in one reply. Answers and
    gold are stored as they come: run again, it goes on."""
    if sampler.samples < 2:
        raise AttachError("one answer to a prompt does not differ: ask for two or more, --answers 4")
    if wrong := [value for value in temperatures if not value > 0.0]:
        raise AttachError(f"a temperature of {wrong[0]:g} always gives one answer: name temperatures above 0")
    if not at_once and not set(temperatures) - {1.0}:
        raise AttachError("temperature 1 alone is compared with nothing: name others, --temperatures 0.7,1.3")
    points = []
    for temperature in dict.fromkeys((1.0, *temperatures)):
        answers = sampler.answers("base", prompts.name, prompts.turns, sampler.samples, temperature)
        texts = [[one.text for one in group] for group in answers]
        points.append(measure_point(f"temperature {temperature:g}", texts, prompts, gold, sampler))
    if at_once:
        lists = replace(sampler, limit=sampler.limit * sampler.samples)  # one reply holds all of them
        questions = [ask_for_list(turns, sampler.samples) for turns in prompts.turns]
        replies = lists.answers("base", f"{prompts.name}-list", questions)
        texts = [read_list(reply.text, sampler.samples) for (reply,) in replies]
        points.append(measure_point(f"{sampler.samples} at once", texts, prompts, gold, sampler))
    return SweepReport(points, margin, gold.identity, gold.judged, sampler.samples)


def measure_point(
    name: str, texts: Sequence[Sequence[str]], prompts: Prompts, gold: ScoringReferee, sampler: AnswerSampler
) -> SamplingPoint:
    """Gold and diversity of each prompt. One with too few answers has neither."""
    whole = np.array([len(group) == sampler.samples for group in texts])
    rows = [
        (prompt, text, columns)
        for prompt, columns, group, there in zip(prompts.texts, prompts.columns, texts, whole, strict=True)
        for text in group
        if there
    ]
    worth, differing = np.full(len(texts), np.nan), np.full(len(texts), np.nan)
    if rows:
        scores = gold.shares(rows, sampler.progress)
        worth[whole] = scores.reshape(-1, sampler.samples).mean(1)
        differing[whole] = _diversity([text for _, text, _ in rows], sampler.samples)
    return SamplingPoint(name, worth, differing, int((~whole).sum()))


def _diversity(texts: Sequence[str], samples: int) -> Floats:
    """By words: answers that were read from a list have no tokens of their own.

    Behind its words each text stands three times as a word of its own: equal answers of a word or two, which have no
    4-grams, are then as alike as equal long ones.
    """
    numbers: dict[str, int] = {}
    words = [[*text.split(), *[f" {text}"] * 3] for text in texts]
    tokens = [[numbers.setdefault(word, len(numbers)) for word in one] for one in words]
    batch = from_columns(0, np.repeat(np.arange(len(texts) // samples), samples), tokens=tokens)
    return 1.0 - PromptDiversity().measure(batch, None)["self_bleu"]
