"""What a run is compared with: rollouts of the reference policy where given, else of the run's own first steps.

Made once per run and read-only after. The first steps of the run can stand in for the reference policy because the
policy starts there; a reading that was compared with them says so (`Reading.against`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from tiltmeter.batches import join, take
from tiltmeter.records import Ints, RolloutBatch

ENOUGH = 256  # rollouts: quantiles of the start are then known to a few percent
PATIENCE = 8  # steps: with small batches the policy must not have moved far by the time the start is closed
MOST = 2_048  # rollouts kept: what a comparison costs must not grow with the cluster

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """Rollouts to compare with, and what instruments computed from them once.

    >>> from tiltmeter.batches import from_columns
    >>> start = Baseline(from_columns(0, [0, 0, 1], reward=[3.0, 1.0, 2.0]))
    >>> def ranked(batch): return np.sort(batch.reward)
    >>> start.once(ranked) is start.once(ranked), start.once(ranked).tolist()
    (True, [1.0, 2.0, 3.0])
    """

    batch: RolloutBatch
    source: Literal["reference", "start"] = "start"
    _made: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def once(self, make: Callable[[RolloutBatch], Made]) -> Made:
        """`make(self.batch)`, computed the first time it is asked for. `make` must be a named function."""
        key = (make.__module__, make.__qualname__)
        if key not in self._made:
            self._made[key] = make(self.batch)
        made: Made = self._made[key]
        return made

    def same_reward(self, batch: RolloutBatch) -> bool:
        """Whether both were paid by the same reward functions; across a change, differences mean nothing."""
        return self.batch.fingerprint == batch.fingerprint


def from_first(batches: Sequence[RolloutBatch]) -> Baseline | None:
    """The start of a run from its first measured steps, or None while they are too few to compare with."""
    filled = [batch for batch in batches if len(batch)]
    if sum(map(len, filled)) < ENOUGH and len(filled) < PATIENCE:
        return None
    return Baseline(_capped(join(filled, shared_groups=False)), "start")


def from_reference(batch: RolloutBatch) -> Baseline:
    return Baseline(_capped(batch), "reference")


def _capped(batch: RolloutBatch) -> RolloutBatch:
    """The first whole prompt groups, up to the limit (at least one)."""
    if len(batch) <= MOST:
        return batch
    ends: Ints = batch.starts[1:]
    return take(batch, np.arange(max(int(ends[ends <= MOST].max(initial=0)), int(ends[0]))))
