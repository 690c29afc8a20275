"""Sealed Parquet files: checksums over footer and column chunks, so that a flipped bit is never read as data.

Parquet's page checksums cover page bodies only: page headers and the footer, where schema, offsets and our own
metadata live, have none. The seal is a small block between the last column chunk and the footer, which the
format leaves unused (readers find the footer from the end of the file, chunks by absolute offset). It holds a CRC-32
of the footer and of each column chunk, headers included, so one column of one row group can be checked alone.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tiltmeter.errors import StoreError
from tiltmeter.rundir.atomic_write import write_all
from tiltmeter.rundir.decoded_size import check_decoded, decoded_size
from tiltmeter.rundir.run_path import open_file

_MAGIC = b"TILTSEAL"
_TAIL = 8  # footer length and PAR1


def seal(parquet: pa.Buffer) -> list[pa.Buffer | bytes]:
    """The pieces of the sealed file, in order, from the bytes of an ordinary one."""
    footer_at = _footer_start(parquet)
    meta = pq.read_metadata(pa.BufferReader(parquet))
    sums = [
        zlib.crc32(_chunk(parquet, group, column))
        for group in map(meta.row_group, range(meta.num_row_groups))
        for column in range(meta.num_columns)
    ]
    sums.append(zlib.crc32(parquet[footer_at:]))
    block = b"".join(crc.to_bytes(4, "little") for crc in sums)
    return [parquet[:footer_at], block, struct.pack("<I", len(block)), _MAGIC, parquet[footer_at:]]


def seal_file(handle: int) -> None:
    """Seal a Parquet file on disk that is too large to hold in memory; nobody may read it before this returns."""
    pieces = [memoryview(piece) for piece in seal(_map(handle))]
    tail, end = b"".join(pieces[1:]), len(pieces[0])
    del pieces  # and with them the mapping, before the file is cut
    os.ftruncate(handle, end)
    os.lseek(handle, 0, os.SEEK_END)
    write_all(handle, tail)


def map_file(path: Path) -> pa.Buffer:
    """The bytes of a file, read as they are used: a packed file is too large to hold in memory."""
    handle = open_file(path)
    try:
        return _map(handle)
    finally:
        os.close(handle)


def _map(handle: int) -> pa.Buffer:
    """The bytes behind a descriptor, which the mapping outlives. An empty file cannot be mapped."""
    if not os.fstat(handle).st_size:
        return pa.py_buffer(b"")
    return pa.py_buffer(mmap.mmap(handle, 0, access=mmap.ACCESS_READ))


class SealedFile:
    """An open sealed file: its footer is checked at once, column chunks when asked for."""

    def __init__(self, data: pa.Buffer, name: str) -> None:
        self.data, self.name = data, name
        footer_at = _footer_start(data, name)
        head = footer_at - len(_MAGIC) - 4
        if head < 4 or data[head + 4 : footer_at].to_pybytes() != _MAGIC:
            raise StoreError(f"{name}: no seal; not written by Tiltmeter, or damaged")
        (size,) = struct.unpack("<I", data[head : head + 4])
        if not 4 <= size <= head - 4 or size % 4:
            raise StoreError(f"{name}: damaged seal")
        self._sums = struct.unpack(f"<{size // 4}I", data[head - size : head])
        if zlib.crc32(data[footer_at:]) != self._sums[-1]:
            raise StoreError(f"{name}: damaged footer")
        self.file = pq.ParquetFile(
            pa.BufferReader(data), page_checksum_verification=True, arrow_extensions_enabled=False
        )
        footer = self.file.metadata
        if footer.num_row_groups * footer.num_columns != len(self._sums) - 1:
            raise StoreError(f"{name}: the seal is of another file")

    def check(self, row_groups: Iterable[int], columns: Iterable[int]) -> None:
        """Raise unless the chunks of these row groups and leaf columns are as they were written, and decode to sizes
        within the limits."""
        footer, leaf_columns, groups = self.file.metadata, list(columns), []
        for row_group in row_groups:
            group = footer.row_group(row_group)
            groups.append(group)
            for column in leaf_columns:
                chunk = _chunk(self.data, group, column)  # of those that are read only: a packed file has thousands
                if zlib.crc32(chunk) != self._sums[row_group * footer.num_columns + column]:
                    raise StoreError(f"{self.name}: damaged data in row group {row_group}, column {column}")
        try:
            size = decoded_size(self.data, groups, leaf_columns)
        except ValueError as error:
            raise StoreError(f"{self.name}: {error}") from error
        check_decoded(self.name, size, self.data.size)

    def read(self, row_groups: Iterable[int] | None = None, columns: Iterable[str] | None = None) -> pa.Table:
        """The named columns (all by default) of the given row groups, checked first."""
        groups = range(self.file.metadata.num_row_groups) if row_groups is None else list(row_groups)
        schema = self.file.schema_arrow  # made anew each time it is asked for
        available = set(schema.names)
        names = None if columns is None else [name for name in columns if name in available]
        leaves = range(self.file.metadata.num_columns)
        if names is not None:
            first = self.file.metadata.row_group(0) if self.file.metadata.num_row_groups else None
            paths = {*names, *(f"{name}.list.element" for name in names)}
            leaves = [i for i in leaves if first and first.column(i).path_in_schema in paths]  # type: ignore[assignment]
        self.check(groups, leaves)
        if not len(groups):
            return schema.empty_table().select(names or schema.names)
        return self.file.read_row_groups(list(groups), columns=names, use_threads=False)


def _footer_start(data: pa.Buffer, name: str = "file") -> int:
    if data.size < 12 or data[data.size - 4 :].to_pybytes() != b"PAR1":
        raise StoreError(f"{name}: not a whole Parquet file")
    (length,) = struct.unpack("<I", data[data.size - _TAIL : data.size - 4])
    start = int(data.size) - _TAIL - int(length)
    if start < 4:
        raise StoreError(f"{name}: damaged footer length")
    return start


def _chunk(data: pa.Buffer, group: pq.RowGroupMetaData, index: int) -> pa.Buffer:
    """The bytes of one column of a row group, page headers included."""
    column = group.column(index)
    start = column.data_page_offset
    if column.dictionary_page_offset is not None:
        start = min(start, column.dictionary_page_offset)
    return data[start : start + column.total_compressed_size]
