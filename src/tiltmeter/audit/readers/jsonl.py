"""Reads JSON lines as trainers write them: row by row, and an unfinished last line is not an error."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tiltmeter.adapters.metric_names import ALIASES, BOOKKEEPING, translation
from tiltmeter.audit.readers.external_run import ReadOptions
from tiltmeter.audit.readers.folders import list_folder
from tiltmeter.audit.readers.table_files import TableFile, TableRow, number, parse_object
from tiltmeter.data.batches import STEP_LIMIT
from tiltmeter.errors import StoreError
from tiltmeter.rundir.evaluations import Evaluation, slug
from tiltmeter.safety.safe_text import log_line

FILE_LIMIT = 16 << 30  # bytes of one file after unpacking: a few KB of gzip can hold more than any disk
TAIL = 64 << 20
NAME_LENGTH = 60  # characters of a name from a file that are shown


def read_rows(path: Path, *, growing: bool = False) -> Iterator[TableRow]:
    """The rows of a file. A damaged line raises `StoreError` with its number and what to do.

    `growing`: the newest file of a run, whose last line may not be whole yet and then does not count.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "5.jsonl"
    >>> _ = path.write_text('{"score": 1}\\n{"score": NaN}\\n{"sco')
    >>> list(read_rows(path, growing=True))
    [{'score': 1}, {'score': nan}]
    """
    total = 0
    table = TableFile(path)
    try:
        for count, line in table.lines():
            total += len(line)
            if total > FILE_LIMIT:
                raise StoreError(f"{path}: more than {FILE_LIMIT >> 30} GB unpacked; split it by step")
            if not line.strip():
                continue
            row = _parse_line(line)
            if isinstance(row, dict):
                yield row
            elif line.endswith(b"\n"):
                raise StoreError(f"{path}: line {count} is not a JSON object ({row}); mend or remove that line")
            elif not growing:
                raise StoreError(f"{path}: line {count}, the last, is cut off; copy the file again or remove that line")
    except EOFError as error:
        if not growing:
            raise StoreError(f"{path}: the gzip file is cut short; copy it again") from error
    except (OSError, ValueError) as error:
        raise StoreError(f"{path}: it cannot be read ({log_line(str(error), 120)}); copy it again") from error


def _parse_line(line: bytes) -> TableRow | str:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # for example a number of 5,000 digits, which is valid
        return parse_object(line)
    return row if isinstance(row, dict) else f"it holds a {type(row).__name__}"


def first_row(path: Path) -> TableRow:
    """The first row; empty where there is none or the file is something else."""
    try:
        return next(read_rows(path, growing=True), {})
    except StoreError:
        return {}


def unfinished(path: Path) -> bool:
    """Whether the file is empty or ends in the middle of a line: it is still being written, or was interrupted."""
    if path.suffix == ".gz":
        return False
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(0, size - 1))
            if stream.read() == b"\n":
                return False
            stream.seek(max(0, size - TAIL))
            last = stream.read()
    except OSError as error:
        raise StoreError(f"{path}: it cannot be read ({error.strerror}); copy it again or move it away") from error
    return not last or isinstance(_parse_line(last.rsplit(b"\n", 1)[-1]), str)


def why_incomplete(path: Path) -> str:
    """Why the newest file of a run is skipped; empty where it is complete."""
    try:
        return "is not whole yet" if unfinished(path) else ""
    except StoreError:  # it went away, or is a link to nothing
        return "cannot be read"


@contextmanager
def as_store_errors(file: Path) -> Iterator[None]:
    """Turn errors that a malformed row causes into a `StoreError` with the name of the file."""
    try:
        yield
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        why = f"{type(error).__name__}: {log_line(str(error), 120)}"
        raise StoreError(f"{file}: a row is not as its trainer writes it ({why}); mend it or move the file") from error


def require_rows(file: Path, rows: list[TableRow]) -> list[TableRow]:
    """The rows. Raises `StoreError` if there are none: a step without rollouts is a lost file."""
    if not rows:
        raise StoreError(f"{file}: it holds no rows; copy it again or move it away")
    return rows


def step_of(row: Mapping[str, Any], path: Path, name: str = "step") -> int:
    """The row's step. Raises `StoreError` where it is no whole number from 0 on."""
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= STEP_LIMIT:
        raise StoreError(
            f"{path}: {name} is {log_line(repr(value), NAME_LENGTH)}, not a step; mend or remove that line"
        )
    if value != int(value):
        raise StoreError(f"{path}: {name} is {value}, not a whole number; mend or remove that line")
    return int(value)


def unused_option_notes(options: ReadOptions, *, grouped: bool = False) -> list[str]:
    """Notes on options that this format does not use. `grouped`: its files store groups."""
    notes = ["--map gold= is not used: this format has no column to choose; --gold names who judges"]
    notes = notes if "gold" in options.columns else []
    if others := [ours for ours in options.columns if ours != "gold"]:
        notes.append(f"--map {others[0]}= is not used: this format has no column to choose")
    if options.weights:
        notes.append("--weight is not used: the reward is stored as it was paid")
    if options.evals:
        notes.append("--eval is not used: no metrics in these files")
    if grouped and options.group_size is not None:
        notes.append("--group-size is not used: groups are stored")
    return notes


