"""The tokenizer's pieces in a run: `pieces/N.parquet`, from attempt N on, until one has another tokenizer."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from tiltmeter.data.token_pieces import TokenPieces
from tiltmeter.errors import StoreError
from tiltmeter.rundir.atomic_write import publish
from tiltmeter.rundir.columns import content_hash
from tiltmeter.rundir.parquet import FORMAT, ROW_GROUP_ROWS, encode, open_sealed
from tiltmeter.rundir.run_path import entries, make_folder, read_file
from tiltmeter.rundir.seal import seal
from tiltmeter.rundir.store import RunDirectory, as_store_errors

FOLDER = "pieces"
MOST_PIECES = 1 << 21  # ids of a tokenizer
PIECE_BYTES = 4096
FILE_BYTES = 64 << 20

_FILE = re.compile(r"([0-9]{1,9})\.parquet")
_SCHEMA = pa.schema([("piece", pa.binary()), ("special", pa.bool_())])


def write_pieces(run: RunDirectory, attempt: int, pieces: TokenPieces) -> bool:
    """Store a tokenizer's pieces; False if those that hold for this attempt are the same. Raises `ValueError`."""
    if not 0 < len(pieces.texts) <= MOST_PIECES or len(pieces.special) != len(pieces.texts):
        raise ValueError(f"a tokenizer has 1 to {MOST_PIECES:,} pieces, each with a mark whether it is special")
    if max(map(len, pieces.texts)) > PIECE_BYTES:
        raise ValueError(f"a piece has more than {PIECE_BYTES} bytes")
    columns = [pa.array(pieces.texts, pa.binary()), pa.array(np.asarray(pieces.special, bool), pa.bool_())]
    table = pa.table(columns, schema=_SCHEMA)
    number = _newest(run, attempt)
    if number is not None and content_hash(_read_table(run, number)) == content_hash(table):
        return False
    spans = [(at, min(at + ROW_GROUP_ROWS, len(table))) for at in range(0, len(table), ROW_GROUP_ROWS)]
    path = make_folder(run.path, FOLDER) / f"{attempt}.parquet"
    return publish(path, seal(encode(table, {"format": FORMAT, "rows": len(table)}, spans)))


def read_pieces(run: RunDirectory, attempt: int) -> TokenPieces | None:
    """The pieces of the tokenizer that an attempt had; None if none were stored. Raises `StoreError`."""
    number = _newest(run, attempt)
    if number is None:
        return None
    table = _read_table(run, number)
    return TokenPieces(table["piece"].to_pylist(), table["special"].to_pylist())


def _newest(run: RunDirectory, attempt: int) -> int | None:
    matches = [_FILE.fullmatch(entry.name) for entry in entries(run.path / FOLDER)]
    return max((number for match in matches if match and (number := int(match[1])) <= attempt), default=None)


def _read_table(run: RunDirectory, number: int) -> pa.Table:
    path = run.path / FOLDER / f"{number}.parquet"
    with as_store_errors(path):
        sealed, _ = open_sealed(pa.py_buffer(read_file(path, FILE_BYTES)), str(path))
        table = sealed.read()
        if not table.schema.equals(_SCHEMA) or len(table) > MOST_PIECES or any(c.null_count for c in table.columns):
            raise StoreError(f"{path}: these are no pieces of a tokenizer")
        return table
