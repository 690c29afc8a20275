"""How large a Parquet column becomes when it is decoded, from its pages and before anything is decoded.

What the footer declares does not bound it: a page may expand to 2 GB whatever the footer says, and a dictionary of one
long text is repeated for each row. So the headers of the pages are read (Thrift's compact encoding), and where a
dictionary of texts could matter, its longest text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tiltmeter.errors import StoreError

ALWAYS_DECODED = 192 << 20  # bytes that any file may decode to
RATIO = 64  # and, beyond that, how many bytes for one in the file
MOST_DECODED = 8 << 30

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_CODECS = {"ZSTD": "zstd", "SNAPPY": "snappy", "GZIP": "gzip", "BROTLI": "brotli", "LZ4": "lz4_raw"}
_DICTIONARY = 2  # a type of pages
_PLAIN, _PREFIXES = 0, 7  # encodings; the second, DELTA_BYTE_ARRAY, repeats the beginnings of earlier texts
_REPEATING = (2, _PREFIXES, 8)  # the others are those of dictionaries
_ROW_BYTES = 256  # of a row of another tool, as an object of Python


class PageHeader(NamedTuple):
    """What the header of a page says, and where the page begins."""

    kind: int
    expanded: int  # bytes
    stored: int
    values: int
    encoding: int
    start: int


class ChunkSizes(NamedTuple):
    """What is known of one column of a row group before it is decoded; sizes in bytes."""

    values: int
    expanded: int  # of all pages
    page: int  # the largest
    width: int | None  # of a number; None: a text
    longest: int  # text that may be repeated
    repeated: int  # values that may repeat it

    def decoded(self, values: int) -> int:
        """The most that so many of its values take. Texts count twice: they become Python's strings."""
        if self.width is not None:
            return self.expanded + values * self.width
        return self.expanded + 2 * (self.expanded + min(values, self.repeated) * self.longest + values * 8)


def decoded_size(data: pa.Buffer, groups: Iterable[pq.RowGroupMetaData], leaves: Iterable[int]) -> int:
    """The most bytes that these columns of these row groups take once decoded. Raises `ValueError` for bad pages."""
    leaf_columns, view = list(leaves), memoryview(data).cast("B")
    chunks = (_chunk_sizes(view, group.column(leaf)) for group in groups for leaf in leaf_columns)
    return sum(chunk.decoded(chunk.values) for chunk in chunks)


def check_decoded(name: str, size: int, stored: int) -> None:
    """Raise for more than a file of `stored` bytes may decode to."""
    if size > min(MOST_DECODED, max(ALWAYS_DECODED, RATIO * stored)):
        raise StoreError(f"{name} has {stored} bytes and would decode to {size}: beyond the limit; not read")


def check_whole(path: Path, footer: pq.FileMetaData) -> None:
    """Raise if a file of another tool decodes to more than it may, read as a whole."""
    with pa.memory_map(str(path)) as source:
        check_footer(memoryview(source.read_buffer()).cast("B"), footer)
        source.seek(0)
        groups = map(footer.row_group, range(footer.num_row_groups))
        size = decoded_size(source.read_buffer(), groups, range(footer.num_columns))
        check_decoded(str(path), size, source.size())


def check_footer(view: memoryview, footer: pq.FileMetaData) -> None:
    """Raise `ValueError` for a footer of which pyarrow cannot describe a column: it would end the process instead."""
    columns = [footer.schema.column(leaf) for leaf in range(footer.num_columns)]
    levels = [(column.max_repetition_level, column.max_definition_level) for column in columns]
    try:
        stop = len(view) - 8
        fields, _ = _read_struct(view, stop - struct.unpack_from("<I", view, stop)[0], stop)
        for group in fields[4]:
            if len(group[1]) != len(levels):
                raise ValueError("a row group has other columns than its file")
            for column, most in zip(group[1], levels, strict=True):
                sizes = column[3].get(16) or {}  # how often each level occurs, if that was counted
                counted = [sizes.get(2), sizes.get(3)]
                if any(counts and len(counts) != level + 1 for counts, level in zip(counted, most, strict=True)):
                    raise ValueError("a column has counts of other levels than its own")
                if 8 in column or 9 in column:
                    raise ValueError("an encrypted column")
    except (IndexError, KeyError, TypeError, AttributeError, struct.error) as error:
        raise ValueError("a footer that does not describe its columns") from error


def rows_at_once(path: Path, table: pq.ParquetFile, most: int = 1024) -> int:
    """How many rows of a file of another tool may be decoded together. Raises if all of its rows together, which may be
    those of one step, would be too large."""
    footer = table.metadata
    nested = [table.schema.column(leaf).max_repetition_level > 0 for leaf in range(footer.num_columns)]
    rows, whole = most, _ROW_BYTES * footer.num_rows
    with pa.memory_map(str(path)) as source:
        view = memoryview(source.read_buffer()).cast("B")
        check_footer(view, footer)
        limit = max(ALWAYS_DECODED, RATIO * len(view))
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            chunks = [_chunk_sizes(view, group.column(leaf)) for leaf in range(footer.num_columns)]
            # One page of each column at a time; a list may have all values of its column in one row.
            pages = list(zip((chunk._replace(expanded=chunk.page) for chunk in chunks), nested, strict=True))
            while rows > 1 and _batch_size(pages, rows) > ALWAYS_DECODED:
                rows //= 4
            check_decoded(str(path), _batch_size(pages, rows), len(view))
            for leaf, chunk in enumerate(chunks):
                size = chunk.decoded(chunk.values)
                if size > limit // 16 and chunk.width is None and not nested[leaf] and 4 * chunk.values < limit:
                    size = 3 * chunk.expanded + 2 * _repeated_bytes(path, number, group.column(leaf).path_in_schema)
                whole += size
            if whole > limit:
                raise StoreError(
                    f"{path} has {len(view)} bytes and would decode to {whole}: beyond the limit; not read"
                )
    return rows


