"""From the numbers a trainer logged, row by row, to runs: steps in order, restarts apart, names translated, said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite, isnan
from pathlib import Path
from typing import Any

from tiltmeter.adapters.names import BOOKKEEPING, CLOCKS, KNOWN, translation
from tiltmeter.adapters.readers.foreign import Asked, Foreign
from tiltmeter.adapters.readers.jsonl import slug
from tiltmeter.batches import STEP_LIMIT
from tiltmeter.encode import log_line
from tiltmeter.errors import StoreError
from tiltmeter.evaluations import Evaluation

Numbers = dict[str, float]  # of one step, under the file's own names

#: Columns of `Asked` that are no scalar, and scalars that have no table of other trainers' names.
APART = ("step", "run", "checkpoint")
NO_LEASH = "no leash measured: these files have no KL to the reference"
NOTHING_BUT = "no rollouts, only what the trainer said of itself: without an evaluation (--eval) nothing is judged"
FEW = 3  # rows of a segment: where restarts are as frequent as that, the file is in no order at all
MANY = 10  # segments before that is judged


def whole(value: float | None, where: str) -> int:
    """A step as a whole number. Raises `StoreError` for anything else: a file is named after it."""
    if value is None or not isfinite(value) or value != int(value) or not 0 <= value <= STEP_LIMIT:
        told = "nothing" if value is None else f"{value:g}"
        raise StoreError(f"{where}: a step is a whole number from 0 to {STEP_LIMIT}, not {told}; name another column")
    return int(value)


@dataclass
class Course:
    """One run's logged numbers in the order in which they were written; `segments` has more than one after a restart.

    A row of an earlier step that only fills in what was missing there (an evaluation that came late) is put in its
    place. One that says anew what that step has already said is a restart: the run was resumed from before.

    >>> course = Course()
    >>> for step, loss in [(0, 1.0), (1, 0.9), (2, 0.8), (1, 0.7), (2, 0.6)]:
    ...     course.add(step, {"loss": loss})
    >>> [sorted(segment) for segment in course.segments]
    [[0, 1, 2], [1, 2]]
    """

    segments: list[dict[int, Numbers]] = field(default_factory=lambda: [{}])
    rows: int = 0
    late: int = 0
    same: int = 0  # rows that repeat what their step has
    differing: int = 0  # rows that contradict it, in place
    _newest: int = -1
    _said: dict[int, Numbers] = field(default_factory=dict, repr=False)

    def add(self, step: int, values: Numbers) -> None:
        if not values:
            return
        self.rows += 1
        said = self._said.get(step)  # in whatever segment
        shared = (values.keys() & said.keys()) - CLOCKS if said else set()
        if shared and step < self._newest and 2 * len(shared) > len(values.keys() - CLOCKS):
            self.segments.append({})
            self._newest = step
        known = self.segments[-1].get(step)
        if known is None:
            self.segments[-1][step] = self._said[step] = dict(values)
        else:
            self._again(known, values, shared)
        self.late += step < self._newest
        self._newest = max(self._newest, step)

    def _again(self, known: Numbers, values: Numbers, shared: set[str]) -> None:
        pairs = [(known[name], values[name]) for name in shared]
        if any(a != b and not (isnan(a) and isnan(b)) for a, b in pairs):
            self.differing += 1
        elif pairs and shared >= values.keys() - CLOCKS:
            self.same += 1
        known.update(values)

    def refuse_disorder(self, where: str) -> None:
        """Raises `StoreError` where the rows are not one run's series of steps."""
        steps = sum(map(len, self.segments))
        if self.differing >= FEW and self.differing > steps / 2:
            raise StoreError(
                f"{where}: most steps have several rows that differ. If these are several runs, name the columns that "
                "tell them apart: --map run=COLUMN (or run=A+B); if they are rollouts: --format generic"
            )
        if len(self.segments) > MANY and self.rows < FEW * len(self.segments):
            raise StoreError(
                f"{where}: steps go back {len(self.segments) - 1} times in {self.rows} rows. Sort the file by step, or "
                "name the columns that tell its runs apart: --map run=COLUMN (or run=A+B)"
            )

    def said(self) -> list[str]:
        told = []
        if self.late:
            told.append(f"{self.late} rows came after later steps and were put in their place")
        if self.same:
            told.append(f"{self.same} rows repeat their step and were counted once")
        if self.differing:
            told.append(f"{self.differing} rows differ from an earlier row of the same step: the last one stands")
        return told


