"""Numbers that a trainer logged, one row a step, in CSV or JSON lines."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tiltmeter.adapters.names import STEPS, step_column
from tiltmeter.adapters.readers.foreign import Asked, Foreign, Maker, Piece, told, usable
from tiltmeter.adapters.readers.series import Course, distinct, foreign, stem, whole
from tiltmeter.adapters.readers.tables import Row, Table, flat, number, refuse_copies, refuse_pickles, tables
from tiltmeter.batches import from_columns
from tiltmeter.encode import log_line
from tiltmeter.errors import StoreError
from tiltmeter.records import RolloutBatch

CELLS = 50_000_000  # numbers of one file that are kept at once

Key = tuple[str, ...]  # what the columns of `run` say


@dataclass
class Logged:
    """What one file holds: the course of each of its runs, and what was left out on the way."""

    courses: dict[Key, Course] = field(default_factory=dict)
    stepless: int = 0
    words: dict[str, None] = field(default_factory=dict)  # columns that hold something else than numbers
    numbers: set[str] = field(default_factory=set)
    cells: int = 0

    def take(self, row: Row, step: str, run: Key, where: str) -> None:
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
                self.words[name] = None
        if not values.keys() <= self.numbers:
            self.numbers |= values.keys()
        self.cells += len(values)
        if self.cells > CELLS:
            raise StoreError(f"{where}: more than {CELLS:,} numbers; keep fewer columns or split the file by run")
        key = tuple(str(row.get(column, "")) for column in run)
        self.courses.setdefault(key, Course()).add(whole(at, where), values)

    def said(self) -> Iterator[str]:
        if self.stepless:
            yield f"{self.stepless} rows without a step were left out"
        if words := [log_line(name, 60) for name in self.words if name not in self.numbers]:
            more = f" and {len(words) - 10} more" if len(words) > 10 else ""
            yield f"columns that hold no numbers were left out: {', '.join(words[:10])}{more}"


class Scalars:
    """Logged numbers as the only trace of a run: good for its course, and for its verdict if some of them are truth.

    Someone who kept nothing but a metrics file can still learn whether a held-out score fell while the reward rose:
    a column named with `--eval` becomes an evaluation that the alarm bets on. Everything else is shown and warns of
    nothing, because no rollout can be looked at.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.csv"
    >>> _ = path.write_text("step,proxy_g,score\\n0,0.2,0.5\\n1,0.6,\\n")
    >>> run, = Scalars().find(path, Asked(columns={"reward": "proxy_g"}, evals={"score": 64}))
    >>> run.scalars[1], [(told.step, told.value, told.n) for told in run.evaluations]
    ({'reward': 0.6}, [(0, 0.5, 64)])
    """

    name = "scalars"
    title = "logged numbers in CSV or JSON lines"

    def find(self, path: Path, asked: Asked) -> list[Foreign]:
        refuse_pickles(path)
        broken: dict[str, StoreError] = {}
        left: list[tuple[Path, list[str]]] = []
        makers: dict[Path, Maker] = {}
        for file in tables(path, ("csv", "jsonl"), asked.besides):
            table = Table(file)
            try:
                columns = table.columns()
            except StoreError as error:
                broken[str(file)] = error
                continue
            step = step_column(columns, asked.columns.get("step"))
            run = _run_columns(asked)
            if step is None or not set(run) <= set(columns):
                left.append((file, columns))
                continue
            makers[file] = partial(_of_table, table, step, run, asked)
        if not makers and left and (path.is_file() or asked.format):
            raise _without_step(*left[0], asked)
        refuse_copies(makers)
        found = usable({str(file): make for file, make in makers.items()}, broken)
        return distinct(
            told(found, [f"{log_line(file.name, 80)} has no column of steps and was left out" for file, _ in left])
        )

    def read(self, run: Foreign, piece: Piece) -> Iterator[RolloutBatch]:
        """There are no rollouts: each step is a batch without rows. Runs found here have no pieces to be read."""
        yield from (from_columns(step, []) for step in sorted(run.scalars))


def _run_columns(asked: Asked) -> Key:
    return tuple(asked.columns["run"].split("+")) if asked.columns.get("run") else ()


def _of_table(table: Table, step: str, run: Key, asked: Asked) -> list[Foreign]:
    logged = Logged()
    for line, row in table.rows():
        logged.take(flat(row), step, run, f"{table.path}:{line}")
    said = [f"{log_line(table.path.name, 80)}: steps are {log_line(step, 60)}", *logged.said()]
    if table.torn:
        said.append("the last line is cut short and was left out")
    found = []
    for key, course in logged.courses.items():
        name = "/".join(key) if run else stem(table.path)
        found += foreign(name, Scalars.name, course, asked, where=str(table.path), said=said, beside=logged.numbers)
    return found


def _without_step(path: Path, columns: list[str], asked: Asked) -> StoreError:
    if not columns:
        return StoreError(f"{path}: it has no rows; name another file")
    shown = ", ".join(log_line(column, 60) for column in columns[:30])
    for ours, theirs in (("step", asked.columns.get("step")), *(("run", column) for column in _run_columns(asked))):
        if theirs is not None and theirs not in columns:
            return StoreError(f"{path}: there is no column {theirs!r} to be the {ours}; it has {shown}")
    return StoreError(
        f"{path}: no column of steps (looked for {', '.join(STEPS)}); name it: --map step=COLUMN. It has {shown}"
    )
