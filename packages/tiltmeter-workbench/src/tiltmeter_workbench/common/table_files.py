"""Read and write table files (pairs, prompts, scored samples): JSON, JSON lines, CSV, Parquet, `datasets` folders."""

from __future__ import annotations

import csv
import gzip
import io
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.decoded_size import ALWAYS_DECODED, MOST_DECODED, RATIO, check_decoded, rows_at_once

FORMATS = ".jsonl, .jsonl.gz, .json, .csv, .csv.gz or .parquet"
ENDINGS = (".jsonl", ".json", ".csv", ".parquet")
#: Metadata files of `datasets` and of the Hub; they contain no rows.
METADATA_FILES = ("state.json", "dataset_info.json", "dataset_infos.json", "dataset_dict.json")
MAX_CELL_CHARACTERS = 1 << 24  # characters of one cell of a CSV file

Row = dict[str, Any]


def read_rows(path: str | Path, example: str = "") -> list[Row]:
    """The rows of a file, or of a folder's files one after the other. Raises `AttachError` with the fix.

    `example` is a row as it should be, for the message about a file that has none.
    """
    return [row for rows in read_splits(path, example).values() for row in rows]


def read_splits(path: str | Path, example: str = "") -> dict[str, list[Row]]:
    """Rows by split: a file is one split, named "" ; a folder has those that `datasets` or the Hub stores."""
    source = Path(path)
    parts = {"": [source]} if not source.is_dir() else _splits(source)
    try:
        splits = {name: [row for file in files for row in _read_file(file)] for name, files in parts.items()}
    except StoreError as error:
        raise AttachError(str(error)) from error
    except OSError as error:
        raise AttachError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise AttachError(f"{path} is not what its name says: {error}") from error
    if not any(splits.values()) or not all(isinstance(row, dict) for rows in splits.values() for row in rows):
        raise AttachError(f"{path} has no rows" + (f"; one looks like {example}" if example else ""))
    return splits


def need_columns(path: str | Path, rows: Sequence[Row], *names: str) -> None:
    """Raises `AttachError`, with what there is, for a column that no row has."""
    for name in names:
        if not any(name in row for row in rows):
            raise AttachError(f"{path} has no column {name!r}; it has {sorted(rows[0])}: name yours by an option")


def parse_number(cell: object) -> float:
    """A number in a cell, however the table wrote it; NaN where there is none.

    >>> parse_number("0.5"), parse_number(" True "), parse_number(1), parse_number(""), parse_number("high")
    (0.5, 1.0, 1.0, nan, nan)
    """
    if isinstance(cell, str) and cell.strip().lower() in ("true", "false"):
        return float(cell.strip().lower() == "true")
    try:
        return float(cell)  # type: ignore[arg-type]  # any value a table may contain
    except (TypeError, ValueError):
        return math.nan


def write_rows(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """JSON lines; ASCII, so that whatever a model wrote survives any reader."""
    try:
        Path(path).write_text("".join(json.dumps(row) + "\n" for row in rows), "ascii")
    except OSError as error:
        raise AttachError(f"{path} cannot be written: {error.strerror or error}") from error


def _splits(folder: Path) -> dict[str, list[Path]]:
    """The files of a folder by split: its `dataset_dict.json`, else Arrow files, else what files are called."""
    listing = folder / "dataset_dict.json"
    if listing.exists():
        names = json.loads(listing.read_text("utf-8")).get("splits", [])
        return {str(name): sorted((folder / Path(str(name)).name).glob("*.arrow")) for name in names}
    if arrow := sorted(folder.glob("*.arrow")):
        return {"": arrow}
    splits: dict[str, list[Path]] = {}
    for file in sorted(folder.rglob("*")):
        plain = file.name.removesuffix(".gz")
        if file.is_file() and plain.endswith(ENDINGS) and file.name not in METADATA_FILES:
            # A hub's shards are called train-00000-of-00002.parquet.
            name = re.sub(r"-\d+-of-\d+$", "", plain.rsplit(".", 1)[0])
            # Those it converts itself are numbered, in a folder for each split: train/0000.parquet.
            splits.setdefault(file.parent.name if name.isdigit() and file.parent != folder else name, []).append(file)
    if not splits:
        raise AttachError(f"{folder} holds no table: give a file {FORMATS}, or a folder that `datasets` saved")
    return splits


def _read_file(source: Path) -> list[Row]:
    name = source.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        import pyarrow.parquet as parquet

        with parquet.ParquetFile(source) as table:
            return [row for batch in table.iter_batches(rows_at_once(source, table)) for row in batch.to_pylist()]
    if name.endswith(".arrow"):
        import pyarrow as pa

        with pa.memory_map(str(source)) as file:
            stream: list[Row] = pa.ipc.open_stream(file).read_all().to_pylist()
        return stream
    if not name.endswith(ENDINGS):
        raise AttachError(f"{source}: the file's name must end in {FORMATS}")
    return list(_lines(source, name))


def _lines(source: Path, name: str) -> Iterator[Row]:
    data = source.read_bytes()
    if source.name.endswith(".gz"):
        stored = len(data)
        with gzip.open(io.BytesIO(data)) as unpacked:
            data = unpacked.read(min(MOST_DECODED, max(ALWAYS_DECODED, RATIO * stored)) + 1)
        check_decoded(str(source), len(data), stored)
    text = data.decode("utf-8-sig")  # spreadsheets write a mark first
    with io.StringIO(text, newline="") as lines:
        if name.endswith(".csv"):
            before = csv.field_size_limit(MAX_CELL_CHARACTERS)
            try:
                yield from csv.DictReader(lines)
            finally:
                csv.field_size_limit(before)
        elif name.endswith(".json"):
            yield from json.load(lines)
        else:
            yield from (json.loads(line) for line in lines if line.strip())