def foreign(
    name: str,
    reader: str,
    course: Course,
    asked: Asked,
    *,
    where: str,
    said: Iterable[str] = (),
    settings: Mapping[str, Any] | None = None,
    beside: Iterable[str] = (),
) -> list[Foreign]:
    """The runs that a course of logged numbers is: one, or one a segment if the run was resumed.

    `beside`: columns that other runs of the same file have; this one may lack them.
    """
    course.refuse_disorder(where)
    segments = [dict(sorted(segment.items())) for segment in course.segments if segment]
    columns = dict.fromkeys(column for segment in segments for values in segment.values() for column in values)
    columns |= dict.fromkeys(beside)
    refuse_unknown(asked, columns, where)
    names = translation(columns, {ours: theirs for ours, theirs in asked.columns.items() if ours not in APART[:2]})
    common = [*said, *course.said(), *translated(names)]
    found = []
    for number, segment in enumerate(segments):
        own = list(common)
        if len(segments) > 1:
            own.append(f"the step goes back {len(segments) - 1} times (resumed): this is part {number}")
        scalars, leash = canonical(segment, names)
        evaluations, counted = evaluated(segment, asked, names, where)
        own += [leash, *counted] if leash else counted
        if not evaluations:
            own.append(NOTHING_BUT)
        called = f"{name}/{number}" if len(segments) > 1 else name
        found.append(
            Foreign(
                name=log_line(called, 200),
                reader=reader,
                said=tuple(own),
                settings=settings or {},
                scalars=scalars,
                evaluations=tuple(evaluations),
            )
        )
    return found


def refuse_unknown(asked: Asked, columns: Iterable[str], where: str) -> None:
    """Raises `StoreError` where the user names a column that is not there, or one of ours that does not exist."""
    known = list(columns)
    shown = ", ".join(log_line(column, 60) for column in known[:30]) or "none with a number"
    for ours, theirs in asked.columns.items():
        if ours not in KNOWN and ours not in APART and not ours.startswith("rewards/"):
            raise StoreError(f"{ours!r} is no scalar of ours: choose one of {', '.join((*APART, *KNOWN))}")
        if ours not in APART[:2] and theirs not in known:
            raise StoreError(f"{where}: there is no column {theirs!r} with a number; it has {shown}")
    for theirs, n in asked.evals.items():
        for column in (theirs, n):
            if isinstance(column, str) and column not in known and asked.columns.get(column) not in known:
                raise StoreError(f"{where}: there is no column {column!r} with a number; it has {shown}")


def refuse_split(asked: Asked, where: str, *, step: bool) -> None:
    """Raises `StoreError` where a tracker's log, which is one run with steps of its own, is to be cut otherwise."""
    if "run" in asked.columns:
        raise StoreError(f"{where}: each log is a run already: leave --map run= out")
    if step and "step" in asked.columns:
        raise StoreError(f"{where}: its steps are its own: leave --map step= out")


def translated(names: Mapping[str, str]) -> Iterator[str]:
    told = [f"{ours} is {log_line(theirs, 60)}" for theirs, ours in names.items() if ours in KNOWN and ours != theirs]
    if told:
        yield "; ".join(told)


