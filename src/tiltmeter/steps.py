"""A step after it was measured: its rollouts again, what its batch contained, and the events that closed it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiltmeter.batches import join
from tiltmeter.errors import StoreError
from tiltmeter.journal import Event
from tiltmeter.ranks import expand
from tiltmeter.records import FLAGS, RolloutBatch
from tiltmeter.store import RunDirectory, StepFile


def closed_steps(events: Iterable[Event]) -> Iterator[tuple[Event | None, Event]]:
    """What was read at each closed step (None: nothing could be), and later about it, with the event that closed it."""
    found: Event | None = None
    for item in events:
        if item.kind == "reading":
            found = item
        elif item.kind == "step_done":
            yield found, item
            found = None
        elif "measured" in item.data:
            yield item, item


def stored(
    run: RunDirectory,
    attempt: int,
    step: int,
    ranks: Sequence[Sequence[int]],
    columns: Sequence[str] | None = None,
) -> RolloutBatch:
    """The rollouts of these ranks (runs of neighbours), joined as they were when they were measured.

    Raises `StoreError` if a file is damaged or was deleted since.
    """
    wanted = set(expand(ranks))
    read = [run.read(file, columns) for file in run.find(attempt, step) if file.rank in wanted]
    if len(read) < len(wanted):
        raise StoreError(f"step {step} of attempt {attempt} is not stored any more")
    return join([batch for batch, _, _ in read], shared_groups=read[-1][1].get("groups") == "shared")


@dataclass
class Gathered:
    """What the files of a step hold, rank by rank."""

    batches: list[RolloutBatch] = field(default_factory=list)
    hashes: dict[int, str] = field(default_factory=dict)
    counters: dict[int, dict[str, Any]] = field(default_factory=dict)
    unreadable: dict[int, str] = field(default_factory=dict)  # why, by rank
    written: float = 0.0  # for display, and for calling a run stale
    shared: bool = False  # equal group ids on two ranks are one prompt group


def gather(run: RunDirectory, files: Iterable[StepFile]) -> Gathered:
    """Read the files of a step; what cannot be read is noted, and the others are used."""
    found = Gathered()
    for file in files:
        try:
            batch, facts, digest = _read(run, file)
        except StoreError as error:
            found.unreadable[file.rank] = f"{file.name}: {str(error)[:300]}"
            continue
        found.batches.append(batch)
        found.hashes[file.rank] = digest
        found.counters[file.rank] = {**(facts.get("counters") or {}), "why": (facts.get("faults") or [""])[-1]}
        found.written = max(found.written, float(facts.get("time", 0.0)))
        found.shared = facts.get("groups") == "shared"
    return found


def _read(run: RunDirectory, file: StepFile) -> tuple[RolloutBatch, dict[str, Any], str]:
    """A file of a step; if it was packed since it was listed, its packed copy."""
    try:
        return run.read(file)
    except StoreError:
        again = [other for other in run.find(file.attempt, file.step) if other.rank == file.rank]
        if not again or again[0].path == file.path:
            raise
        return run.read(again[0])


def contents(batch: RolloutBatch) -> dict[str, Any]:
    """What `step_done` says of a batch: rows with gold, rows without a value, whether gold and reward ever differ.

    >>> from tiltmeter.batches import from_columns
    >>> contents(from_columns(0, [0, 0], reward=[1, None], gold=[1, 0]))
    {'labels': 2, 'unscored': {'reward': {'missing': 1}}, 'gold_differs': False}
    """
    labels = 0 if batch.gold is None else int(np.isfinite(batch.gold).sum())
    return {"labels": labels, "unscored": _unscored(batch), "gold_differs": _gold_differs(batch)}


def _gold_differs(batch: RolloutBatch) -> bool:
    """Whether gold ever says something that the reward does not: the same function twice can never alarm."""
    if batch.gold is None or batch.reward is None:
        return batch.gold is not None
    both = np.isfinite(batch.gold) & np.isfinite(batch.reward)
    # Within rounding: a reward kept in float32 and the same numbers in float64 are one function.
    return not np.allclose(batch.gold[both], batch.reward[both], rtol=1e-4, atol=1e-6)


def _unscored(batch: RolloutBatch) -> dict[str, dict[str, int]]:
    """How many rows of each column are not plain values, by reason."""
    return {
        column: {FLAGS[code]: int(count) for code, count in enumerate(np.bincount(codes)) if code and count}
        for column, codes in batch.flags.items()
    }
