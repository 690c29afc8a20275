"""A run opened for reading and kept up to date: its verdict, its story, and every reading as columns."""

from __future__ import annotations

import hashlib
import threading
import time
from array import array
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from tiltmeter.journal import Event
from tiltmeter.records import Floats, Ints
from tiltmeter.store import RunDirectory
from tiltmeter.story import Story
from tiltmeter.verdict import Look, Verdict

REFRESH_SECONDS = 0.5  # looks that follow sooner are answered from the last one: a refresh lists the run's files


class Readings(NamedTuple):
    """One reading over steps, in step order; `stderr` is NaN where too few groups tell."""

    steps: Ints
    values: Floats
    n: Ints
    stderr: Floats


class Columns:
    """Every reading of a run by name, as arrays, built as events come in.

    >>> columns = Columns()
    >>> measured = {"reward.mean": [0.5, 64, 0.1]}
    >>> columns.add(Event("reading", 0, 3, {"measured": measured, "derived": {}}, "id"), Story())
    >>> columns.branch(0, "reward.mean").values.tolist()
    [0.5]
    """

    def __init__(self) -> None:
        self.version = 0
        self._found: dict[tuple[int, str], tuple[array[int], array[float], array[int], array[float]]] = {}
        self._names: dict[str, None] = {}
        self._spans: Mapping[int, float] = {}
        self._made: dict[tuple[object, ...], Readings] = {}

    def add(self, event: Event, story: Story) -> None:
        """Take the readings of an event; `story` is asked for the lineage when an attempt begins."""
        for part in ("measured", "derived"):
            for name, packed in event.data.get(part, {}).items():
                self._names.setdefault(name)
                steps, values, counts, errors = self._found.setdefault(
                    (event.attempt, name), (array("q"), array("d"), array("q"), array("d"))
                )
                steps.append(event.step)
                values.append(float(packed[0]))
                counts.append(int(packed[1]))
                errors.append(float("nan") if packed[2] is None else float(packed[2]))
        if event.kind in ("attempt", "step_done"):
            self._spans = story.spans()
        self.version += 1

    def names(self) -> list[str]:
        return list(self._names)

    def line(self, name: str) -> Readings:
        """A reading along the current lineage."""
        parts = [(attempt, 0.0, limit) for attempt, limit in self._spans.items()]
        return self._cut(("line", name, tuple(parts)), name, parts)

    def branch(self, attempt: int, name: str) -> Readings:
        """A reading at the steps of an attempt that a later attempt has left; of one without steps on the lineage,
        at all of them."""
        parts = [(attempt, self._spans.get(attempt, 0.0), float("inf"))]
        return self._cut(("branch", name, tuple(parts)), name, parts)

    def _cut(self, key: tuple[object, ...], name: str, parts: Iterable[tuple[int, float, float]]) -> Readings:
        """Those steps of each attempt that lie from `low` to below `high`, joined and in step order."""
        parts = [part for part in parts if (part[0], name) in self._found]
        key = (*key, sum(len(self._found[attempt, name][0]) for attempt, _, _ in parts))
        if key not in self._made:
            pieces = []
            for attempt, low, high in parts:
                steps, values, counts, errors = (np.array(column) for column in self._found[attempt, name])
                kept = (steps >= low) & (steps < high)
                pieces.append((steps[kept], values[kept], counts[kept], errors[kept]))
            empty = (np.empty(0, np.int64), np.empty(0), np.empty(0, np.int64), np.empty(0))
            joined = [np.concatenate([piece[k] for piece in [empty, *pieces]]) for k in range(4)]
            order = np.argsort(joined[0], kind="stable")
            if len(self._made) > 4096:
                self._made.clear()  # keys carry lengths, so a long run leaves old ones behind
            self._made[key] = Readings(*(column[order] for column in joined))
        return self._made[key]


class Book:
    """One run, opened for reading. `refresh` reads what was added since; everything else answers from memory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     book = Book(RunDirectory.create(f"{folder}/tonight"))
    ...     book.refresh().state, book.name
    ('STALE', 'tonight')
    """

    def __init__(self, run: RunDirectory) -> None:
        path = run.path.resolve()
        self.run, self.lock = run, threading.RLock()
        self.id = hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:12]
        #: Inside a trainer's output directory every run has the same name: there it is called as that directory is.
        self.name = path.parent.name if path.name == "tiltmeter" else path.name
        self.look = Look(run)
        self.columns = Columns()
        self._told = 0
        self._looked = float("-inf")
        self._verdict: Verdict | None = None

    @property
    def story(self) -> Story:
        return self.look.story

    @property
    def events(self) -> list[Event]:
        return self.look.events

    @property
    def verdict(self) -> Verdict:
        """As of the last refresh."""
        return self._verdict if self._verdict is not None else self.refresh()

    def refresh(self, *, impatient: bool = False) -> Verdict:
        """The verdict as it is now, at most half a second old. `impatient`: not older than this moment."""
        with self.lock:
            if not impatient and self._verdict is not None and time.monotonic() - self._looked < REFRESH_SECONDS:
                return self._verdict
            self._verdict = self.look.now()
            for event in self.events[self._told :]:
                self.columns.add(event, self.story)
            self._told = len(self.events)
            self._looked = time.monotonic()
            return self._verdict
