"""The baseline of a run: rollouts of the reference policy if given, else those of the run's own first steps.

Fixed once per run. The first steps can replace the reference policy because training starts from it; a reading that
was compared with them says so (`PreferenceData.contradiction`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np

from tiltmeter.data.batches import join, take
from tiltmeter.data.records import RAGGED_COLUMNS, TEXT_COLUMNS, RolloutBatch

MIN_ROLLOUTS = 256  # rollouts: enough to estimate quantiles to a few percent
MAX_STEPS = 8  # steps: with small batches, stop collecting before the policy has moved far
MAX_ROLLOUTS = 2_048  # rollouts kept: the cost of a comparison must not grow with the batch size

T = TypeVar("T")
#: "later": the first steps were deleted, and later steps are used instead.
Source = Literal["reference", "start", "later"]


@dataclass(frozen=True, slots=True, eq=False)
class Baseline:
    """Rollouts to compare with, and a cache of what instruments computed from them.

    >>> from tiltmeter.data.batches import from_columns
    >>> start = Baseline(from_columns(0, [0, 0, 1], reward=[3.0, 1.0, 2.0]))
    >>> def ranked(batch): return np.sort(batch.reward)
    >>> start.once(ranked) is start.once(ranked), start.once(ranked).tolist()
    (True, [1.0, 2.0, 3.0])
    """

    batch: RolloutBatch
    source: Source = "start"
    last: int = -1  # its last step, if it consists of steps of the run: those are not compared with themselves
    _cache: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def once(self, make: Callable[[RolloutBatch], T]) -> T:
        """`make(self.batch)`, computed once and cached. `make` must be a named function, which is the cache key."""
        if make not in self._cache:
            self._cache[make] = make(self.batch)
        result: T = self._cache[make]
        return result

    def same_reward(self, batch: RolloutBatch) -> bool:
        """Whether both have the same reward functions; across a change of reward, differences mean nothing."""
        return self.batch.fingerprint == batch.fingerprint


class FirstSteps:
    """Collects a run's first steps until they are enough to compare later ones with."""

    def __init__(self) -> None:
        self._batches: list[RolloutBatch] = []
        self._deleted = False

    def rewind(self, step: int) -> None:
        """A new attempt begins at this step: what was collected from there on is no longer part of the run."""
        self._batches = [batch for batch in self._batches if batch.step < step]

    def add(self, batch: RolloutBatch | None) -> Baseline | None:
        """Add a step, in the order measured; the baseline once there are enough. None: its rollouts were deleted."""
        if batch is None:
            self._deleted = True
            return None
        if not len(batch):
            return None
        if self._batches and self._batches[-1].fingerprint != batch.fingerprint:
            self._batches = []  # another reward: these steps are no baseline for the current one
        self._batches.append(batch)
        return from_first(self._batches, "later" if self._deleted else "start")


class Comparison:
    """The baseline of one run: the given reference, or the first steps once there are enough of them.

    >>> compared = Comparison(None)
    >>> compared.against(0) is None, compared.unrecorded_baseline is None
    (True, True)
    """

    def __init__(self, reference: RolloutBatch | None) -> None:
        self.baseline = from_reference(reference) if reference is not None and len(reference) else None
        self.recorded_source = ""  # the source that the journal has recorded
        self._first_steps = FirstSteps()

    @property
    def unrecorded_baseline(self) -> Baseline | None:
        """The baseline, if the journal has not recorded it yet."""
        return self.baseline if self.baseline is not None and self.recorded_source != self.baseline.source else None

    def against(self, step: int) -> Baseline | None:
        """The baseline for this step; None for the steps that make up the baseline."""
        return self.baseline if self.baseline is not None and step > self.baseline.last else None

    def add(self, batch: RolloutBatch | None) -> None:
        """A measured step, in order; None: its rollouts were deleted since."""
        if self.baseline is None:
            self.baseline = self._first_steps.add(batch)

    def rewind(self, step: int) -> None:
        self._first_steps.rewind(step)


def from_first(batches: Sequence[RolloutBatch], source: Source = "start") -> Baseline | None:
    """The baseline from a run's first measured steps, or None while they are too few.

    A step that lost its text or token columns on the way (a full queue, a full disk) is left out: joined with the
    others it would take those columns from all of them.
    """
    batches = [batch for batch in batches if len(batch)]
    richest = max(map(_columns, batches), key=len, default=frozenset())
    whole = [batch for batch in batches if _columns(batch) >= richest]
    if not whole or (sum(map(len, whole)) < MIN_ROLLOUTS and len(batches) < MAX_STEPS):
        return None
    return Baseline(_cap_rows(join(whole, shared_groups=False)), source, max(batch.step for batch in batches))


def from_reference(batch: RolloutBatch) -> Baseline:
    return Baseline(_cap_rows(batch), "reference")


def _columns(batch: RolloutBatch) -> frozenset[str]:
    return frozenset(name for name in (*TEXT_COLUMNS, *RAGGED_COLUMNS) if getattr(batch, name) is not None)


def _cap_rows(batch: RolloutBatch) -> RolloutBatch:
    """At most `MAX_ROLLOUTS` rows: prompt groups spread evenly over the batch, of very large groups the first rows."""
    if len(batch) <= MAX_ROLLOUTS:
        return batch
    sizes = np.minimum(np.diff(batch.starts), MAX_ROLLOUTS // min(len(batch.starts) - 1, 16))
    groups = np.unique(np.linspace(0, len(sizes) - 1, max(1, int(MAX_ROLLOUTS // sizes.mean()))).astype(np.int64))
    groups = groups[np.cumsum(sizes[groups]) <= MAX_ROLLOUTS]
    rows = [np.arange(batch.starts[group], batch.starts[group] + sizes[group]) for group in groups]
    return take(batch, np.concatenate(rows))