def refuse_options(options: ReadOptions, keys: Iterable[str], where: object, *, stored: str = "") -> None:
    """Raises `StoreError` for an option that does not apply to these files, and lists what there is.

    `keys`: the logged metrics. `stored`: the column that holds the total, where weights would change nothing.
    """
    logged = sorted(set(keys) - BOOKKEEPING - {"step", "time"})
    available = ", ".join(log_line(key, NAME_LENGTH) for key in logged[:30]) or "nothing"
    for ours, theirs in options.columns.items():
        if ours == "gold":
            continue
        if ours not in ALIASES and ours != "checkpoint" and not ours.startswith("rewards/"):
            choices = ", ".join(("gold", "checkpoint", *ALIASES))
            raise StoreError(
                f"--map {log_line(ours, NAME_LENGTH)}=: no scalar of ours has that name; choose one of {choices}"
            )
        if theirs not in logged:
            raise StoreError(
                f"{where}: --map {ours}=: {log_line(theirs, NAME_LENGTH)!r} was not logged; there is {available}"
            )
    if stored and options.weights:
        raise StoreError(f"{where}: nothing is weighed, the total is stored ({stored}): leave --weight out")


def scalars_by_step(logged: Mapping[int, Mapping[str, Any]], options: ReadOptions) -> dict[int, dict[str, float]]:
    """The logged metrics by step, under canonical names; null is absent, NaN stays, texts are left out.

    >>> scalars_by_step({3: {"actor/ppo_kl": 0.1, "note": "x", "lr": None}}, ReadOptions())
    {3: {'kl_old_new': 0.1}}
    """
    keys = {key for row in logged.values() for key in row} - BOOKKEEPING - {"step", "time"}
    names = translation(keys, options.columns)
    first = sorted(
        names, key=lambda key: (names[key] not in ALIASES, key)
    )  # canonical names first: the number of scalars per step is limited
    by_step: dict[int, dict[str, float]] = {}
    for step, row in sorted(logged.items()):
        cells = ((names[key], row[key]) for key in first if key in row and not isinstance(row[key], str))
        by_step[step] = {name: value for name, cell in cells if (value := number(cell)) is not None}
    return {step: row for step, row in by_step.items() if row}


def logged_metrics(file: Path) -> tuple[dict[int, dict[str, float]], list[str]]:
    """The numbers by step of a log with one object a line, and a note on it; a log that is not there has none."""
    if file.name not in list_folder(file.parent).files:
        return {}, [f"no {file.name}: nothing that the trainer logged"]
    logged: dict[int, dict[str, Any]] = {}
    try:
        for row in read_rows(file, growing=True):
            logged.setdefault(step_of(row, file), {}).update(row)
    except StoreError as error:
        return {}, [f"not read: {error}"]
    return scalars_by_step(logged, ReadOptions()), [f"metrics: {file.name}, {len(logged)} steps"]


def requested_evaluations(
    logged: Mapping[int, Mapping[str, Any]], options: ReadOptions, where: object
) -> list[Evaluation]:
    """The evaluations that the user named among the logged keys, with their numbers of items.

    Raises `StoreError` where a key was never logged, or is no mean of scores from 0 to 1.
    """
    logged_keys = {key for row in logged.values() for key, cell in row.items() if number(cell) is not None}
    available = ", ".join(log_line(key, NAME_LENGTH) for key in sorted(logged_keys - {"step"})[:30]) or "nothing"
    used_names: dict[str, str] = {}
    evaluations: list[Evaluation] = []
    for key, item_count in options.evals.items():
        for name in (key, item_count):
            if isinstance(name, str) and name not in logged_keys:
                raise StoreError(
                    f"{where}: --eval: {log_line(name, NAME_LENGTH)!r} was not logged; there is {available}"
                )
        for step, row in sorted(logged.items()):
            value, items = (
                number(row.get(key)),
                number(row.get(item_count) if isinstance(item_count, str) else item_count),
            )
            if value is None or items is None or math.isnan(value) or math.isnan(items):
                continue
            if not 0.0 <= value <= 1.0:
                raise StoreError(
                    f"{where}: {log_line(key, NAME_LENGTH)} is {value:g} at step {step}; an evaluation is a mean of "
                    "scores from 0 to 1: name another, or log it rescaled (a percentage by 100)"
                )
            if not 1 <= items < math.inf:
                raise StoreError(f"{where}: {items:g} items at step {step}; an evaluation has at least 1: --eval KEY=N")
            evaluations.append(Evaluation(0, step, unique_name(key, used_names), value, int(items)))
    return sorted(evaluations)


def renaming_notes(used_names: Mapping[str, str]) -> list[str]:
    """Notes on names that were numbered to be unique."""
    return [f"{mine} is {log_line(name, NAME_LENGTH)}" for name, mine in used_names.items() if mine != slug(name)]


def unique_name(name: str, used_names: dict[str, str]) -> str:
    """A valid and unique name of an evaluation: names that become the same are numbered.

    >>> taken: dict[str, str] = {}
    >>> [unique_name(name, taken) for name in ("eval \u6570\u5b66", "eval \u63a8\u7406", "eval \u6570\u5b66")]
    ['eval', 'eval_2', 'eval']
    """
    if name not in used_names:
        plain, used = slug(name), set(used_names.values())
        more = (f"{plain[:58]}_{at}" for at in range(2, len(used) + 3))
        used_names[name] = next(one for one in (plain, *more) if one not in used)
    return used_names[name]
