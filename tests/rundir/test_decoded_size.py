"""What a Parquet file decodes to is bounded before anything is decoded, whatever its footer declares."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tiltmeter.data.batches import from_columns
from tiltmeter.errors import StoreError
from tiltmeter.rundir.columns import to_table
from tiltmeter.rundir.decoded_size import ALWAYS_DECODED, check_footer, decoded_size, page_headers, rows_at_once
from tiltmeter.rundir.parquet import open_sealed
from tiltmeter.rundir.seal import SealedFile, seal


def bound(data: bytes) -> int:
    buffer = pa.py_buffer(data)
    footer = pq.read_metadata(pa.BufferReader(buffer))
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    return decoded_size(buffer, groups, range(footer.num_columns))


def written(table: pa.Table, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return bytes(sink.getvalue().to_pybytes())


def sealed(data: bytes) -> SealedFile:
    return SealedFile(pa.py_buffer(b"".join(memoryview(piece).tobytes() for piece in seal(pa.py_buffer(data)))), "bomb")


TEXT = "x" * (1 << 20)


def texts() -> pa.Table:
    return pa.table({"prompt": [TEXT] * 120})


def numbers() -> pa.Table:
    return pa.table({"reward": np.zeros(26_000_000)})


BOMBS: dict[str, tuple[Callable[[], pa.Table], dict[str, object]]] = {
    "a dictionary of one long text": (texts, {}),
    "many row groups": (numbers, {"use_dictionary": False, "row_group_size": 100_000}),
    "beginnings that are repeated": (
        texts, {"use_dictionary": False, "column_encoding": {"prompt": "DELTA_BYTE_ARRAY"}}
    ),
    "a number that is repeated": (numbers, {"row_group_size": 26_000_000}),
}  # fmt: skip


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_is_decoded(name: str) -> None:
    table, options = BOMBS[name]
    bomb = written(table(), compression="zstd", **options)
    assert len(bomb) < 3 << 20
    before = pa.total_allocated_bytes()
    with pytest.raises(StoreError, match="beyond the limit"):
        sealed(bomb).read()
    assert pa.total_allocated_bytes() - before < 1 << 20


@pytest.mark.parametrize("options", ({}, {"compression": "snappy"}, {"compression": "none"}, {"compression": "gzip"},
                                     {"data_page_version": "2.0"}, {"use_dictionary": False},
                                     {"write_statistics": False, "compression": "zstd"}), ids=str)  # fmt: skip
def test_the_bound_holds_for_ordinary_files(options: dict[str, object]) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({
        "text": [f"word {row} " * int(rng.integers(0, 200)) for row in range(2000)],
        "few": [["a", "bb" * 500, None][row % 3] for row in range(2000)],
        "number": rng.normal(size=2000),
        "list": [rng.integers(0, 9, size=row % 7).tolist() for row in range(2000)],
        "texts": [["a"] * (row % 3) for row in range(2000)],
        "flag": [row % 2 == 0 for row in range(2000)],
    })  # fmt: skip
    data = written(table, **options)
    assert table.nbytes <= bound(data) < ALWAYS_DECODED


def test_a_batch_as_it_is_stored_is_far_below_the_limit() -> None:
    rows = 512
    batch = from_columns(
        0, np.repeat(range(64), 8), reward=np.arange(rows), prompt=["a long prompt " * 100] * rows,
        completion=["an answer " * 200] * rows, tokens=[list(range(500))] * rows,
    )  # fmt: skip
    table, _ = to_table(batch)
    assert bound(written(table, compression="zstd", use_dictionary=["prompt"])) < ALWAYS_DECODED


def test_a_page_that_expands_to_more_than_the_footer_says_is_measured_by_its_own_header() -> None:
    """The header of the first page is changed: its size is a number of a variable number of bytes."""
    data = bytearray(written(pa.table({"reward": np.arange(20_000.0)}), use_dictionary=False, compression="none"))
    footer = pq.read_metadata(pa.BufferReader(pa.py_buffer(bytes(data))))
    start = footer.row_group(0).column(0).data_page_offset
    assert data[start] == 0x15 and data[start + 2] == 0x15  # type, then the expanded size
    small = next(page_headers(memoryview(bytes(data)), start, len(data)))
    assert all(byte & 0x80 for byte in data[start + 3 : start + 5]) and not data[start + 5] & 0x80
    data[start + 3 : start + 6] = bytes((0xFE, 0xFF, 0x7F))  # as long as before
    large = next(page_headers(memoryview(bytes(data)), start, len(data)))
    assert small.expanded < 1 << 18 <= large.expanded
    assert bound(bytes(data)) > 1 << 19


@pytest.mark.parametrize("damage", range(40))
def test_pages_that_are_none_are_refused(damage: int) -> None:
    rng = np.random.default_rng(damage)
    data = bytearray(written(pa.table({"text": ["a", "b" * 100] * 50}), compression="zstd"))
    start = 4
    for at in rng.integers(start, start + 60, size=6):
        data[at] = rng.integers(256)
    try:
        assert bound(bytes(data)) >= 0
    except ValueError as error:
        assert str(error)  # and nothing else


def test_rows_of_another_tool_are_read_in_portions_that_fit(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 1 << 62, 1 << 19).astype(str).tolist()
    texts = {"text": [TEXT] * 60 + ["b"] * 2000, "noise": noise[:2060]}
    (tmp_path / "long.parquet").write_bytes(written(pa.table(texts), compression="zstd"))
    with pq.ParquetFile(tmp_path / "long.parquet") as table:  # most rows are short: 60 MB, and not 2 GB
        assert 1 <= rows_at_once(tmp_path / "long.parquet", table) < 100
    for name, rows in (("rows", pa.table({"step": np.zeros(2_000_000)})), ("texts", pa.table({"text": [TEXT] * 120}))):
        (tmp_path / f"{name}.parquet").write_bytes(written(rows, compression="zstd"))
        with pq.ParquetFile(tmp_path / f"{name}.parquet") as table, pytest.raises(StoreError, match="beyond the limit"):
            rows_at_once(tmp_path / f"{name}.parquet", table)
    (tmp_path / "plain.parquet").write_bytes(written(pa.table({"text": ["a"] * 300})))
    with pq.ParquetFile(tmp_path / "plain.parquet") as table:
        assert rows_at_once(tmp_path / "plain.parquet", table) == 1024
    (tmp_path / "bomb.parquet").write_bytes(written(pa.table({"text": [[TEXT] * 120]}), compression="zstd"))
    with pq.ParquetFile(tmp_path / "bomb.parquet") as table, pytest.raises(StoreError, match="beyond the limit"):
        rows_at_once(tmp_path / "bomb.parquet", table)


def test_a_seal_of_nothing_is_refused() -> None:
    with pytest.raises(StoreError):
        open_sealed(pa.py_buffer(b"PAR1" + struct.pack("<I", 1 << 30) + b"PAR1"), "x")


def test_a_footer_that_would_end_the_process_is_refused(tmp_path: Path) -> None:
    """pyarrow throws in C++, where nobody catches, for counts of levels that a column does not have."""
    for name, value in {"lists": [[1]], "numbers": [1]}.items():
        pq.write_table(pa.table({"x": value}), tmp_path / f"{name}.parquet")
    with pq.ParquetFile(tmp_path / "lists.parquet") as lists, pq.ParquetFile(tmp_path / "numbers.parquet") as numbers:
        view = memoryview((tmp_path / "lists.parquet").read_bytes())
        check_footer(view, lists.metadata)
        with pytest.raises(ValueError, match="counts of other levels"):
            check_footer(view, numbers.metadata)
        with pytest.raises(ValueError, match="footer"):
            check_footer(view[:-9], lists.metadata)