def _repeated_bytes(path: Path, group: int, column: str) -> int:
    """The exact size of a column of texts, from its dictionary and the numbers that stand for them."""
    with pq.ParquetFile(path, read_dictionary=[column]) as table:
        total = 0
        for part in table.read_row_group(group, columns=[column], use_threads=False).column(0).chunks:
            if pa.types.is_dictionary(part.type):
                lengths = pc.binary_length(part.dictionary)
                total += int(pc.sum(lengths.take(part.indices)).as_py() or 0)
        return total


def _batch_size(chunks: Iterable[tuple[ChunkSizes, bool]], rows: int) -> int:
    return sum(chunk.decoded(chunk.values if nested else min(rows, chunk.values)) for chunk, nested in chunks)


def _chunk_sizes(view: memoryview, column: pq.ColumnChunkMetaData) -> ChunkSizes:
    start = column.data_page_offset
    if column.dictionary_page_offset is not None:
        start = min(start, column.dictionary_page_offset)
    stop = start + column.total_compressed_size
    if start < 0 or not start <= stop <= len(view):
        raise ValueError("a column lies outside of the file")
    width = _WIDTHS.get(column.physical_type)
    values = expanded = largest = longest = repeated = 0
    for page in page_headers(view, start, stop):
        expanded, largest = expanded + page.expanded, max(largest, page.expanded)
        if page.kind != _DICTIONARY:
            values += page.values
            repeated += page.values if page.encoding in _REPEATING else 0
            longest = max(longest, page.expanded) if page.encoding == _PREFIXES else longest
        elif width is None:
            longest = max(longest, _longest_text(view, page, column))
    return ChunkSizes(max(values, int(column.num_values)), expanded, largest, width, longest, repeated)


def page_headers(view: memoryview, start: int, stop: int) -> Iterator[PageHeader]:
    """The headers of the pages between two places. Raises `ValueError` if they are not pages, one after the other."""
    while start < stop:
        try:
            fields, body = _read_struct(view, start, stop)
            details = fields.get(5) or fields.get(7) or fields.get(8) or {}
            encoding = details.get(4 if 8 in fields else 2, _PLAIN)
            header = PageHeader(fields[1], fields[2], fields[3], details.get(1, 0), encoding, body)
        except (IndexError, KeyError, TypeError, AttributeError) as error:
            raise ValueError("a page has no header") from error
        if header.expanded < 0 or header.values < 0 or not 0 <= header.stored <= stop - body:
            raise ValueError("a page lies outside of its column")
        yield header
        start = body + header.stored


def _longest_text(view: memoryview, page: PageHeader, column: pq.ColumnChunkMetaData) -> int:
    """The longest text of a dictionary; where it is small in any case, an upper bound of it."""
    if page.expanded * column.num_values <= ALWAYS_DECODED // 16:
        return page.expanded
    if page.expanded > ALWAYS_DECODED:
        raise ValueError(f"a dictionary of {page.expanded} bytes")
    stored = view[page.start : page.start + page.stored]
    if column.compression != "UNCOMPRESSED":
        codec = pa.Codec(_CODECS[column.compression])
        stored = memoryview(codec.decompress(pa.py_buffer(stored), decompressed_size=page.expanded)).cast("B")
    longest = at = 0
    for _ in range(page.values):
        (length,) = struct.unpack_from("<I", stored, at)
        longest, at = max(longest, length), at + 4 + length
        if at > len(stored):
            raise ValueError("a dictionary that ends too early")
    return longest


def _read_struct(view: memoryview, at: int, stop: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """The fields of a Thrift struct by number, and where it ends."""
    if depth > 8:
        raise ValueError("a page header that is nested too deeply")
    fields: dict[int, Any] = {}
    number = 0
    while mark := view[at]:
        at += 1
        if mark >> 4:
            number += mark >> 4
        else:
            number, at = _read_integer(view, at)
        fields[number], at = _read_value(view, at, stop, mark & 15, depth)
    return fields, at + 1


def _read_value(view: memoryview, at: int, stop: int, kind: int, depth: int) -> tuple[Any, int]:
    match kind:
        case 1 | 2:
            return kind == 1, at
        case 3:
            return view[at], at + 1
        case 4 | 5 | 6:
            return _read_integer(view, at)
        case 7:
            return None, at + 8
        case 8:
            length, at = _read_varint(view, at)
            if length > stop - at:
                raise ValueError("a text that ends outside of its column")
            return None, at + length
        case 9 | 10:
            return _read_list(view, at, stop, depth)
        case 12:
            return _read_struct(view, at, stop, depth + 1)
    raise ValueError("a page header with fields of another kind")


def _read_list(view: memoryview, at: int, stop: int, depth: int) -> tuple[list[Any], int]:
    mark, at = view[at], at + 1
    count, kind = mark >> 4, mark & 15
    if count == 15:
        count, at = _read_varint(view, at)
    if count > stop - at or depth > 8:
        raise ValueError("a list that ends outside of its footer")
    items: list[Any] = []
    for _ in range(count):
        item, at = (view[at] == 1, at + 1) if kind in (1, 2) else _read_value(view, at, stop, kind, depth + 1)
        items.append(item)
    return items, at


def _read_integer(view: memoryview, at: int) -> tuple[int, int]:
    raw, at = _read_varint(view, at)
    return (raw >> 1) ^ -(raw & 1), at


def _read_varint(view: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = view[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number of too many bytes")
