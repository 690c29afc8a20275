"""Follows gold along checkpoints: has it fallen, where was it highest, which one to keep."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tiltmeter.errors import AttachError
from tiltmeter.stats.checkpoint_falls import LEAST_PROMPTS, FallTest, find_fall
from tiltmeter.stats.overoptimisation import forecast_peak
from tiltmeter.stats.zero_crossing import Forecast
from tiltmeter_workbench.compare.measures.accuracy import TrlReward
from tiltmeter_workbench.compare.referees import ScoringReferee
from tiltmeter_workbench.compare.sampling import AnswerSampler, Prompts
from tiltmeter_workbench.trail.checkpoints import BASE, TrailPoint, measure_checkpoint
from tiltmeter_workbench.trail.served_model import ServedModel, is_served, open_checkpoint

CALM = 0.1  # of gold: a fall that is not excluded up to here forbids to call a trail healthy

TrailState = Literal["worse", "healthy", "cannot tell"]
MakeSampler = Callable[[Path | None], AnswerSampler]  # of a checkpoint; None: of the base


@dataclass(frozen=True)
class TrailReport:
    """Gold along a trail, and what follows from it. The base stands first."""

    points: Sequence[TrailPoint]
    judge: str
    judged: bool  # by a model's opinion
    prompts: int
    samples: int

    @cached_property
    def common(self) -> int:
        """Prompts of which the gold of every checkpoint is known."""
        return int(np.isfinite(np.stack([point.gold for point in self.points])).all(0).sum())

    @cached_property
    def fall(self) -> FallTest | None:
        return find_fall([point.gold for point in self.points]) if self.common >= LEAST_PROMPTS else None

    @property
    def state(self) -> TrailState:
        if self.fall is None:
            return "cannot tell"
        if self.fall.has_fallen:
            return "worse"
        return "healthy" if self.fall.worst <= CALM else "cannot tell"

    @property
    def exit_code(self) -> int:
        return {"healthy": 0, "worse": 1, "cannot tell": 2}[self.state]

    @property
    def best(self) -> TrailPoint | None:
        return None if self.fall is None else self.points[self.fall.best]

    @property
    def candidates(self) -> list[str]:
        """Names among which the best is, with chance 95 %."""
        return [] if self.fall is None else [self.points[at].name for at in self.fall.candidates]

    @cached_property
    def peak(self) -> Forecast:
        """Where gold peaks along the root of KL by Gao's form, or why it is not said."""
        start, *later = self.points
        if any(math.isnan(point.kl) for point in later):
            return Forecast.refusal("the KL of a checkpoint on a server is not known")
        gains = [point.mean - start.mean for point in later]
        roots = [math.sqrt(max(point.kl, 0.0)) for point in later]
        stderrs = [point.stderr for point in later]
        return forecast_peak(roots, gains, stderrs, start=start.mean, start_stderr=start.stderr)


def follow_trail(
    checkpoints: Sequence[Path],
    prompts: Prompts,
    gold: ScoringReferee,
    make_sampler: MakeSampler,
    reward: TrlReward | None = None,
) -> TrailReport:
    """Ask every checkpoint the same prompts. Answers and gold are stored as they come: run again, it goes on there."""
    names = trail_names(checkpoints)
    first = make_sampler(None)
    points = [measure_checkpoint(first, "base", BASE, prompts, gold, reward)]
    for name, path in zip(names, checkpoints, strict=True):
        sampler = make_sampler(path)  # its model is let go of before the next is loaded
        _need_one_vocabulary(sampler, name)
        points.append(measure_checkpoint(sampler, "checkpoint", name, prompts, gold, reward))
    return TrailReport(points, gold.identity, gold.judged, len(prompts), first.samples)


def sampler_maker(base: Path, work: Path, *, plain: bool = False, **settings: Any) -> MakeSampler:
    """Samplers that share the base's model; each checkpoint has a folder of its own under `work`.

    `plain`: texts are asked as they are, not in a chat template.
    """
    start = open_checkpoint(base, base)
    start.plain = plain

    def make(checkpoint: Path | None) -> AnswerSampler:
        if checkpoint is None:
            return AnswerSampler(start, start, work / BASE, **settings)
        later = open_checkpoint(base, checkpoint)
        later.plain = plain
        return AnswerSampler(start, later, work / checkpoint.resolve().name, **settings)

    return make


def trail_names(checkpoints: Sequence[Path]) -> list[str]:
    """Their folders' names, with what stands before where two are alike.

    >>> trail_names([Path("a/checkpoint-1"), Path("b/checkpoint-1"), Path("b/checkpoint-2")])
    ['a/checkpoint-1', 'b/checkpoint-1', 'checkpoint-2']
    """
    names = [path.stem if is_served(path) else path.resolve().name for path in checkpoints]
    return [
        name if names.count(name) == 1 else "/".join(path.resolve().parts[-2:])
        for name, path in zip(names, checkpoints, strict=True)
    ]


def _need_one_vocabulary(sampler: AnswerSampler, name: str) -> None:
    if isinstance(sampler.base, ServedModel) or isinstance(sampler.checkpoint, ServedModel):
        return  # a server does not show its tokens
    if sampler.base.tokenizer.get_vocab() != sampler.checkpoint.tokenizer.get_vocab():
        raise AttachError(f"{name} has other tokens than the base: it was not trained from it")
