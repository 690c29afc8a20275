"""Sampling of measured steps over a run, and reading their rollouts and gold.

A long run has too many files to read all of them for a plot. Steps are sampled at a stride that doubles as the run
grows, so that the next request finds most of them in the cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tiltmeter.data.records import Floats, RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.gold.label_files import read_labels, read_request
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.step_files import read_step
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.view.screens.run_reader import RunReader


class MeasuredStep(NamedTuple):
    """One measured step and where its rollouts are."""

    attempt: int
    step: int
    ranks: Sequence[Sequence[int]]
    rows: int

    def rollout_id(self, row: int) -> str:
        """The id of a rollout, as all routes use it."""
        return rollout_id(self.attempt, self.step, row)


def rollout_id(attempt: int, step: int, row: int) -> str:
    """
    >>> rollout_id(0, 612, 7)
    '0-612-7'
    """
    return f"{attempt}-{step}-{row}"


class _MeasuredSteps:
    """Every measured step with rollouts, by attempt and step: at first those that the state of the run has."""

    of_rare = True

    def __init__(self, run_facts: RunFacts) -> None:
        table, rank_sets = run_facts.with_rollouts, [[list(part) for part in ranks] for ranks in run_facts.rank_sets]
        columns = (table.attempts, table.steps, table.values, table.counts)
        self.steps = {
            (attempt, step): MeasuredStep(attempt, step, rank_sets[int(number)], int(rows))
            for attempt, step, rows, number in zip(*(column.tolist() for column in columns), strict=True)
        }

    def add(self, event: Event, /) -> None:
        if event.kind == "step_done" and event.data.get("rows") and event.data.get("ranks"):
            at = MeasuredStep(event.attempt, event.step, event.data["ranks"], int(event.data["rows"]))
            self.steps[event.attempt, event.step] = at


def all_measured_steps(reader: RunReader) -> dict[tuple[int, int], MeasuredStep]:
    """Every measured step with rollouts, abandoned steps included."""
    return reader.get_fold("samples", lambda: _MeasuredSteps(reader.run_facts)).steps


def measured_steps(reader: RunReader, low: int | None = None, high: int | None = None) -> list[MeasuredStep]:
    """The steps of the current lineage that have rollouts, in order."""
    spans = reader.run_facts.spans()
    by_step = {
        at.step: at
        for at in all_measured_steps(reader).values()
        if at.step < spans.get(at.attempt, -1) and (low is None or at.step >= low) and (high is None or at.step <= high)
    }
    return [by_step[step] for step in sorted(by_step)]


def sampling_stride(steps: Sequence[MeasuredStep], most: int) -> int:
    """The smallest power-of-two stride that samples at most so many steps."""
    size = 1
    while len(steps) > most * size:
        size *= 2
    return size


def evenly_spaced(steps: Sequence[MeasuredStep], most: int) -> list[MeasuredStep]:
    """Steps at an even stride from the first, and the last one."""
    chosen = list(steps[:: sampling_stride(steps, most)])
    return chosen if not steps or chosen[-1] == steps[-1] else [*chosen, steps[-1]]


def read_rollouts(reader: RunReader, at: MeasuredStep, columns: Sequence[str]) -> RolloutBatch | None:
    """The rollouts of a step, only these columns; None where they are damaged or were deleted."""
    try:
        return read_step(reader.run, at.attempt, at.step, at.ranks, columns)
    except StoreError:
        return None


def gold_of(reader: RunReader, at: MeasuredStep, batch: RolloutBatch) -> Floats:
    """Gold by row, from the trainer or from the gold source; NaN where there is no label."""
    gold = np.full(len(batch), np.nan) if batch.gold is None else batch.gold.copy()
    if reader.run_facts.gold is None and not reader.run_facts.judges:
        return gold
    try:
        request = read_request(reader.run, at.attempt, at.step)
    except StoreError:
        request = None
    if request is not None:
        for (attempt, step, row), label in zip(request.rows, read_labels(reader.run, request), strict=True):
            in_batch = (attempt, step) == (at.attempt, at.step) and row < len(batch)
            if in_batch and label is not None and label.value is not None:
                gold[row] = label.value
    return gold
