"""Reads rollouts from any table (JSON lines, CSV or Parquet), with a map from Tiltmeter's columns to the file's."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tiltmeter.adapters.metric_names import step_column
from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, add_notes
from tiltmeter.audit.readers.folders import size_of
from tiltmeter.audit.readers.jsonl import unfinished
from tiltmeter.audit.readers.metric_series import parse_step, stem
from tiltmeter.audit.readers.row_batches import CONVERSATIONS, cell_at, to_batch
from tiltmeter.audit.readers.table_files import (
    TableFile,
    TableRow,
    file_kind,
    list_tables,
    number,
    refuse_copies,
    refuse_pickles,
)
from tiltmeter.data.records import BOOL_COLUMNS, LABEL_COLUMNS, NUMBER_COLUMNS, RAGGED_COLUMNS, RolloutBatch
from tiltmeter.data.stops import STOPS
from tiltmeter.errors import StoreError
from tiltmeter.rundir.decoded_size import rows_at_once
from tiltmeter.safety.safe_text import log_line

SORT_LIMIT = 1 << 30  # bytes on disk of files that are sorted in memory
MOST_OPEN = 64  # files that are open at once; some systems allow a process 256
PEEK = 20  # rows by which a file is recognised
COLUMNS = (
    *("step", "group", "prompt", "completion", *NUMBER_COLUMNS, "length", *BOOL_COLUMNS, *RAGGED_COLUMNS),
    *(*CONVERSATIONS, "trajectory", *LABEL_COLUMNS, "version", "artifacts"),
)
_NAMED = re.compile(rf"(rewards|facts)\..+|stop\.({'|'.join(STOPS)})")
_NUMBERS = re.compile(r"\d+")

SteppedRow = tuple[int, TableRow, str]  # step, row, its file and line


class GenericReader:
    """Rollouts of a trainer without a reader of its own, as long as each row is one completion.

    The user says which column is which (`--map reward=score --map group=prompt_id`); a column with Tiltmeter's own name
    needs no option. Objects inside a row are reached by dots (`--map reward=info.score`). A length, truncation or
    list of tokens that some row of a step lacks is left out of that step.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "rollouts.jsonl"
    >>> _ = path.write_text('{"step": 1, "prompt": "2+2", "text": "4", "score": 1}\\n' * 2)
    >>> reader, asked = GenericReader(), ReadOptions(columns={"completion": "text", "reward": "score"})
    >>> run, = reader.find(path, asked)
    >>> one, = reader.read(run, run.pieces[0])
    >>> one.step, one.reward.tolist(), len(one.starts) - 1
    (1, [1.0, 1.0], 1)
    """

    name = "generic"
    title = "rollouts in JSON lines, CSV or Parquet, with a column map"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        refuse_pickles(path)
        peeked, broken = _peek_files(path, options)
        columns_by_file = {
            file: columns
            for file, columns in peeked.items()
            if holds_rollouts(choose_columns(columns, options), options)
        }
        files = list(columns_by_file)
        if not files:
            return []
        refuse_copies(files)
        names = list(dict.fromkeys(name for columns in columns_by_file.values() for name in columns))
        _refuse(options, files[0], names)
        columns = choose_columns(names, options)
        step = columns.get("step") or step_column(names)
        settings: dict[str, Any] = {"columns": columns, "step": step, "weights": dict(options.weights)}
        settings |= {"group": _grouping(columns, options), "group_size": options.group_size}
        constant = options.columns.get("step", "")
        if constant.isdecimal() and constant not in names:
            settings["step"] = step = None
            plan = _one_step(files, int(constant))
        else:
            plan = _by_name(files) if step is None else _by_column(files, step, broken)
        settings["sorted"] = plan.sorted
        notes = [*plan.notes, *_notes(columns, settings)]
        used = {*columns.values(), *(theirs.split(".")[0] for theirs in columns.values()), step}
        if unused := [log_line(name, 60) for name in names if name not in used]:
            notes.append(f"columns that were not used: {', '.join(unused[:20])}")
        if others := [log_line(file.name, 80) for file in peeked if file not in columns_by_file]:
            notes.append(f"files that hold no rollouts were left out: {', '.join(others[:10])}")
        name = stem(files[0]) if path.is_file() else path.resolve().name
        run = ExternalRun(log_line(name, 200), self.name, plan.pieces, tuple(notes), settings)
        return add_notes([run], [f"{log_line(file.name, 80)} was left out: {error}" for file, error in broken.items()])

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        step = run.settings["step"]
        if step is None:
            rows = [located for file in piece.files for located in _rows(Path(file))]
            yield to_batch(piece.steps[0], rows, run.settings)
            return
        streams = [_rows_with_steps(Path(file), step) for file in piece.files]
        items: Iterable[SteppedRow]
        if run.settings["sorted"] and len(streams) <= MOST_OPEN:
            items = merge(*streams, key=lambda item: item[0])
        else:
            items = sorted((item for stream in streams for item in stream), key=lambda item: item[0])
        last = -1
        for current, same in groupby(items, key=lambda item: item[0]):
            if current <= last:
                raise StoreError(f"{piece.files[0]}: step {current} comes after {last}: the file changed; start again")
            last = current
            yield to_batch(current, [(row, where) for _, row, where in same], run.settings)


def _peek_files(path: Path, options: ReadOptions) -> tuple[dict[Path, list[str]], dict[Path, StoreError]]:
    """The columns of each table, and the errors of unreadable files; raises for a file that the user named."""
    columns: dict[Path, list[str]] = {}
    broken: dict[Path, StoreError] = {}
    for file in list_tables(path, ("csv", "jsonl", "parquet"), options.excluded):
        try:
            columns[file] = peek_columns(file)
        except StoreError as error:
            if file == path:
                raise
            broken[file] = error
    if broken and not columns and options.format == GenericReader.name:
        raise next(iter(broken.values()))
    return columns, broken


def choose_columns(columns: Sequence[str], options: ReadOptions) -> dict[str, str]:
    """Tiltmeter's columns with the file's: as requested, else those with the same name."""
    own = [name for name in columns if name in COLUMNS or _NAMED.fullmatch(name)]
    requested = {
        ours: theirs for ours, theirs in options.columns.items() if theirs in columns or _inside(theirs, columns)
    }
    # A gold column that is also the reward stays the reward; a note says so.
    mapped = {ours: theirs for ours, theirs in requested.items() if ours != "gold" or not _pays(theirs)}
    used = {theirs for ours, theirs in mapped.items() if ours in COLUMNS or _NAMED.fullmatch(ours)}
    own = [name for name in own if name not in used and name not in requested]
    if "completion" in (*own, *requested):
        # Messages beside a completion are those of its prompt, unless the user says that they are the conversation.
        own = [name for name in own if name not in CONVERSATIONS]
    return {**{name: name for name in own}, **requested}


def _pays(name: str) -> bool:
    return name == "reward" or name.startswith("rewards.")


def _inside(theirs: str, columns: Sequence[str]) -> bool:
    return "." in theirs and theirs.split(".")[0] in columns


def holds_rollouts(pick: Mapping[str, str], options: ReadOptions) -> bool:
    """Whether a table holds rollouts: rewards, and a column that distinguishes rollouts from logged means."""
    paid = any(name in ("reward", "gold") or name.startswith("rewards.") for name in pick)
    rows = any(name in pick for name in ("completion", "prompt", "group", "tokens", *CONVERSATIONS))
    rows = rows or options.group_size is not None
    return bool(pick) if options.format == GenericReader.name else paid and rows


def _refuse(options: ReadOptions, file: Path, columns: Sequence[str]) -> None:
    """Raises `StoreError` for options that these files cannot serve."""
    available = ", ".join(log_line(column, 60) for column in columns[:30])
    for ours, theirs in options.columns.items():
        if ours == "run":
            raise StoreError("rollouts of several runs in one file are not told apart: write one file or folder a run")
        if ours not in COLUMNS and not _NAMED.fullmatch(ours):
            choices = ", ".join((*COLUMNS, "rewards.NAME", "facts.NAME", "stop.REASON"))
            raise StoreError(f"{ours!r} is no column of rollouts: choose one of {choices}")
        if theirs not in columns and not _inside(theirs, columns) and not (ours == "step" and theirs.isdecimal()):
            raise StoreError(f"{file}: there is no column {theirs!r}; it has {available}")
    if options.evals:
        raise StoreError("--eval names a column of logged numbers, and these are rollouts: map it as gold, if it is")
    pick = choose_columns(columns, options)
    parts = [name.removeprefix("rewards.") for name in pick if name.startswith("rewards.")]
    for name in options.weights:
        if name not in parts:
            part_names = ", ".join(log_line(part, 60) for part in parts[:30]) or "none (--map rewards.NAME=COLUMN)"
            raise StoreError(f"{file}: there is no part {name!r} of the reward to weigh; the parts are {part_names}")
    if options.weights and "reward" in pick:
        raise StoreError(f"{file}: nothing is weighed, the total is stored ({pick['reward']}): leave --weight out")
    if options.group_size is not None and "group" in pick:
        raise StoreError(f"{file}: groups are stored ({pick['group']}): leave --group-size out")


def _grouping(columns: Mapping[str, str], options: ReadOptions) -> str:
    if "group" in columns:
        return "column"
    if options.group_size is not None:
        return "size"
    return "prompt" if any(name in columns for name in ("prompt", *CONVERSATIONS)) else "alone"


def _notes(columns: Mapping[str, str], settings: Mapping[str, Any]) -> Iterator[str]:
    renamed = [f"{ours} is {log_line(theirs, 60)}" for ours, theirs in columns.items() if ours != theirs]
    if renamed:
        yield "; ".join(renamed)
    yield {
        "column": f"groups are {log_line(columns.get('group', ''), 60)}",
        "size": f"groups are {settings['group_size']} rows that follow each other, as you said",
        "prompt": "groups are inferred: equal prompts within a step; a prompt that was drawn twice is one group",
        "alone": "no groups: neither a column, nor prompts, nor --group-size; nothing within a group is measured",
    }[settings["group"]]
    gold = columns.get("gold")
    if gold is not None and gold in [theirs for ours, theirs in columns.items() if _pays(ours)]:
        yield f"gold is {log_line(gold, 60)}, which is paid as well: what a policy is paid for is no independent truth"
    if "reward" not in columns:
        parts = [name.removeprefix("rewards.") for name in columns if name.startswith("rewards.")]
        weights = {name: settings["weights"].get(name, 1.0) for name in parts}
        if weights:
            terms = " + ".join(f"{weight:g} x {log_line(name, 60)}" for name, weight in weights.items())
            yield f"the reward is not stored and was added up: {terms}"
        else:
            yield "no reward in these files"
    if not {"logprob", "ref_logprob"} <= columns.keys():
        yield "no KL measured: these files have no log-probabilities of policy and reference"


# -- which steps are where --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileSteps:
    """The steps of one file in the order of its rows, consecutive repeats once."""

    file: Path
    steps: list[int]
    torn: bool = False

    @property
    def sorted(self) -> bool:
        return all(a < b for a, b in pairwise(self.steps))

    @property
    def span(self) -> tuple[int, int]:
        return min(self.steps), max(self.steps)


@dataclass(frozen=True)
class ReadPlan:
    """How some files are read: the pieces for workers, and whether rows are sorted by step."""

    pieces: tuple[Piece, ...]
    notes: tuple[str, ...]
    sorted: bool = True


def _one_step(files: Sequence[Path], step: int) -> ReadPlan:
    """All rows in one step, as the user said."""
    torn = [file for file in files if file_kind(file) == "jsonl" and unfinished(file)]
    piece = Piece(tuple(str(file.resolve()) for file in files), sum(map(size_of, files)), (step,))
    return ReadPlan((piece,), (f"rollouts: all rows are step {step}, as you said", *_torn_notes(torn)))


def _by_name(files: Sequence[Path]) -> ReadPlan:
    """One step a file, by the last number in its name."""
    steps: dict[int, Path] = {}
    for file in files:
        numbers = _NUMBERS.findall(stem(file))
        if not numbers:
            raise StoreError(f"{file}: no column of steps and no number in the name; name it: --map step=COLUMN")
        step = parse_step(float(numbers[-1]), str(file))
        if step in steps:
            raise StoreError(f"{file}: {steps[step].name} is of step {step} too; name a column: --map step=COLUMN")
        steps[step] = file
    pieces = [Piece((str(file.resolve()),), size_of(file), (step,)) for step, file in sorted(steps.items())]
    torn = [file for file in files if file_kind(file) == "jsonl" and unfinished(file)]
    note = f"rollouts: {len(files)} files of a step each, by the number in their names"
    return ReadPlan(tuple(pieces), (note, *_torn_notes(torn)))


def _torn_notes(torn: Sequence[Path]) -> Iterator[str]:
    if torn:
        more = f" (and of {len(torn) - 1} more files)" if len(torn) > 1 else ""
        yield f"the last line of {log_line(torn[0].name, 80)}{more} is cut short and was left out"


def _by_column(files: Sequence[Path], step: str, broken: dict[Path, StoreError]) -> ReadPlan:
    """Group files whose steps overlap, so that no step is in two pieces. Adds unreadable files to `broken`."""
    file_steps: list[FileSteps] = []
    for file in files:
        table = TableFile(file)
        try:
            steps = steps_of(file, step, table)
        except StoreError as error:
            if len(files) == 1:
                raise
            broken[file] = error
        else:
            file_steps += [FileSteps(file, steps, table.torn)] if steps else []
    if not file_steps and broken:
        raise next(iter(broken.values()))
    if not file_steps:
        raise StoreError(f"{files[0]}: it has no rows")
    notes = [f"rollouts: {len(file_steps)} file{'s' * (len(file_steps) > 1)}, steps are {log_line(step, 60)}"]
    notes += _torn_notes([one.file for one in file_steps if one.torn])
    if unsorted := [one.file for one in file_steps if not one.sorted]:
        size = sum(map(size_of, files))
        if size > SORT_LIMIT:
            raise StoreError(
                f"{unsorted[0]}: rows are not in the order of their steps, and {size / 1e9:.1f} GB are too much to "
                "sort in memory; sort them by step, or write one file a step"
            )
        notes.append(f"rows are not in the order of their steps and were sorted: {log_line(unsorted[0].name, 80)}")
    overlapping: list[list[FileSteps]] = []
    end = -1
    for one in sorted(file_steps, key=lambda one: one.span):
        if overlapping and one.span[0] <= end:
            overlapping[-1].append(one)
        else:
            overlapping.append([one])
        end = max(end, one.span[1])
    if any(len(part) > 1 for part in overlapping):
        notes.append("files that share steps were put together; equal groups of one step in two files are one group")
    pieces = [
        Piece(
            tuple(str(one.file.resolve()) for one in part),
            sum(size_of(one.file) for one in part),
            tuple(sorted({step for one in part for step in one.steps})),
        )
        for part in overlapping
    ]
    if large := next((one for one in pieces if len(one.files) > MOST_OPEN and one.size > SORT_LIMIT), None):
        raise StoreError(
            f"{large.files[0]}: {len(large.files)} files share steps, and {large.size / 1e9:.1f} GB are too much to "
            "sort in memory; put them together sorted by step, or write one file a step"
        )
    return ReadPlan(tuple(pieces), tuple(notes), not unsorted)


def steps_of(file: Path, step: str, table: TableFile | None = None) -> list[int]:
    """The steps of a file in the order of its rows. JSON lines are parsed only as far as needed."""
    steps: list[int] = []
    for value, where in _step_cells(file, step, table or TableFile(file)):
        this = parse_step(number(value), where)
        if not steps or steps[-1] != this:
            steps.append(this)
    return steps


def _step_cells(file: Path, step: str, table: TableFile) -> Iterator[tuple[object, str]]:
    if file_kind(file) == "jsonl" and "." not in step:
        # Inside a text a quotation mark has a backslash before it, so what is found is a key; if it is found once, and
        # before any object inside the row, it is the row's own.
        key = re.compile(rb'^\s*\{[^{]*?"' + re.escape(step.encode()) + rb'"\s*:\s*(\d{1,15})\s*[,}]')
        for count, line in table.lines():
            if line.endswith(b"\n") and (match := key.match(line)) and line.count(b'"' + step.encode() + b'"') == 1:
                yield int(match[1]), f"{file}:{count}"
            elif line.strip():
                yield from _parsed_step(table, count, line, step)
    elif file_kind(file) == "parquet" and "." not in step:
        for rows in _parquet(file, [step]):
            yield from ((row.get(step), str(file)) for row in rows)
    else:
        for row, where in _rows(file, table):
            yield cell_at(row, step), where


def _parsed_step(table: TableFile, count: int, line: bytes, step: str) -> Iterator[tuple[object, str]]:
    row = table.row(count, line)
    if row is not None:
        yield row.get(step), f"{table.path}:{count}"


# -- rows --------------------------------------------------------------------------------------------------------------


def peek_columns(file: Path) -> list[str]:
    """The columns of a file, as far as its first rows show them; parts of a `rewards` object as `rewards.NAME`."""
    names: dict[str, None] = {}
    for (row, _), _ in zip(_rows(file), range(PEEK), strict=False):
        names |= dict.fromkeys(row)
        parts = row.get("rewards")
        if isinstance(parts, dict):
            names |= dict.fromkeys(f"rewards.{part}" for part in parts)
    return list(names)


def _rows(file: Path, table: TableFile | None = None) -> Iterator[tuple[TableRow, str]]:
    if file_kind(file) != "parquet":
        yield from ((row, f"{file}:{line}") for line, row in (table or TableFile(file)).rows())
        return
    count = 0
    for rows in _parquet(file, None):
        for row in rows:
            count += 1
            yield row, f"{file}: row {count}"


def _parquet(file: Path, columns: list[str] | None) -> Iterator[list[TableRow]]:
    try:
        with pq.ParquetFile(file) as table:
            for some in table.iter_batches(batch_size=rows_at_once(file, table), columns=columns):
                yield some.to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:  # the last: names and texts that are not UTF-8
        raise StoreError(f"{file}: not a whole Parquet file ({str(error)[:100]}); copy it again") from error


def _rows_with_steps(file: Path, step: str) -> Iterator[SteppedRow]:
    for row, where in _rows(file):
        yield parse_step(number(cell_at(row, step)), where), row, where
