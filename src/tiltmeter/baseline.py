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
from tiltmeter.records import RAGGED_COLUMNS, TEXT_COLUMNS, RolloutBatch

ENOUGH = 256  # rollouts: quantiles of the start are then known to a few percent
PATIENCE = 8  # steps: with small batches the policy must not have moved far by the time the start is closed
MOST = 2_048  # rollouts kept: what a comparison costs must not grow with the cluster

Made = TypeVar("Made")
#: "later": the first steps were deleted, and steps after them stand in.
Source = Literal["reference", "start", "later"]


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
    source: Source = "start"
    last: int = -1  # its last step, where it is made of steps of the run: those are not compared with themselves
    _made: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def once(self, make: Callable[[RolloutBatch], Made]) -> Made:
        """`make(self.batch)`, computed the first time it is asked for. `make` must be a named function."""
        if make not in self._made:
            self._made[make] = make(self.batch)
        made: Made = self._made[make]
        return made

    def same_reward(self, batch: RolloutBatch) -> bool:
        """Whether both were paid by the same reward functions; across a change, differences mean nothing."""
        return self.batch.fingerprint == batch.fingerprint


class Start:
    """Collects a run's first steps until they are enough to compare later ones with."""

    def __init__(self) -> None:
        self._batches: list[RolloutBatch] = []
        self._gone = False

    def rewind(self, step: int) -> None:
        """A new attempt begins at this step: what was collected from there on is no longer part of the run."""
        self._batches = [batch for batch in self._batches if batch.step < step]

    def add(self, batch: RolloutBatch | None) -> Baseline | None:
        """One more step, in the order measured; the start once there is one. None: its rollouts were deleted since."""
        if batch is None:
            self._gone = True
            return None
        if not len(batch):
            return None
        if self._batches and self._batches[-1].fingerprint != batch.fingerprint:
            self._batches = []  # paid by another reward: not the start of what is trained now
        self._batches.append(batch)
        return from_first(self._batches, "later" if self._gone else "start")


class Comparison:
    """What the steps of one run are compared with: the reference it was given, or its first steps once they are enough.

    >>> compared = Comparison(None)
    >>> compared.against(0) is None, compared.news is None
    (True, True)
    """

    def __init__(self, reference: RolloutBatch | None) -> None:
        self.baseline = from_reference(reference) if reference is not None and len(reference) else None
        self.told = ""  # the source that the journal names
        self._start = Start()

    @property
    def news(self) -> Baseline | None:
        """The baseline, where the journal does not name it yet."""
        return self.baseline if self.baseline is not None and self.told != self.baseline.source else None

    def against(self, step: int) -> Baseline | None:
        """What this step is compared with; the steps that make up the start are not compared with themselves."""
        return self.baseline if self.baseline is not None and step > self.baseline.last else None

    def add(self, batch: RolloutBatch | None) -> None:
        """A measured step, in order; None: its rollouts were deleted since."""
        if self.baseline is None:
            self.baseline = self._start.add(batch)

    def rewind(self, step: int) -> None:
        self._start.rewind(step)


def from_first(batches: Sequence[RolloutBatch], source: Source = "start") -> Baseline | None:
    """The start of a run from its first measured steps, or None while they are too few to compare with.

    A step that lost its text or token columns on the way (a full queue, a full disk) is left out: joined with the
    others it would take those columns from all of them.
    """
    batches = [batch for batch in batches if len(batch)]
    richest = max(map(_columns, batches), key=len, default=frozenset())
    whole = [batch for batch in batches if _columns(batch) >= richest]
    if not whole or (sum(map(len, whole)) < ENOUGH and len(batches) < PATIENCE):
        return None
    return Baseline(_capped(join(whole, shared_groups=False)), source, max(batch.step for batch in batches))


def from_reference(batch: RolloutBatch) -> Baseline:
    return Baseline(_capped(batch), "reference")


def _columns(batch: RolloutBatch) -> frozenset[str]:
    return frozenset(name for name in (*TEXT_COLUMNS, *RAGGED_COLUMNS) if getattr(batch, name) is not None)


def _capped(batch: RolloutBatch) -> RolloutBatch:
    """At most `MOST` rows: prompt groups spread evenly over the batch, of very large ones the first rows."""
    if len(batch) <= MOST:
        return batch
    sizes = np.minimum(np.diff(batch.starts), MOST // min(len(batch.starts) - 1, 16))
    kept = np.unique(np.linspace(0, len(sizes) - 1, max(1, int(MOST // sizes.mean()))).astype(np.int64))
    kept = kept[np.cumsum(sizes[kept]) <= MOST]
    rows = [np.arange(batch.starts[group], batch.starts[group] + sizes[group]) for group in kept]
    return take(batch, np.concatenate(rows))
