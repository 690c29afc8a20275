"""Completions that show what is said about a run: those a finding names, or those paid most and worth least."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tiltmeter.errors import StoreError
from tiltmeter.gold.files import labels, recorded
from tiltmeter.journal import Event
from tiltmeter.page.book import Book
from tiltmeter.page.history import History
from tiltmeter.page.words import findings, short
from tiltmeter.records import Floats, RolloutBatch
from tiltmeter.steps import stored
from tiltmeter.store import RunDirectory

TEXT = 200  # characters of a completion
MOST = 2_000  # exemplars that are remembered
COLUMNS = ("group", "reward", "gold", "completion")

Row = tuple[int, int, int]  # attempt, step, row in the joined batch


def rollout_id(attempt: int, step: int, row: int) -> str:
    """
    >>> rollout_id(0, 612, 7)
    '0-612-7'
    """
    return f"{attempt}-{step}-{row}"


class _Remembered:
    """Exemplars that were read from files; those of a step are read again when its labels have come."""

    def __init__(self) -> None:
        self.rows: dict[Row, dict[str, Any]] = {}
        self.paid: dict[tuple[int, int], list[Row]] = {}

    def add(self, event: Event) -> None:
        here = (event.attempt, event.step)
        if len(self.rows) > MOST:
            self.rows = {}
        elif event.kind == "labels_closed":
            self.rows = {key: row for key, row in self.rows.items() if key[:2] != here}
            self.paid.pop(here, None)


def proofs(book: Book, n: int = 10) -> list[dict[str, Any]]:
    """The completions that the surest findings name; after those, what the newest step pays most for least."""
    rows = list(dict.fromkeys(_row(row) for finding in findings(book.story) for row in finding.exemplars))
    made = exemplars(book, rows, n)
    if len(made) < n and book.story.attempt is not None:
        here = paid_most(book, book.story.attempt, book.story.last_step, n)
        made += exemplars(book, [row for row in here if row not in rows], n - len(made))
    return made


def exemplars(book: Book, rows: Iterable[Sequence[int]], n: int) -> list[dict[str, Any]]:
    """The first n of these rows that are still stored, with what they were paid and are worth."""
    known = book.folded("exemplars", _Remembered).rows
    wanted = [_row(row) for row in rows]
    made: list[dict[str, Any]] = []
    gone: set[tuple[int, int]] = set()
    for row in wanted:
        if len(made) == n:
            break
        if row not in known and row[:2] not in gone:
            batch = _batch(book, *row[:2])
            if batch is None:
                gone.add(row[:2])
            else:
                gold = gold_of(book.run, batch)
                known |= {key: _told(batch, gold, key) for key in wanted if key[:2] == row[:2] and key[2] < len(batch)}
        if row in known:
            made.append(known[row])
    return made


def paid_most(book: Book, attempt: int, step: int, n: int) -> list[Row]:
    """Of the quarter of a step that the reward pays most, the rows that gold values least; then by what was paid."""
    paid = book.folded("exemplars", _Remembered).paid
    if (attempt, step) not in paid:
        batch = _batch(book, attempt, step)
        found: list[Row] = []
        if batch is not None and batch.reward is not None and np.isfinite(batch.reward).any():
            scored = np.flatnonzero(np.isfinite(batch.reward))
            gold = gold_of(book.run, batch)
            worth = np.where(np.isfinite(gold), gold, 0.5)
            top = scored[batch.reward[scored] >= np.quantile(batch.reward[scored], 0.75)]
            order = top[np.lexsort((-batch.reward[top], worth[top]))][:n]
            found = [(attempt, step, int(row)) for row in order]
        paid[attempt, step] = found
        while len(paid) > 64:
            paid.pop(next(iter(paid)))
    return paid[attempt, step][:n]


def gold_of(run: RunDirectory, batch: RolloutBatch) -> Floats:
    """Gold by row, given with the rollouts or bought for this step; NaN where there is none."""
    if batch.gold is not None:
        return batch.gold
    gold = np.full(len(batch), np.nan)
    try:
        asked = recorded(run, batch.attempt, batch.step)
    except StoreError:
        asked = None
    if asked is not None:
        for (attempt, step, row), label in zip(asked.rows, labels(run, asked), strict=True):
            if (attempt, step) == (batch.attempt, batch.step) and row < len(batch) and label is not None:
                gold[row] = np.nan if label.value is None else label.value
    return gold


def _row(row: Sequence[int]) -> Row:
    """As a journal has it, a list, or as a record has it."""
    return int(row[0]), int(row[1]), int(row[2])


def _batch(book: Book, attempt: int, step: int) -> RolloutBatch | None:
    """The rollouts of a measured step; None if it was not measured, or was deleted since."""
    ranks = book.folded("history", History).ranks.get((attempt, step))
    try:
        return None if not ranks else stored(book.run, attempt, step, ranks, COLUMNS)
    except StoreError:
        return None


def _told(batch: RolloutBatch, gold: Floats, row: Row) -> dict[str, Any]:
    text = batch.completion[row[2]] if batch.completion is not None else None
    return {
        "id": rollout_id(*row),
        "reward": None if batch.reward is None else _finite(float(batch.reward[row[2]])),
        "gold": _finite(float(gold[row[2]])),
        "text": short(text or "", TEXT),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
