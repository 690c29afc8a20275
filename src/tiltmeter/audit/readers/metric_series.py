"""Makes runs of logged metrics: steps in order, restarts as separate runs, canonical names, and notes for the user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import isfinite, isnan
from pathlib import Path
from typing import Any

from tiltmeter.adapters.metric_names import ALIASES, BOOKKEEPING, CLOCKS, translation
from tiltmeter.audit.readers.external_run import ExternalRun, ReadOptions
from tiltmeter.data.batches import STEP_LIMIT
from tiltmeter.errors import StoreError
from tiltmeter.rundir.evaluations import Evaluation, slug
from tiltmeter.safety.safe_text import log_line

Numbers = dict[str, float]  # of one step, under the file's own names

#: Columns of the options that are no scalar, and scalars without aliases.
NOT_SCALARS = ("step", "run", "checkpoint")
NO_KL = "no KL measured: these files have no KL to the reference"
NO_ROLLOUTS = "no rollouts, only what the trainer said of itself: without an evaluation (--eval) nothing is judged"
FEW = 3  # rows per segment: with fewer, the file is not in the order of steps
MANY = 10  # segments before that is checked


def parse_step(value: float | None, where: str) -> int:
    """A step as a whole number. Raises `StoreError` for anything else: a file is named after it."""
    if value is None or not isfinite(value) or value != int(value) or not 0 <= value <= STEP_LIMIT:
        text = "nothing" if value is None else f"{value:g}"
        raise StoreError(f"{where}: a step is a whole number from 0 to {STEP_LIMIT}, not {text}; name another column")
    return int(value)


@dataclass
class MetricSeries:
    """One run's logged numbers in the order in which they were written; `segments` has more than one after a restart.

    A row of an earlier step that only adds missing values (a late evaluation) is merged into that step. A row that
    logs the same columns again is a restart: the run was resumed from an earlier step.

    >>> course = MetricSeries()
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
    _logged: dict[int, Numbers] = field(default_factory=dict, repr=False)

    def add(self, step: int, values: Numbers) -> None:
        if not values:
            return
        self.rows += 1
        earlier = self._logged.get(step)  # in whatever segment
        shared = (values.keys() & earlier.keys()) - CLOCKS if earlier else set()
        if shared and step < self._newest and 2 * len(shared) > len(values.keys() - CLOCKS):
            self.segments.append({})
            self._newest = step
        current = self.segments[-1].get(step)
        if current is None:
            self.segments[-1][step] = self._logged[step] = dict(values)
        else:
            self._merge(current, values, shared)
        self.late += step < self._newest
        self._newest = max(self._newest, step)

    def _merge(self, current: Numbers, values: Numbers, shared: set[str]) -> None:
        pairs = [(current[name], values[name]) for name in shared]
        if any(a != b and not (isnan(a) and isnan(b)) for a, b in pairs):
            self.differing += 1
        elif pairs and shared >= values.keys() - CLOCKS:
            self.same += 1
        current.update(values)

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

    def notes(self) -> list[str]:
        notes = []
        if self.late:
            notes.append(f"{self.late} rows came after later steps and were put in their place")
        if self.same:
            notes.append(f"{self.same} rows repeat their step and were counted once")
        if self.differing:
            notes.append(f"{self.differing} rows differ from an earlier row of the same step: the last one stands")
        return notes


def make_runs(
    name: str,
    reader: str,
    series: MetricSeries,
    options: ReadOptions,
    *,
    where: str,
    notes: Iterable[str] = (),
    settings: Mapping[str, Any] | None = None,
    other_columns: Iterable[str] = (),
) -> list[ExternalRun]:
    """The runs in a series of logged metrics: one, or one per segment if the run was resumed.

    `other_columns`: columns of other runs in the same file, which this one may lack.
    """
    series.refuse_disorder(where)
    segments = [dict(sorted(segment.items())) for segment in series.segments if segment]
    columns = dict.fromkeys(column for segment in segments for values in segment.values() for column in values)
    columns |= dict.fromkeys(other_columns)
    refuse_unknown(options, columns, where)
    names = translation(
        columns, {ours: theirs for ours, theirs in options.columns.items() if ours not in NOT_SCALARS[:2]}
    )
    common = [*notes, *series.notes(), *translation_notes(names)]
    runs = []
    for number, segment in enumerate(segments):
        own = list(common)
        if len(segments) > 1:
            own.append(f"the step goes back {len(segments) - 1} times (resumed): this is part {number}")
        scalars, kl_note = canonical_scalars(segment, names)
        evaluations, eval_notes = read_evaluations(segment, options, names, where)
        own += [kl_note, *eval_notes] if kl_note else eval_notes
        if not evaluations:
            own.append(NO_ROLLOUTS)
        run_name = f"{name}/{number}" if len(segments) > 1 else name
        runs.append(
            ExternalRun(
                name=log_line(run_name, 200),
                reader=reader,
                notes=tuple(own),
                settings=settings or {},
                scalars=scalars,
                evaluations=tuple(evaluations),
            )
        )
    return runs


def refuse_unknown(options: ReadOptions, columns: Iterable[str], where: str) -> None:
    """Raises `StoreError` where the user names a column that is not there, or one of ours that does not exist."""
    existing = list(columns)
    available = ", ".join(log_line(column, 60) for column in existing[:30]) or "none with a number"
    for ours, theirs in options.columns.items():
        if ours not in ALIASES and ours not in NOT_SCALARS and not ours.startswith("rewards/"):
            raise StoreError(f"{ours!r} is no scalar of ours: choose one of {', '.join((*NOT_SCALARS, *ALIASES))}")
        if ours not in NOT_SCALARS[:2] and theirs not in existing:
            raise StoreError(f"{where}: there is no column {theirs!r} with a number; it has {available}")
    for theirs, n in options.evals.items():
        for column in (theirs, n):
            if isinstance(column, str) and column not in existing and options.columns.get(column) not in existing:
                raise StoreError(f"{where}: there is no column {column!r} with a number; it has {available}")


