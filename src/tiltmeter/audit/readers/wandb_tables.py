"""Tables of completions that TRL logs to a tracker, as rollouts: `files/media/table/completions_*.table.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa

from tiltmeter.adapters.metric_names import translation
from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions
from tiltmeter.audit.readers.folders import StepFiles, bundle_steps, size_of
from tiltmeter.audit.readers.jsonl import as_store_errors
from tiltmeter.audit.readers.metric_series import MetricSeries, canonical_scalars
from tiltmeter.audit.readers.trl_completions import batch_of_step, same_rollouts, settings_of
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import StoreError
from tiltmeter.safety.safe_text import log_line

TABLES = "files/media/table"
LARGEST = 1 << 30  # bytes of one table
SAMPLE = 4  # tables by which columns and groups are recognised
NEEDED = {"step", "prompt", "completion"}


def find_tables(logs: Sequence[Path]) -> list[StepFiles]:
    """The tables of completions beside these logs, one a step; of two of a step, the one that was logged last."""
    steps: dict[int, tuple[int, Path]] = {}
    for order, folder in enumerate(dict.fromkeys(log.parent / TABLES for log in logs)):
        for file in sorted(folder.rglob("*.table.json"), key=_logged_at):
            table = _load_if_completions(file)
            if table is not None:
                (step,) = set(table.column("step").to_pylist())
                steps[int(step)] = (order, file)
    return [StepFiles(step, (file,), size_of(file)) for step, (_, file) in sorted(steps.items())]


def _logged_at(file: Path) -> int:
    """The tracker's own step, which is in the name: completions_STEP_HASH.table.json."""
    parts = file.name.split("_")
    return int(parts[-2]) if len(parts) > 2 and parts[-2].isdecimal() else -1


def run_with_tables(
    name: str,
    reader: str,
    steps: Sequence[StepFiles],
    series: MetricSeries,
    options: ReadOptions,
    notes: Sequence[str],
    settings: Mapping[str, Any],
) -> ExternalRun:
    """The run with its tables as rollouts, and what was logged at the same steps."""
    half = SAMPLE // 2
    chosen = steps if len(steps) <= SAMPLE else [*steps[:half], *steps[-half:]]
    samples = [(one.step, load_table(one.files[0])) for one in chosen]
    with as_store_errors(steps[0].files[0].parent):
        columns, column_notes = settings_of(steps[0].files[0].parent, samples, None, options)
    segment = {step: values for part in series.segments for step, values in part.items()}
    logged = dict.fromkeys(column for values in segment.values() for column in values)
    scalars, kl_note = canonical_scalars(segment, translation(logged, {})) if segment else ({}, "")
    gaps = {two.step - one.step for one, two in pairwise(steps)}
    more = [f"rollouts: {len(steps)} tables of completions, steps {steps[0].step} to {steps[-1].step}", *column_notes]
    if gaps and min(gaps) > 1:
        more.append(f"a table for every {min(gaps)} steps (logging_steps): completions of the others were not kept")
    pieces = bundle_steps(steps)
    if columns["repeats"] and len(pieces) > 1:  # whether a table repeats the one before is seen only side by side
        files = tuple(file for piece in pieces for file in piece.files)
        pieces = (Piece(files, sum(piece.size for piece in pieces), tuple(one.step for one in steps)),)
    return ExternalRun(
        name=log_line(name, 200),
        reader=reader,
        pieces=pieces,
        notes=(*notes, *more, *([kl_note] if kl_note else [])),
        settings={**settings, "table": columns},
        scalars=scalars,
    )


def read_tables(run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
    before: pa.Table | None = None
    for file, step in zip(map(Path, piece.files), piece.steps, strict=True):
        table = load_table(file)
        if run.settings["table"]["repeats"] and before is not None and same_rollouts(before, table):
            continue
        before = table
        with as_store_errors(file):
            batch = batch_of_step(file, step, table, run.settings["table"])
        yield batch


def load_table(file: Path) -> pa.Table:
    table = _load_if_completions(file)
    if table is None:
        raise StoreError(f"{file}: no table of completions any more; it changed: start again")
    return table


def _load_if_completions(file: Path) -> pa.Table | None:
    """A table of completions of one step; None where it is another table."""
    if size_of(file) > LARGEST:
        raise StoreError(f"{file}: more than {LARGEST >> 20} MiB in one table; move it away")
    try:
        content = json.loads(file.read_bytes())
        names, rows = content["columns"], content["data"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{file}: not a whole table of a tracker ({type(error).__name__}); move it away") from error
    if not isinstance(names, list) or not set(map(str, names)) >= NEEDED or not rows:
        return None
    if any(not isinstance(row, list) or len(row) != len(names) for row in rows):
        raise StoreError(f"{file}: rows of different lengths; this is no table of a tracker: move it away")
    columns = {str(name): [_cell(row[at]) for row in rows] for at, name in enumerate(names)}
    steps = set(columns["step"])
    if len(steps) != 1 or not all(isinstance(step, (int, float)) and step >= 0 for step in steps):
        return None
    try:
        return pa.table({name: _column(cells) for name, cells in columns.items()})
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise StoreError(f"{file}: its columns cannot be read ({log_line(str(error), 120)})") from error


def _cell(value: Any) -> Any:
    """JSON has no NaN: trackers write it as a word, and TRL writes what no function scored as NaN."""
    return None if value in ("NaN", "nan") else value


def _column(cells: Sequence[Any]) -> pa.Array:
    if all(cell is None or (isinstance(cell, (int, float)) and not isinstance(cell, bool)) for cell in cells):
        whole = all(isinstance(cell, int) for cell in cells)
        return pa.array(cells, pa.int64() if whole else pa.float64())
    return pa.array(cells)
