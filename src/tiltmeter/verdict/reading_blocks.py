"""The readings of a run as columns, in blocks in its cache: who draws a few of them does not read the whole journal.

A block holds the readings of some consecutive records of the journal. It is made by the monitor and can be made again
from the journal. It is read only by who has the key that the monitor sealed it with, and that is outside of the run
directory: nothing of a block that somebody else made is decoded. The seal is of its table of contents, which has a hash
of each column, so that one column is read and checked without the others.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from msgspec import MsgspecError, Struct, msgpack

from tiltmeter.data.records import Floats, Ints
from tiltmeter.errors import StoreError
from tiltmeter.rundir.atomic_write import replace_file
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.run_path import make_folder, open_file
from tiltmeter.rundir.store import RunDirectory

FOLDER = "readings"  # in the cache
RECORDS = 2048  # of a block
LIMIT = 1 << 28  # bytes of a block
SEAL = 32
PARTS = ("measured", "derived")


class RecordedColumn(NamedTuple):
    """One reading in some records: its place among all records, and the numbers."""

    positions: Ints
    attempts: Ints
    steps: Ints
    values: Floats
    n: Ints
    stderr: Floats


class BlockContents(Struct, frozen=True, kw_only=True):
    """The table of contents of a block. A column is bytes, or the first of its numbers and their difference."""

    first: int  # record
    attempts: list[int] | bytes
    steps: list[int] | bytes
    names: dict[str, tuple[int, int, bytes]]  # where the columns of a reading are, their size and hash
    count: int


class StoredBlock(NamedTuple):
    """What is remembered of a block that was written."""

    first: int
    records: int
    seal: bytes


@dataclass
class _Column:
    """The numbers of one reading, and in which records of the block they are."""

    rows: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))
    n: array[int] = field(default_factory=lambda: array("q"))
    stderr: array[float] = field(default_factory=lambda: array("d"))


class BlockWriter:
    """Collects readings and writes a block when there are enough."""

    def __init__(self, run: RunDirectory, key: bytes, blocks: Sequence[StoredBlock] = ()) -> None:
        self._run, self._key, self.blocks = run, key, list(blocks)
        self._begin()

    def _begin(self) -> None:
        last = self.blocks[-1] if self.blocks else StoredBlock(0, 0, b"")
        self._first, self._columns = last.first + last.records, dict[str, _Column]()
        self._attempts, self._steps = array("q"), array("q")

    def add(self, event: Event) -> None:
        for part in PARTS:
            if readings := event.data.get(part):
                row = len(self._steps)
                self._attempts.append(event.attempt)
                self._steps.append(event.step)
                for name, packed in readings.items():
                    column = self._columns.get(name)
                    if column is None:
                        column = self._columns[name] = _Column()
                    column.rows.append(row)
                    column.values.append(np.nan if packed[0] is None else packed[0])
                    column.n.append(packed[1])
                    column.stderr.append(np.nan if packed[2] is None else packed[2])
        if len(self._steps) >= RECORDS:
            self.write()

    def write(self) -> None:
        """Write what was collected as a block. Raises OSError."""
        if not len(self._steps):
            return
        names, pieces, offset = {}, [], 0
        for name, column in self._columns.items():
            columns = [column.rows, column.values, column.n, column.stderr]
            piece = msgpack.encode([len(column.rows), *(_shorten(np.array(one)) for one in columns)])
            names[name] = (offset, len(piece), _hash(piece))
            pieces.append(piece)
            offset += len(piece)
        contents = msgpack.encode(
            BlockContents(
                first=self._first,
                attempts=_shorten(np.array(self._attempts)),
                steps=_shorten(np.array(self._steps)),
                names=names,
                count=len(self._steps),
            )
        )
        seal = hmac.new(self._key, contents, hashlib.sha256).digest()
        folder = make_folder(self._run.path, "cache", FOLDER)
        replace_file(
            folder / str(self._first), b"".join([seal, len(contents).to_bytes(8, "little"), contents, *pieces])
        )
        self.blocks.append(StoredBlock(self._first, len(self._steps), seal))
        self._begin()


class ReadingBlock:
    """A block on disk. Raises `StoreError` if it is not the one that was written."""

    def __init__(self, run: RunDirectory, key: bytes, stored: StoredBlock) -> None:
        self._path = run.path / "cache" / FOLDER / str(stored.first)
        with self._open() as handle:
            head = os.pread(handle, SEAL + 8, 0)
            size = min(int.from_bytes(head[SEAL:], "little"), LIMIT)
            contents = os.pread(handle, size, SEAL + 8)
            sealed = hmac.new(key, contents, hashlib.sha256).digest()
            if not (hmac.compare_digest(head[:SEAL], sealed) and hmac.compare_digest(stored.seal, sealed)):
                raise StoreError(f"{self._path} is not the block that the monitor wrote")
            self._contents = msgpack.decode(contents, type=BlockContents)
        self._begins = SEAL + 8 + size
        self._attempts, self._steps = (
            _lengthen(column, self._contents.count, np.int64)
            for column in (self._contents.attempts, self._contents.steps)
        )

    @contextmanager
    def _open(self) -> Iterator[int]:
        """Open for each question: a page has many runs, and a run many blocks."""
        try:
            handle = open_file(self._path)
            try:
                yield handle
            finally:
                os.close(handle)
        except StoreError:
            raise
        except (OSError, ValueError, MsgspecError) as error:
            raise StoreError(f"{self._path} cannot be read: {error}") from None

    @property
    def names(self) -> Mapping[str, Any]:
        return self._contents.names

    def column(self, name: str) -> RecordedColumn:
        """One reading of the block."""
        offset, size, known_hash = self._contents.names[name]
        with self._open() as handle:
            content = os.pread(handle, size, self._begins + offset)
        if _hash(content) != known_hash:
            raise StoreError(f"{self._path} has changed since the monitor wrote it")
        count, *parts = msgpack.decode(content)
        rows = _lengthen(parts[0], count, np.int64)
        return RecordedColumn(
            rows + self._contents.first,
            self._attempts[rows],
            self._steps[rows],
            _lengthen(parts[1], count, np.float64),
            _lengthen(parts[2], count, np.int64),
            _lengthen(parts[3], count, np.float64),
        )


def _hash(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _shorten(numbers: Any) -> list[int] | bytes:
    """Numbers as bytes or, where they are whole and even, the first and the difference."""
    if numbers.dtype == np.int64:
        difference = int(numbers[1] - numbers[0]) if len(numbers) > 1 else 0
        if np.array_equal(numbers, numbers[0] + difference * np.arange(len(numbers))):
            return [int(numbers[0]), difference]
    elif np.isnan(numbers).all():
        return []
    return bytes(numbers.tobytes())


def _lengthen(column: list[int] | bytes, count: int, kind: Any) -> Any:
    if isinstance(column, bytes):
        return np.frombuffer(column, kind)
    if not column:
        return np.full(count, np.nan)
    return column[0] + column[1] * np.arange(count, dtype=np.int64)
