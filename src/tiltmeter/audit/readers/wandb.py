"""Reads runs of Weights & Biases on disk (`wandb/*run-*/run-*.wandb`), without its server or an account.

Tables of completions, as TRL logs them, lie beside the log and are the run's rollouts. A folder with `history.jsonl` in
place of a log is one that `audit/addresses.py` has fetched.
"""

from __future__ import annotations

import importlib.util
import json
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tiltmeter.adapters.metric_names import step_column
from tiltmeter.audit.readers.external_run import ExternalRun, Piece, ReadOptions, collect_runs
from tiltmeter.audit.readers.metric_series import (
    MetricSeries,
    Numbers,
    make_runs,
    parse_step,
    refuse_split,
    with_distinct_names,
)
from tiltmeter.audit.readers.table_files import TableFile, flatten, number
from tiltmeter.audit.readers.wandb_tables import find_tables, read_tables, run_with_tables
from tiltmeter.data.records import RolloutBatch
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.safety.safe_text import log_line

INSTALL = "pip install 'tiltmeter[trackers]'"
MAGIC = b":W&B\xe1\xbe\x00"
BLOCK, HEAD = 32768, struct.Struct("<IHB")  # of the log format: checksum, length, kind
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4
HISTORY = "history.jsonl"
STAMPS = ("_step", "_timestamp", "_runtime", "step", "timestamp", "train/global_step")  # of every row
OURS = "tiltmeter/"  # what Tiltmeter itself has put into the run
SETTINGS = 200  # of a run's configuration that are kept


class WandBReader:
    """A run that Weights & Biases logged to disk: its history by step, its configuration, and tables of completions.

    Clusters without internet train in offline mode and leave this folder. Nothing is sent anywhere. The log is read
    record by record; its messages are decoded with the package's own definitions.

    >>> WandBReader().find(Path("no/such/place"), ReadOptions())
    []
    """

    name = "wandb"
    title = "Weights & Biases, offline"

    def find(self, path: Path, options: ReadOptions) -> list[ExternalRun]:
        runs: dict[str, list[Path]] = {}
        for file in run_files(path):
            # A resumed run has a folder for each start.
            runs.setdefault(file.parent.name if file.name == HISTORY else file.stem, []).append(file)
        if not runs:
            return []
        refuse_split(options, str(path), step=False)
        if any(file.name != HISTORY for file in run_files(path)) and importlib.util.find_spec("wandb") is None:
            raise AttachError(f"{path}: logs of W&B are read with its own package; to install: {INSTALL}")
        return with_distinct_names(
            collect_runs({name: partial(_of_files, files, options) for name, files in runs.items()})
        )

    def read(self, run: ExternalRun, piece: Piece) -> Iterator[RolloutBatch]:
        """The rollouts, where there are tables of them; without tables a run has no pieces to be read."""
        yield from read_tables(run, piece)


def run_files(path: Path) -> list[Path]:
    """The logs at a path, in a run's folder, or in a folder of runs, in the order in which they were started."""
    if path.is_file():
        return [path] if path.suffix == ".wandb" or path.name == HISTORY else []
    if not path.is_dir():
        return []
    # `latest-run` is a link to one of the others.
    names = ("*.wandb", HISTORY)
    places = [f"{under}{name}" for under in ("", "*run-*/", "wandb/*run-*/") for name in names]
    files = {file for place in places for file in path.glob(place)}
    return sorted(file for file in files if not file.parent.is_symlink() and not file.name.startswith("."))


@dataclass
class WandBHistory:
    """The logged rows of a run in order, from one or several logs, and its configuration."""

    rows: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    columns: dict[str, None] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    name: str = ""
    text_columns: set[str] = field(default_factory=set)
    damage_notes: list[str] = field(default_factory=list)


