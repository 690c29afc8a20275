"""Which secrets an object or a table holds that is about to leave this machine, by name."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from tiltmeter.errors import StoreError
from tiltmeter.rundir.parquet import open_sealed
from tiltmeter.rundir.store import as_store_errors
from tiltmeter.safety.secret_scan import SecretScan, scan_environment

#: What the user's code and settings come to. Known forms of secrets count there; in other files they may be a model's.
CODE_AND_SETTINGS = (".py", ".toml", "run.json", "attempt.json")


def secrets_in_object(key: str, data: bytes) -> list[str]:
    """The environment's variables whose value an object holds, and in code and settings also known forms of secrets."""
    scan = scan_environment()
    if not scan.own or not key.endswith(".parquet"):
        return scan.find(data, forms=key.endswith(CODE_AND_SETTINGS))
    try:
        with as_store_errors(Path(key)):
            return _secrets_in_columns(scan, pa.py_buffer(data), key)
    except StoreError:
        return scan.find(data, forms=False)  # damaged: no reader will get text out of it either


def _secrets_in_columns(scan: SecretScan, data: pa.Buffer, key: str) -> list[str]:
    """Every column of text, one row group after the other, as the bytes in which Arrow has it."""
    sealed, _ = open_sealed(data, key)
    names = [field.name for field in sealed.file.schema_arrow if is_text(field.type)]
    secrets: set[str] = set()
    for group in range(sealed.file.metadata.num_row_groups):
        for column in sealed.read([group], names).columns:
            secrets.update(secrets_in_column(scan, column))
    return sorted(secrets)


def secrets_in_column(scan: SecretScan, column: pa.ChunkedArray, *, forms: bool = False) -> set[str]:
    """What a column of text holds of secrets, from the bytes in which Arrow has it; none for a column of others."""
    texts = [chunk.buffers()[2] for chunk in column.chunks] if is_text(column.type) else []
    return {name for text in texts if text is not None for name in scan.find(text.to_pybytes(), forms=forms)}


def is_text(kind: pa.DataType) -> bool:
    """Text, or the bytes of a text that is no whole Unicode."""
    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
