"""A run opened for reading and kept up to date: its verdict, its story, and every reading as columns."""

from __future__ import annotations

import hashlib
import threading
import time
from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np

from tiltmeter.journal import Event
from tiltmeter.records import Floats, Ints
from tiltmeter.store import RunDirectory
from tiltmeter.story import Story
from tiltmeter.verdict import Look, Verdict

Made = TypeVar("Made")
REFRESH_SECONDS = 0.5  # looks that follow sooner are answered from the last one: a refresh lists the run's files


class Readings(NamedTuple):
    """One reading over steps, in step order; `stderr` is NaN where too few groups tell."""

    steps: Ints
    values: Floats
    n: Ints
    stderr: Floats


@dataclass
class _Found:
    """One reading as it was told, in the order of the journal, and how far that has been read."""

    told: int = 0
    attempts: array[int] = field(default_factory=lambda: array("q"))
    steps: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    n: array[int] = field(default_factory=lambda: array("q"))
    stderr: array[float] = field(default_factory=lambda: array("d"))


class Columns:
    """Every reading of a run by name, as arrays, built as events come in.

    >>> columns = Columns()
    >>> measured = {"reward.mean": [0.5, 64, 0.1]}
    >>> columns.add(Event("reading", 0, 3, {"measured": measured, "derived": {}}, "id"), Story())
    >>> columns.branch(0, "reward.mean").values.tolist()
    [0.5]
    """

    def __init__(self) -> None:
        self._told: list[tuple[int, int, Mapping[str, Any]]] = []  # attempt, step, readings as the journal has them
        self._found: dict[str, _Found] = {}
        self._names: dict[str, None] = {}
        self._spans: Mapping[int, float] = {}
        self._made: dict[tuple[object, ...], Readings] = {}

    def add(self, event: Event, story: Story) -> None:
        """Take the readings of an event; `story` is asked for the lineage when an attempt begins."""
        for part in ("measured", "derived"):
            if readings := event.data.get(part):
                self._told.append((event.attempt, event.step, readings))
                if not readings.keys() <= self._names.keys():
                    self._names |= dict.fromkeys(readings)
        if event.kind in ("attempt", "step_done"):
            self._spans = story.spans()

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

    def _cut(self, key: tuple[object, ...], name: str, parts: Sequence[tuple[int, float, float]]) -> Readings:
        """Those steps of each attempt that lie from `low` to below `high`, in step order."""
        found = self._gathered(name)
        key = (*key, len(found.steps))
        if key not in self._made:
            attempts, steps = np.array(found.attempts, np.int64), np.array(found.steps, np.int64)
            kept = np.zeros(len(steps), bool)
            for attempt, low, high in parts:
                kept |= (attempts == attempt) & (steps >= low) & (steps < high)
            order = np.flatnonzero(kept)[np.argsort(steps[kept], kind="stable")]
            if len(self._made) > 4096:
                self._made.clear()  # keys carry lengths, so a long run leaves old ones behind
            values, errors = np.array(found.values, np.float64), np.array(found.stderr, np.float64)
            n = np.array(found.n, np.int64)
            self._made[key] = Readings(steps[order], values[order], n[order], errors[order])
        return self._made[key]

    def _gathered(self, name: str) -> _Found:
        """What was told of a reading, gathered when somebody first asks: of a hundred readings few are drawn."""
        found = self._found.setdefault(name, _Found())
        for attempt, step, readings in self._told[found.told :]:
            if (packed := readings.get(name)) is not None:
                found.attempts.append(attempt)
                found.steps.append(step)
                found.values.append(float(packed[0]))
                found.n.append(int(packed[1]))
                found.stderr.append(float("nan") if packed[2] is None else float(packed[2]))
        found.told = len(self._told)
        return found


class Fold(Protocol):
    """Something that is told every event, in order, and remembers what it needs."""

    def add(self, event: Event, /) -> None: ...


Folded = TypeVar("Folded", bound=Fold)


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
        self._kept: dict[Hashable, tuple[int, Any]] = {}
        self._folds: dict[Hashable, tuple[int, Any]] = {}

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

    def kept(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What `make` answers, asked once for as long as no event is added. Keys are names, not what clients send."""
        with self.lock:
            known, made = self._kept.get(key, (-1, None))
            if known != len(self.events):
                made = make()
                self._kept[key] = (len(self.events), made)
            return cast(Made, made)

    def folded(self, key: Hashable, make: Callable[[], Folded]) -> Folded:
        """A fold that has been told every event so far: made once, and told only what is new when it is asked for
        again."""
        with self.lock:
            told, fold = self._folds.get(key) or (0, make())
            for event in self.events[told:]:
                fold.add(event)
            self._folds[key] = (len(self.events), fold)
            return cast(Folded, fold)

    @property
    def age(self) -> float | None:
        """Seconds since the newest rollouts were written; None: there are none, or nobody has looked."""
        last = self.look.ages
        if last is None or (not self.story.recent and not any(self.run.files(a, []) for a in self.run.attempts())):
            return None
        return max(0.0, time.time() - self.look.looked + last.data)
