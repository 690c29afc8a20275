"""Completions that show what is said about a run: those a finding names, or those paid most and worth least."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tiltmeter.journal import Event
from tiltmeter.page.book import Book
from tiltmeter.page.samples import everywhere, gold_of, rollout_id, rollouts
from tiltmeter.page.words import findings, finite, short
from tiltmeter.records import Floats, RolloutBatch

TEXT = 200  # characters of a completion
MOST = 2_000  # exemplars that are remembered
COLUMNS = ("group", "reward", "gold", "completion")

Row = tuple[int, int, int]  # attempt, step, row in the joined batch


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
            batch, gold = _worth(book, *row[:2])
            if batch is None:
                gone.add(row[:2])
            else:
                known |= {key: _told(batch, gold, key) for key in wanted if key[:2] == row[:2] and key[2] < len(batch)}
        if row in known:
            made.append(known[row])
    return made


def paid_most(book: Book, attempt: int, step: int, n: int) -> list[Row]:
    """Of the quarter of a step that the reward pays most, the rows that gold values least; then by what was paid."""
    paid = book.folded("exemplars", _Remembered).paid
    if (attempt, step) not in paid:
        batch, gold = _worth(book, attempt, step)
        found: list[Row] = []
        if batch is not None and batch.reward is not None and np.isfinite(batch.reward).any():
            scored = np.flatnonzero(np.isfinite(batch.reward))
            worth = np.where(np.isfinite(gold), gold, 0.5)
            top = scored[batch.reward[scored] >= np.quantile(batch.reward[scored], 0.75)]
            order = top[np.lexsort((-batch.reward[top], worth[top]))][:n]
            found = [(attempt, step, int(row)) for row in order]
        paid[attempt, step] = found
        while len(paid) > 64:
            paid.pop(next(iter(paid)))
    return paid[attempt, step][:n]


def _row(row: Sequence[int]) -> Row:
    """As a journal has it, a list, or as a record has it."""
    return int(row[0]), int(row[1]), int(row[2])


def _worth(book: Book, attempt: int, step: int) -> tuple[RolloutBatch | None, Floats]:
    """The rollouts of a measured step with their gold; None if it was not measured, or was deleted since."""
    at = everywhere(book).get((attempt, step))
    batch = None if at is None else rollouts(book, at, COLUMNS)
    return batch, np.zeros(0) if at is None or batch is None else gold_of(book, at, batch)


def _told(batch: RolloutBatch, gold: Floats, row: Row) -> dict[str, Any]:
    text = batch.completion[row[2]] if batch.completion is not None else None
    return {
        "id": rollout_id(*row),
        "reward": None if batch.reward is None else finite(float(batch.reward[row[2]])),
        "gold": finite(float(gold[row[2]])),
        "text": short(text or "", TEXT),
    }
