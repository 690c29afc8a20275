"""Reads logged metrics from CSV or JSON lines, one row per step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tiltmeter.adapters.metric_names import STEP_COLUMNS, step_column
from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, RunLoader, add_notes, collect_runs
from tiltmeter.audit.readers.metric_series import MetricSeries, make_runs, parse_step, stem, with_distinct_names
from tiltmeter.audit.readers.table_files import (
    TableFile,
    TableRow,
    flatten,
    list_tables,
    number,
    refuse_copies,
    refuse_pickles,
)
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.safety.safe_text import log_line

CELLS = 50_000_000  # numbers of one file in memory

RunKey = tuple[str, ...]  # values of the columns that name a run


@dataclass
class LoggedFile:
    """The metric series of each run in one file, and what was left out."""

    series: dict[RunKey, MetricSeries] = field(default_factory=dict)
    stepless: int = 0
    text_columns: dict[str, None] = field(default_factory=dict)  # columns that hold something else than numbers
    numbers: set[str] = field(default_factory=set)
    cells: int = 0

    def add_row(self, row: TableRow, step: str, run: RunKey, where: str) -> None:
        at = number(row.get(step))
        if at is None and row.get(step) in (None, ""):
            self.stepless += 1
            return
        values = {}
        for name, cell in row.items():
            if name == step or name in run:
                continue
            value = number(cell)
            if value is not None:
                values[name] = value
            elif cell not in (None, ""):
                self.text_columns[name] = None
        if not values.keys() <= self.numbers:
            self.numbers |= values.keys()
        self.cells += len(values)
        if self.cells > CELLS:
            raise StoreError(f"{where}: more than {CELLS:,} numbers; keep fewer columns or split the file by run")
        key = tuple(str(row.get(column, "")) for column in run)
        self.series.setdefault(key, MetricSeries()).add(parse_step(at, where), values)

    def notes(self) -> Iterator[str]:
        if self.stepless:
            yield f"{self.stepless} rows without a step were left out"
        if words := [log_line(name, 60) for name in self.text_columns if name not in self.numbers]:
            more = f" and {len(words) - 10} more" if len(words) > 10 else ""
            yield f"columns that hold no numbers were left out: {', '.join(words[:10])}{more}"


class ScalarsReader:
    """Logged metrics only: enough for plots, and for a verdict if a column holds evaluations.

    Someone who kept nothing but a metrics file can still learn whether a held-out score fell while the reward rose:
    a column named with `--eval` becomes an evaluation that the alarm tests. Everything else is shown and raises no
    warning, because there are no rollouts.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.csv"
    >>> _ = path.write_text("step,proxy_g,score\\n0,0.2,0.5\\n1,0.6,\\n")
    >>> run, = ScalarsReader().find(path, ReadOptions(columns={"reward": "proxy_g"}, evals={"score": 64}))
    >>> run.scalars[1], [(one.step, one.value, one.n) for one in run.evaluations]
    ({'reward': 0.6}, [(0, 0.5, 64)])
    """

    name = "scalars"
    title = "logged numbers in CSV or JSON lines"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        refuse_pickles(path)
        broken: dict[str, StoreError] = {}
        without_steps: list[tuple[Path, list[str]]] = []
        loaders: dict[Path, RunLoader] = {}
        for file in list_tables(path, ("csv", "jsonl"), options.excluded):
            table = TableFile(file)
            try:
                columns = table.columns()
            except StoreError as error:
                broken[str(file)] = error
                continue
            step = step_column(columns, options.columns.get("step"))
            run = _run_columns(options)
            if step is None or not set(run) <= set(columns):
                without_steps.append((file, columns))
                continue
            loaders[file] = partial(_of_table, table, step, run, options)
        if not loaders and without_steps and (path.is_file() or options.format):
            raise _without_step(*without_steps[0], options)
        refuse_copies(loaders)
        runs = collect_runs({str(file): load for file, load in loaders.items()}, broken)
        return with_distinct_names(
            add_notes(
                runs,
                [f"{log_line(file.name, 80)} has no column of steps and was left out" for file, _ in without_steps],
            )
        )

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        """There are no rollouts: each step is a batch without rows. Runs found here have no pieces to be read."""
        yield from (from_columns(step, []) for step in sorted(run.scalars))


def _run_columns(options: ReadOptions) -> RunKey:
    return tuple(options.columns["run"].split("+")) if options.columns.get("run") else ()


def _of_table(table: TableFile, step: str, run: RunKey, options: ReadOptions) -> list[ExternalRun]:
    logged = LoggedFile()
    for line, row in table.rows():
        logged.add_row(flatten(row), step, run, f"{table.path}:{line}")
    notes = [f"{log_line(table.path.name, 80)}: steps are {log_line(step, 60)}", *logged.notes()]
    if table.torn:
        notes.append("the last line is cut short and was left out")
    runs = []
    for key, series in logged.series.items():
        name = "/".join(key) if run else stem(table.path)
        runs += make_runs(
            name, ScalarsReader.name, series, options, where=str(table.path), notes=notes, other_columns=logged.numbers
        )
    return runs


def _without_step(path: Path, columns: list[str], options: ReadOptions) -> StoreError:
    if not columns:
        return StoreError(f"{path}: it has no rows; name another file")
    available = ", ".join(log_line(column, 60) for column in columns[:30])
    for ours, theirs in (("step", options.columns.get("step")), *(("run", column) for column in _run_columns(options))):
        if theirs is not None and theirs not in columns:
            return StoreError(f"{path}: there is no column {theirs!r} to be the {ours}; it has {available}")
    return StoreError(
        f"{path}: no column of steps (looked for {', '.join(STEP_COLUMNS)}); name it: --map step=COLUMN. "
        f"It has {available}"
    )
