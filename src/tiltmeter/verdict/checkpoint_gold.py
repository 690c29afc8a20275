"""Gold of checkpoints that were asked the same prompts, folded from the evaluations that brought it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tiltmeter.data.records import Floats
from tiltmeter.stats.checkpoint_falls import UNKNOWN


class AskedCheckpoint(NamedTuple):
    """Gold of a checkpoint's answers to each prompt, NaN where it is not known."""

    attempt: int
    step: int
    reading: str
    gold: Floats

    @property
    def unknown(self) -> int:
        return int(np.isnan(self.gold).sum())


@dataclass
class CheckpointSeries:
    """The checkpoints of a run that were asked, who judged them, and how many were gone before they could be asked."""

    points: list[AskedCheckpoint] = field(default_factory=list)
    judge: str = ""
    missed: int = 0

    def add(self, attempt: int, step: int, reading: str, values: Sequence[float]) -> None:
        gold = np.array(values, np.float64)
        self.points.append(AskedCheckpoint(attempt, step, reading, np.where(gold == UNKNOWN, np.nan, gold)))

    def on_lineage(self, spans: Mapping[int, float]) -> list[AskedCheckpoint]:
        """Those of the current lineage in the order of training; where prompts were changed, those asked the newest.

        >>> series = CheckpointSeries()
        >>> series.add(0, 10, "eval.checkpoint_gold", [0.5, 1.0])
        >>> series.add(1, 5, "eval.checkpoint_gold", [0.5, -1.0])
        >>> [(one.step, one.unknown) for one in series.on_lineage({0: 5, 1: 100})]
        [(5, 1)]
        """
        current = [one for one in self.points if one.step < spans.get(one.attempt, -1)]
        current.sort(key=lambda one: (one.step, one.attempt))
        newest = current[-1] if current else None
        return [
            one
            for one in current
            if newest is not None and (one.reading, len(one.gold)) == (newest.reading, len(newest.gold))
        ]
