"""Measures gold and capability of a base, a checkpoint, models in between, and others that you name."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.errors import AttachError
from tiltmeter_workbench.compare.measures.capability import score_tasks
from tiltmeter_workbench.compare.referees import ScoringReferee
from tiltmeter_workbench.compare.sampling import AnswerSampler, Prompts, Which
from tiltmeter_workbench.repay.front import BASE, Front, FrontPoint
from tiltmeter_workbench.repay.interpolate import interpolate
from tiltmeter_workbench.trail.checkpoints import measure_checkpoint

MakeSampler = Callable[[Path | None], AnswerSampler]  # of a model's folder; None: of the base
Scores = Mapping[str, float]  # by task and item


def measure_front(
    base: Path,
    checkpoint: Path,
    between: Sequence[float],
    others: Sequence[Path],
    prompts: Prompts,
    gold: ScoringReferee,
    tasks: Sequence[str],
    make_sampler: MakeSampler,
    work: Path,
    *,
    most: int | None = None,
    margin: float,
) -> Front:
    """Ask every model the same. What was asked is stored: run again, it goes on. Models in between are not kept."""
    sampler = make_sampler(None)
    whole = [_measure(sampler, "base", BASE, prompts, gold, tasks, most)]
    for share in sorted(between):
        folder = interpolate(base, checkpoint, share, work / "models" / f"share-{share:g}")
        try:
            whole.append(_measure(make_sampler(folder), "checkpoint", point_name(share), prompts, gold, tasks, most))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    whole += [
        _measure(make_sampler(path), "checkpoint", path.resolve().name, prompts, gold, tasks, most)
        for path in (*others, checkpoint)
    ]
    items = sorted(set.intersection(*(set(scores) for _, scores in whole)))
    points = [point._replace(capability=np.array([scores[item] for item in items])) for point, scores in whole]
    return Front(points, margin)


def point_name(share: float) -> str:
    """
    >>> point_name(0.25)
    '25 % of the change'
    """
    return f"{100 * share:g} % of the change"


def _measure(
    sampler: AnswerSampler,
    which: Which,
    name: str,
    prompts: Prompts,
    gold: ScoringReferee,
    tasks: Sequence[str],
    most: int | None,
) -> tuple[FrontPoint, Scores]:
    one = measure_checkpoint(sampler, which, name, prompts, gold, None)
    results = score_tasks(sampler, which, tasks, most, chat=False)
    scores = {f"{task} {item}": value for task, result in results.items() for item, value in _values(task, result)}
    return FrontPoint(name, one.gold, np.array([]), one.kl, one.tokens), scores


def _values(task: str, result: Mapping[str, Any]) -> list[tuple[str, float]]:
    values: list[tuple[str, float]] = list(result["values"].items())
    if wrong := [value for _, value in values if not 0.0 <= value <= 1.0]:
        raise AttachError(
            f"{task} gives an item {wrong[0]:g} ({result['metric']}): a front needs scores from 0 to 1, as accuracy"
        )
    return values