def canonical(segment: Mapping[int, Numbers], names: Mapping[str, str]) -> tuple[dict[int, dict[str, float]], str]:
    """A segment's scalars under our names, and what is to be said about the leash, if anything.

    A KL that is exactly 0 at every step counts as not measured: trainers without a reference write that.
    """
    leashes = [theirs for theirs, ours in names.items() if ours == "kl_ref"]
    values = [numbers[theirs] for theirs in leashes for numbers in segment.values() if theirs in numbers]
    unmeasured = len(values) > 1 and not any(values)
    left = BOOKKEEPING | set(leashes if unmeasured else ())
    # Ours first: of a step only so many scalars are kept.
    order = [(theirs, ours) for theirs, ours in names.items() if theirs not in left]
    order.sort(key=lambda pair: pair[1] not in KNOWN)
    scalars = {
        step: {ours: numbers[theirs] for theirs, ours in order if theirs in numbers}
        for step, numbers in segment.items()
    }
    if unmeasured:
        return scalars, "no leash measured: the KL is exactly 0 at every step, as trainers write it without a reference"
    return scalars, "" if values else NO_LEASH


def evaluated(
    segment: Mapping[int, Numbers], asked: Asked, names: Mapping[str, str], where: str
) -> tuple[list[Evaluation], list[str]]:
    """The evaluations that a segment's columns are, and what is to be said of them."""
    found: list[Evaluation] = []
    told: list[str] = []
    taken: dict[str, str] = {}
    for raw, items in asked.evals.items():
        theirs = raw if raw in names else asked.columns[raw]
        name = slug(theirs)
        if name in taken:
            raise StoreError(f"{taken[name]!r} and {raw!r} are both the evaluation {name!r}: rename one in the file")
        taken[name] = raw
        series = {step: numbers[theirs] for step, numbers in segment.items() if not isnan(numbers.get(theirs, NAN))}
        counts, careful = item_counts(segment, series, items, asked, names, where)
        for step, value in series.items():
            if not 0.0 <= value <= 1.0:
                raise StoreError(
                    f"{where}: {log_line(theirs, 60)} is {value:g} at step {step}; an evaluation is a mean of scores "
                    "from 0 to 1: rescale the column (a percentage by 100), or name another"
                )
            found.append(Evaluation(0, step, name, value, counts[step]))
        n = sorted(set(counts.values()))
        shown = "no value" if not n else f"n = {n[0]}" if len(n) == 1 else f"n = {n[0]} to {n[-1]}"
        told.append(f"eval.{name} is {log_line(theirs, 60)}, taken as evaluations on one held-out set: "
                    f"{len(series)} values, {shown}{careful}")  # fmt: skip
    return sorted(found), told


NAN = float("nan")


def item_counts(
    segment: Mapping[int, Numbers],
    series: Mapping[int, float],
    items: int | str,
    asked: Asked,
    names: Mapping[str, str],
    where: str,
) -> tuple[dict[int, int], str]:
    """How many items are behind each value. Where the file does not say it for one, the smallest that it says."""
    if isinstance(items, int):
        if items < 1:
            raise StoreError(f"an evaluation has at least one item, not {items}: --eval COLUMN=N")
        return dict.fromkeys(series, items), ""
    column = items if items in names else asked.columns[items]
    given = {step: segment[step].get(column, NAN) for step in series}
    stated = {step: n for step, n in given.items() if not isnan(n)}
    for step, n in stated.items():
        if not isfinite(n) or n != int(n) or n < 1:
            raise StoreError(f"{where}: {log_line(column, 60)} is {n:g} at step {step}; items are counted in whole "
                             "numbers from 1 on: name another column, or a number")  # fmt: skip
    if series and not stated:
        raise StoreError(f"{where}: {log_line(column, 60)} has no number of items; give one: --eval COLUMN=N")
    least = min(stated.values(), default=1.0)
    lacking = len(series) - len(stated)
    careful = f"; {lacking} without n, where the smallest is taken, the careful choice" if lacking else ""
    return {step: int(stated.get(step, least)) for step in series}, careful


def distinct(runs: Iterable[Foreign]) -> list[Foreign]:
    """The same runs, each with a name of its own."""
    taken: dict[str, int] = {}
    found = []
    for run in runs:
        taken[run.name] = taken.get(run.name, 0) + 1
        found.append(run if taken[run.name] == 1 else replace(run, name=f"{run.name}.{taken[run.name]}"))
    return found


def stem(path: Path) -> str:
    """What a run is called after its file: the name without endings."""
    name = path.name.removesuffix(".gz")
    return name.rsplit(".", 1)[0] or name
