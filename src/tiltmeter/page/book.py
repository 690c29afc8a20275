"""A run opened for reading and kept up to date: its verdict, its story, and every reading as columns."""

from __future__ import annotations

import hashlib
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from tiltmeter.errors import StoreError, TiltmeterError
from tiltmeter.journal import Event
from tiltmeter.records import Floats, Ints
from tiltmeter.store import RunDirectory
from tiltmeter.story import Story
from tiltmeter.verdict import Look, Verdict

Made = TypeVar("Made")
REFRESH_SECONDS = 0.5  # looks that follow sooner are answered from the last one: a refresh lists the run's files
_BLOCK = 256  # records gathered at once


class Readings(NamedTuple):
    """One reading over steps, in step order; `stderr` is NaN where too few groups tell."""

    steps: Ints
    values: Floats
    n: Ints
    stderr: Floats


@dataclass
class _Found:
    """One reading in the records of one shape, and how many of those have been read."""

    told: int = 0
    values: array[float] = field(default_factory=lambda: array("d"))
    n: array[int] = field(default_factory=lambda: array("q"))
    stderr: array[float] = field(default_factory=lambda: array("d"))


@dataclass
class _Shape:
    """Records that hold the same readings, in the order of the journal: what one has, all have."""

    names: frozenset[str]
    told: list[Mapping[str, Any]] = field(default_factory=list)
    places: array[int] = field(default_factory=lambda: array("q"))  # among the records of all shapes
    attempts: array[int] = field(default_factory=lambda: array("q"))
    steps: array[int] = field(default_factory=lambda: array("q"))
    found: dict[str, _Found] = field(default_factory=dict)

    def gather(self, names: Iterable[str]) -> None:
        """Bring these readings up to date, record by record: a record's readings lie together in memory."""
        behind: dict[int, list[str]] = {}
        for name in self.names.intersection(names):
            told = self.found.setdefault(name, _Found()).told
            if told < len(self.told):
                behind.setdefault(told, []).append(name)
        for told, wanted in behind.items():
            for start in range(told, len(self.told), _BLOCK):
                self._read(wanted, start, min(start + _BLOCK, len(self.told)))

    def _read(self, names: Sequence[str], start: int, stop: int) -> None:
        packed = [readings[name] for readings in self.told[start:stop] for name in names]
        table = (stop - start, len(names))
        values = np.array([one[0] for one in packed], np.float64).reshape(table)
        counts = np.array([one[1] for one in packed], np.int64).reshape(table)
        errors = np.array([one[2] for one in packed], np.float64).reshape(table)  # None becomes NaN
        for column, name in enumerate(names):
            found = self.found[name]
            found.values.frombytes(values[:, column].tobytes())
            found.n.frombytes(counts[:, column].tobytes())
            found.stderr.frombytes(errors[:, column].tobytes())
            found.told = stop