def refuse_split(options: ReadOptions, where: str, *, step: bool) -> None:
    """Raises `StoreError` where an option would split a tracker's log, which is one run with its own steps."""
    if "run" in options.columns:
        raise StoreError(f"{where}: each log is a run already: leave --map run= out")
    if step and "step" in options.columns:
        raise StoreError(f"{where}: its steps are its own: leave --map step= out")


def translation_notes(names: Mapping[str, str]) -> Iterator[str]:
    pairs = [
        f"{ours} is {log_line(theirs, 60)}" for theirs, ours in names.items() if ours in ALIASES and ours != theirs
    ]
    if pairs:
        yield "; ".join(pairs)


def canonical_scalars(
    segment: Mapping[int, Numbers], names: Mapping[str, str]
) -> tuple[dict[int, dict[str, float]], str]:
    """A segment's scalars under canonical names, and a note about the KL, or an empty text.

    A KL that is exactly 0 at every step counts as not measured: trainers without a reference write that.
    """
    kl_columns = [theirs for theirs, ours in names.items() if ours == "kl_ref"]
    values = [numbers[theirs] for theirs in kl_columns for numbers in segment.values() if theirs in numbers]
    unmeasured = len(values) > 1 and not any(values)
    dropped = BOOKKEEPING | set(kl_columns if unmeasured else ())
    # Canonical names first: the number of scalars per step is limited.
    order = [(theirs, ours) for theirs, ours in names.items() if theirs not in dropped]
    order.sort(key=lambda pair: pair[1] not in ALIASES)
    scalars = {
        step: {ours: numbers[theirs] for theirs, ours in order if theirs in numbers}
        for step, numbers in segment.items()
    }
    if unmeasured:
        return scalars, "no KL measured: the KL is exactly 0 at every step, as trainers write it without a reference"
    return scalars, "" if values else NO_KL


def read_evaluations(
    segment: Mapping[int, Numbers], options: ReadOptions, names: Mapping[str, str], where: str
) -> tuple[list[Evaluation], list[str]]:
    """The evaluations in a segment's columns, and notes about them."""
    evaluations: list[Evaluation] = []
    notes: list[str] = []
    used_names: dict[str, str] = {}
    for raw, items in options.evals.items():
        theirs = raw if raw in names else options.columns[raw]
        name = slug(theirs)
        if name in used_names:
            raise StoreError(
                f"{used_names[name]!r} and {raw!r} are both the evaluation {name!r}: rename one in the file"
            )
        used_names[name] = raw
        series = {step: numbers[theirs] for step, numbers in segment.items() if not isnan(numbers.get(theirs, NAN))}
        counts, caution = item_counts(segment, series, items, options, names, where)
        for step, value in series.items():
            if not 0.0 <= value <= 1.0:
                raise StoreError(
                    f"{where}: {log_line(theirs, 60)} is {value:g} at step {step}; an evaluation is a mean of scores "
                    "from 0 to 1: rescale the column (a percentage by 100), or name another"
                )
            evaluations.append(Evaluation(0, step, name, value, counts[step]))
        n = sorted(set(counts.values()))
        count_text = "no value" if not n else f"n = {n[0]}" if len(n) == 1 else f"n = {n[0]} to {n[-1]}"
        notes.append(f"eval.{name} is {log_line(theirs, 60)}, taken as evaluations on one held-out set: "
                    f"{len(series)} values, {count_text}{caution}")  # fmt: skip
    return sorted(evaluations), notes


NAN = float("nan")


def item_counts(
    segment: Mapping[int, Numbers],
    series: Mapping[int, float],
    items: int | str,
    options: ReadOptions,
    names: Mapping[str, str],
    where: str,
) -> tuple[dict[int, int], str]:
    """The number of items behind each value. Where the file lacks it, the smallest number that it has."""
    if isinstance(items, int):
        if items < 1:
            raise StoreError(f"an evaluation has at least one item, not {items}: --eval COLUMN=N")
        return dict.fromkeys(series, items), ""
    column = items if items in names else options.columns[items]
    counts = {step: segment[step].get(column, NAN) for step in series}
    stated = {step: n for step, n in counts.items() if not isnan(n)}
    for step, n in stated.items():
        if not isfinite(n) or n != int(n) or n < 1:
            raise StoreError(f"{where}: {log_line(column, 60)} is {n:g} at step {step}; items are counted in whole "
                             "numbers from 1 on: name another column, or a number")  # fmt: skip
    if series and not stated:
        raise StoreError(f"{where}: {log_line(column, 60)} has no number of items; give one: --eval COLUMN=N")
    least = min(stated.values(), default=1.0)
    lacking = len(series) - len(stated)
    caution = f"; {lacking} without n, where the smallest is taken, the careful choice" if lacking else ""
    return {step: int(stated.get(step, least)) for step in series}, caution


def with_distinct_names(runs: Iterable[ExternalRun]) -> list[ExternalRun]:
    """The same runs with unique names."""
    counts: dict[str, int] = {}
    renamed = []
    for run in runs:
        counts[run.name] = counts.get(run.name, 0) + 1
        renamed.append(run if counts[run.name] == 1 else replace(run, name=f"{run.name}.{counts[run.name]}"))
    return renamed


def stem(path: Path) -> str:
    """A run's name from its file: the file name without endings."""
    name = path.name.removesuffix(".gz")
    return name.rsplit(".", 1)[0] or name