def _of_files(files: list[Path], options: ReadOptions) -> list[ExternalRun]:
    history = WandBHistory()
    for file in files:
        (_read_history if file.name == HISTORY else _read_log)(history, file)
    step = step_column(history.columns, options.columns.get("step"))
    if step is None:
        raise StoreError(
            f"{files[0]}: no column {options.columns.get('step', '_step')!r} in its history; name it: --map step=COLUMN"
        )
    series, stepless = MetricSeries(), 0
    for where, logged in history.rows:
        row = {name: cell for name, cell in logged.items() if not name.startswith(OURS)}
        if len(row) < len(logged) and row.keys() <= {step, *STAMPS}:
            continue  # a row of ours
        if row.get(step) is None:
            stepless += 1
            continue
        values: Numbers = {}
        for name, cell in row.items():
            value = (
                None if isinstance(cell, str) and cell.lower() not in ("nan", "infinity", "-infinity") else number(cell)
            )
            if value is not None and name != step:
                values[name] = value
            elif name != step:
                history.text_columns.add(name)
        series.add(parse_step(number(row[step]), where), values)
    tables = find_tables(files)
    if not series.rows and not tables:
        raise StoreError(f"{files[0]}: its history holds no numbers; name the folder of another run")
    name = history.name or (files[0].parent.name if files[0].name == HISTORY else files[0].stem.removeprefix("run-"))
    notes = [
        f"{'fetched' if files[0].name == HISTORY else 'W&B'}: {len(files)} log{'s' * (len(files) > 1)} of run "
        f"{log_line(name, 80)}, steps are {log_line(step, 60)}"
    ]
    if stepless:
        notes.append(f"{stepless} rows without {log_line(step, 60)} were left out")
    if words := history.text_columns - {name for values in series.segments for row in values.values() for name in row}:
        notes.append(f"{len(words)} columns that hold no numbers were left out")
    notes += [*history.damage_notes, *_config_notes(history.settings)]
    settings = {"config": history.settings}
    if tables:
        return [run_with_tables(name, WandBReader.name, tables, series, options, notes, settings)]
    return make_runs(name, WandBReader.name, series, options, where=str(files[0]), notes=notes, settings=settings)


def _config_notes(settings: Mapping[str, Any]) -> Iterator[str]:
    """A note on the settings that matter for the readings, from the run's configuration."""
    keys = ("beta", "kl_coef", "num_generations", "group_size", "temperature", "learning_rate", "loss_type")
    pairs = [f"{key} {log_line(str(settings[key]), 40)}" for key in keys if key in settings]
    if pairs:
        yield f"configured: {', '.join(pairs)}"


def _read_log(history: WandBHistory, file: Path) -> None:
    from google.protobuf.message import DecodeError
    from wandb.proto import wandb_internal_pb2 as messages

    for place, data in log_records(file, history.damage_notes):
        try:
            record = messages.Record.FromString(data)
        except DecodeError as error:
            raise StoreError(f"{file}: the record at byte {place} is damaged ({str(error)[:80]})") from error
        what = record.WhichOneof("record_type")
        if what == "run":
            history.name = record.run.display_name or record.run.run_id or history.name
            _configure(history.settings, record.run.config.update)
        elif what == "config":
            _configure(history.settings, record.config.update)
        elif what == "history":
            row = {"/".join(item.nested_key) or item.key: _value(item.value_json) for item in record.history.item}
            row = flatten({"_step": record.history.step.num, **row})
            history.rows.append((f"{file}: the record at byte {place}", row))
            history.columns |= dict.fromkeys(row)


def _read_history(history: WandBHistory, file: Path) -> None:
    """Rows that were fetched, one JSON object a line, as a log has them."""
    for line, row in TableFile(file).rows():
        flat = flatten(row)
        history.rows.append((f"{file}:{line}", flat))
        history.columns |= dict.fromkeys(flat)


def _configure(settings: dict[str, Any], updates: Any) -> None:
    """Add the plain values of a configuration: texts, numbers and booleans."""
    for item in updates:
        name = "/".join(item.nested_key) or item.key
        value = _value(item.value_json)
        for key, plain in flatten({name: value}).items():
            if isinstance(plain, (str, int, float, bool)) and not key.startswith("_wandb") and len(settings) < SETTINGS:
                settings[key[:200]] = plain[:500] if isinstance(plain, str) else plain


def _value(text: str) -> Any:
    """A logged value; None if it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def log_records(file: Path, damage_notes: list[str]) -> Iterator[tuple[int, bytes]]:
    """Each record of a log with its byte offset, checksum verified; where one fails, the rest is left out with a note.

    Blocks of 32 KiB hold pieces of records, each with a checksum; a piece never crosses a block.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise StoreError(f"{file}: it cannot be read ({error.strerror}); copy it again or move it away") from error
    if not data.startswith(MAGIC):
        raise StoreError(f"{file}: not a log of W&B, or of a format that is newer than this reader")
    at, begun = len(MAGIC), 0
    parts: list[bytes] = []
    while at < len(data):
        if BLOCK - at % BLOCK < HEAD.size:
            at += BLOCK - at % BLOCK
            continue
        if at + HEAD.size > len(data):
            break
        checksum, length, kind = HEAD.unpack_from(data, at)
        body = data[at + HEAD.size : at + HEAD.size + length]
        if len(body) < length or zlib.crc32(body, zlib.crc32(bytes([kind]))) != checksum:
            break
        if kind in (FULL, FIRST):
            parts, begun = [], at
        parts.append(body)
        at += HEAD.size + length
        if kind in (FULL, LAST):
            yield begun, b"".join(parts)
            parts = []
    if at < len(data) or parts:
        damage_notes.append(
            f"{log_line(file.name, 80)} is damaged or cut short at byte {at} of {len(data)}: the rest is left out"
        )
