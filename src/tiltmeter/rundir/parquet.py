"""Write and open the Parquet files of a run: common settings, metadata, and the checks before a file is read."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tiltmeter.data.records import BOOL_COLUMNS, LABEL_COLUMNS, RAGGED_COLUMNS
from tiltmeter.errors import StoreError
from tiltmeter.rundir.seal import SealedFile

FORMAT = 1  # of the run directory; raised only when an older reader would misread a newer file
ROW_GROUP_ROWS = 100_000
ROW_GROUP_BYTES = 1 << 30  # uncompressed; a footer that declares more is refused before anything is read

_META = b"tiltmeter"
_FEW_VALUES = ("group", "prompt", "facts", *BOOL_COLUMNS, *LABEL_COLUMNS)


def encode(table: pa.Table, facts: Mapping[str, Any], spans: Iterable[tuple[int, int]]) -> pa.Buffer:
    """The bytes of one step's file, one row group per span of rows."""
    sink = pa.BufferOutputStream()
    with open_writer(sink, table.schema.with_metadata({_META: _json(facts)}), level=1) as parquet:
        for start, stop in spans:
            parquet.write_table(table.slice(start, stop - start), row_group_size=max(1, stop - start))
    return sink.getvalue()


def open_writer(sink: Any, schema: pa.Schema, level: int) -> pq.ParquetWriter:
    """Level 1 in the trainer, 3 when packing. Floats and ids gain nothing from a dictionary and much from having their
    bytes split by position; footers carry no minima or maxima, which for text would be the text itself."""
    names = schema.names
    return pq.ParquetWriter(
        sink,
        schema,
        compression="zstd",
        compression_level=level,
        use_dictionary=[n for n in names if n in _FEW_VALUES or n.endswith("_flag")],
        column_encoding={f"{n}.list.element": "BYTE_STREAM_SPLIT" for n in RAGGED_COLUMNS if n in names},
        write_statistics=False,
        write_page_checksum=True,
    )


def annotate(parquet: pq.ParquetWriter, facts: Mapping[str, Any]) -> None:
    """The metadata of a file whose content is only known once it is written."""
    parquet.add_key_value_metadata({_META: _json(facts)})


def open_sealed(data: pa.Buffer, name: str) -> tuple[SealedFile, dict[str, Any]]:
    """A sealed file and its metadata, after the checks that make it safe to read: seal, format, declared sizes."""
    sealed = SealedFile(data, name)
    footer = sealed.file.metadata
    for index in range(footer.num_row_groups):
        group = footer.row_group(index)
        if group.num_rows > ROW_GROUP_ROWS or group.total_byte_size > ROW_GROUP_BYTES:
            raise StoreError(f"{name} declares a row group beyond the limit; not read")
    return sealed, metadata(sealed)


def metadata(sealed: SealedFile) -> dict[str, Any]:
    raw = (sealed.file.metadata.metadata or {}).get(_META)
    if raw is None:
        raise StoreError(f"{sealed.name}: not a file of a run directory")
    facts: dict[str, Any] = json.loads(raw)
    if facts["format"] > FORMAT:
        raise StoreError(f"{sealed.name} has format {facts['format']}: pip install --upgrade tiltmeter")
    return facts


def _json(facts: Mapping[str, Any]) -> bytes:
    return json.dumps(facts, allow_nan=False).encode()
