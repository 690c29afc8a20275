"""Every reading of a run with how far it has moved, and what cannot be read and the line that would show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tiltmeter.page.book import Book
from tiltmeter.page.series import number, plain
from tiltmeter.page.words import remedy, unseen
from tiltmeter.records import Floats
from tiltmeter.story import Story

SPARK = 24  # points of a small chart
WINDOW = 5  # steps at either end whose means are compared


def readings(book: Book) -> dict[str, Any]:
    """Every reading that has a value on the current branch, and every one that has none."""
    with book.lock:
        rows = []
        book.columns.gather(book.columns.names())
        for name in book.columns.names():
            values = book.columns.line(name).values
            values = values[np.isfinite(values)]
            if len(values):
                rows.append(
                    {
                        "name": name,
                        "first": number(float(values[0])),
                        "last": number(float(values[-1])),
                        "moved": number(moved(values), 4),
                        "spark": plain(spark(values), 4),
                    }
                )
        return {"readings": rows, "absent": absent(book.story)}


def absent(story: Story) -> list[dict[str, str]]:
    """What is not read, which columns it lacks and how to give them, what would show most first."""
    fixes = {lack: remedy(lack, imported=story.imported) for lack, _ in unseen(story)}
    return [{"name": name, "lacks": lack, "fix": fixes[lack]} for lack, names in unseen(story) for name in names]


def lacking(book: Book, name: str, column: str) -> str:
    """Why a reading is not there: the columns it lacks, by the monitor's own word if it has said so, and the fix."""
    if not book.story.steps:
        return "No step has been measured yet; to measure stored steps: tiltmeter watch RUN"
    said: Mapping[str, str] = book.story.absent
    lacks = said.get(name) or said.get(name.rpartition(".")[0]) or column
    how = remedy(lacks, imported=book.story.imported) or f"pass {lacks.split(', ')[0]}= to observe()"
    return f"No {name}: the column {lacks} is missing. To see it: {how}"


def moved(values: Floats, window: int = WINDOW) -> float:
    """How far a series has come from its beginning, in units of its own noise from step to step."""
    if len(values) < 2 * window:
        return 0.0
    change = abs(float(values[-window:].mean() - values[:window].mean()))
    # A smooth curve is not infinitely far.
    noise = max(float(np.abs(np.diff(values)).mean()), float(np.ptp(values)) / 50)
    return change / noise if noise > 1e-12 else 0.0


def spark(values: Floats, points: int = SPARK) -> Floats:
    """Means of so many stretches from start to now."""
    if len(values) <= points:
        return values
    edges = np.linspace(0, len(values), points + 1).astype(np.int64)
    return np.asarray(np.add.reduceat(values, edges[:-1]) / np.diff(edges), np.float64)
