"""Rollouts of some steps, spread over a run: what plots and texts of single completions are made from.

A long run has too many files to read for one look. Steps are taken at a stride that doubles as the run grows, so that
the next look finds most of them read already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tiltmeter.errors import StoreError
from tiltmeter.gold.files import labels, recorded
from tiltmeter.journal import Event
from tiltmeter.page.book import Book
from tiltmeter.records import Floats, RolloutBatch
from tiltmeter.steps import stored


class At(NamedTuple):
    """One measured step and where its rollouts are."""

    attempt: int
    step: int
    ranks: Sequence[Sequence[int]]
    rows: int

    def id(self, row: int) -> str:
        """What the other routes call a rollout."""
        return rollout_id(self.attempt, self.step, row)


def rollout_id(attempt: int, step: int, row: int) -> str:
    """
    >>> rollout_id(0, 612, 7)
    '0-612-7'
    """
    return f"{attempt}-{step}-{row}"


class _Done:
    """Every measured step with rollouts, by attempt and step."""

    def __init__(self) -> None:
        self.steps: dict[tuple[int, int], At] = {}

    def add(self, event: Event, /) -> None:
        if event.kind == "step_done" and event.data.get("rows") and event.data.get("ranks"):
            at = At(event.attempt, event.step, event.data["ranks"], int(event.data["rows"]))
            self.steps[event.attempt, event.step] = at


def everywhere(book: Book) -> dict[tuple[int, int], At]:
    """Every measured step with rollouts, abandoned ones too."""
    return book.folded("samples", _Done).steps


def measured(book: Book, low: int | None = None, high: int | None = None) -> list[At]:
    """The steps of the current lineage that have rollouts, in order."""
    spans = book.story.spans()
    found = {
        at.step: at
        for at in everywhere(book).values()
        if at.step < spans.get(at.attempt, -1) and (low is None or at.step >= low) and (high is None or at.step <= high)
    }
    return [found[step] for step in sorted(found)]


def stride(steps: Sequence[At], most: int) -> int:
    """The smallest power of two at which no more than so many steps are taken."""
    taken = 1
    while len(steps) > most * taken:
        taken *= 2
    return taken


def spread(steps: Sequence[At], most: int) -> list[At]:
    """Steps at an even stride from the first on, and the last."""
    taken = list(steps[:: stride(steps, most)])
    return taken if not steps or taken[-1] == steps[-1] else [*taken, steps[-1]]


def rollouts(book: Book, at: At, columns: Sequence[str]) -> RolloutBatch | None:
    """The rollouts of a step, only these columns; None where they are damaged or were deleted."""
    try:
        return stored(book.run, at.attempt, at.step, at.ranks, columns)
    except StoreError:
        return None


def gold_of(book: Book, at: At, batch: RolloutBatch) -> Floats:
    """Gold by row, as the trainer gave it or as it was bought; NaN where nobody was asked or nobody answered."""
    known = np.full(len(batch), np.nan) if batch.gold is None else batch.gold.copy()
    if book.story.gold is None and not book.story.judges:
        return known
    try:
        asked = recorded(book.run, at.attempt, at.step)
    except StoreError:
        asked = None
    if asked is not None:
        for (attempt, step, row), label in zip(asked.rows, labels(book.run, asked), strict=True):
            here = (attempt, step) == (at.attempt, at.step) and row < len(batch)
            if here and label is not None and label.value is not None:
                known[row] = label.value
    return known
