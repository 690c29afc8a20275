"""Stores the finished items of one step, a JSON line each: they survive a crash and are never asked for again."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.rundir.atomic_write import sync_folder, write_all

Row = dict[str, Any]
#: What names an item, in the order of its key; a step has some of them.
KEY_FIELDS = ("id", "round", "sample", "pair", "order")


def item_key(row: Mapping[str, Any]) -> str:
    """The key of an item.

    >>> item_key({"id": "7c9a", "round": 1, "text": "..."})
    '7c9a/1'
    """
    return "/".join(str(row[name]) for name in KEY_FIELDS if name in row)


class ItemLog:
    """The finished items of one step, by key. `add` returns when the line is on the disk.

    A last line that a crash cut off is taken away when the file is opened: its item was not finished.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[str, Row] = {}
        try:
            existed = path.exists()
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise AttachError(f"{path} cannot be written: {error.strerror}") from error
        if not existed:
            sync_folder(path.parent)
        self._read()

    def _read(self) -> None:
        content = self.path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            os.ftruncate(self._handle, whole)
            os.fsync(self._handle)
        for number, line in enumerate(content[:whole].splitlines(), 1):
            try:
                row = json.loads(line)
                self.rows.setdefault(item_key(row), row)
            except (ValueError, TypeError, KeyError) as error:
                raise AttachError(
                    f"{self.path}, line {number}, is damaged ({type(error).__name__}): remove the line, and its item "
                    "is asked for again"
                ) from error

    def __contains__(self, name: str) -> bool:
        return name in self.rows

    def __getitem__(self, name: str) -> Row:
        return self.rows[name]

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, row: Row) -> None:
        write_all(self._handle, json.dumps(row).encode("ascii") + b"\n")
        os.fsync(self._handle)
        self.rows[item_key(row)] = row

    def close(self) -> None:
        os.close(self._handle)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock the folder for one process: two of them would ask for everything twice."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise AttachError(f"{folder} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise AttachError(f"another process works in {folder}: wait for it, or give another folder") from None
    try:
        yield
    finally:
        os.close(handle)