class Columns:
    """Every reading of a run by name, as arrays, built as events come in.

    >>> columns = Columns()
    >>> measured = {"reward.mean": [0.5, 64, 0.1]}
    >>> columns.add(Event("reading", 0, 3, {"measured": measured, "derived": {}}, "id"), Story())
    >>> columns.branch(0, "reward.mean").values.tolist()
    [0.5]
    """

    def __init__(self) -> None:
        self._shapes: dict[tuple[str, ...], _Shape] = {}
        self._records = 0
        self._names: dict[str, list[_Shape]] = {}
        self._spans: Mapping[int, float] = {}
        self._made: dict[tuple[object, ...], Readings] = {}

    def add(self, event: Event, story: Story) -> None:
        """Take the readings of an event; `story` is asked for the lineage when an attempt begins."""
        for part in ("measured", "derived"):
            if readings := event.data.get(part):
                shape = self._shapes.get(tuple(readings)) or self._shape(tuple(readings))
                shape.places.append(self._records)
                shape.attempts.append(event.attempt)
                shape.steps.append(event.step)
                shape.told.append(readings)
                self._records += 1
        if event.kind in ("attempt", "step_done"):
            self._spans = story.spans()

    def _shape(self, names: tuple[str, ...]) -> _Shape:
        made = self._shapes[names] = _Shape(frozenset(names))
        for name in names:
            self._names.setdefault(name, []).append(made)
        return made

    def names(self) -> list[str]:
        return list(self._names)

    def gather(self, names: Iterable[str]) -> None:
        """Read several readings in one pass; asked for one by one, each would go through the whole run."""
        wanted = [name for name in names if name in self._names]
        for shape in {id(shape): shape for name in wanted for shape in self._names[name]}.values():
            shape.gather(wanted)

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
        self.gather([name])  # when somebody first asks: of a hundred readings few are drawn
        shapes = self._names.get(name, [])
        key = (*key, sum(len(shape.told) for shape in shapes))
        if key not in self._made:
            attempts, steps = _joined([s.attempts for s in shapes], "q"), _joined([s.steps for s in shapes], "q")
            kept = np.zeros(len(steps), bool)
            for attempt, low, high in parts:
                kept |= (attempts == attempt) & (steps >= low) & (steps < high)
            rows = np.flatnonzero(kept)
            places = _joined([s.places for s in shapes], "q")
            order = rows[np.lexsort((places[rows], steps[rows]))]
            if len(self._made) > 4096:
                self._made.clear()  # keys carry lengths, so a long run leaves old ones behind
            told = [s.found[name] for s in shapes]
            values, errors = _joined([f.values for f in told], "d"), _joined([f.stderr for f in told], "d")
            n = _joined([f.n for f in told], "q")
            self._made[key] = Readings(steps[order], values[order], n[order], errors[order])
        return self._made[key]


def _joined(parts: Sequence[array[Any]], kind: str) -> NDArray[Any]:
    return np.concatenate([np.empty(0, kind), *(np.array(part, kind) for part in parts)])


def born(path: Path) -> tuple[int, int] | None:
    """Differs for a run that was deleted and begun anew under the same path; None: there is none there."""
    try:
        facts = (path / "run.json").stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_mtime_ns


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
        self.born = born(path)
        self._begin()

    def _begin(self) -> None:
        self.look = Look(self.run)
        self.columns = Columns()
        self._told = 0
        self._looked = float("-inf")
        self._verdict: Verdict | None = None
        self._kept: dict[Hashable, tuple[int, Any]] = {}
        self._answers: dict[str, OrderedDict[Hashable, Any]] = {}
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
        """The verdict as it is now, at most half a second old. `impatient`: not older than this moment.

        Raises `StoreError` for a run that cannot be read. It is then read from its beginning when asked again: a look
        that was broken off has passed over an event, and that may have been an alarm.
        """
        with self.lock:
            if not impatient and self._verdict is not None and time.monotonic() - self._looked < REFRESH_SECONDS:
                return self._verdict
            try:
                self._verdict = self.look.now()
                for event in self.events[self._told :]:
                    self.columns.add(event, self.story)
            except Exception as error:
                self._begin()
                if isinstance(error, TiltmeterError):
                    raise
                why = f"{type(error).__name__}: {str(error)[:200]}"
                raise StoreError(f"{self.run.path} cannot be read: {why}") from error
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

    def once(self, kind: str, key: Hashable, make: Callable[[], Made], most: int) -> Made:
        """What `make` answers, remembered by its key: of one kind at most so many, and those used last."""
        with self.lock:
            answers = self._answers.setdefault(kind, OrderedDict())
            if key in answers:
                answers.move_to_end(key)
                return cast(Made, answers[key])
        made = make()  # outside the lock: it reads files, and two who ask at once do no harm
        with self.lock:
            answers[key] = made
            while len(answers) > most:
                answers.popitem(last=False)
        return made

    def folded(self, key: Hashable, make: Callable[[], Folded]) -> Folded:
        """A fold that has been told every event so far: made once, and told only what is new when it is asked for
        again."""
        with self.lock:
            told, fold = self._folds.pop(key, None) or (0, make())  # one that fails in the middle is made anew
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
