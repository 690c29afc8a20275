"""A file is whole under its final name, or it is not there: the one way anything durable is written.

Dot name, write, fsync, link without replacing, fsync of the directory. `os` is called by name throughout, so that a
test can make the n-th call fail.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa


def publish(path: Path, pieces: Sequence[bytes | pa.Buffer]) -> bool:
    """Make a whole file appear under its final name, or raise and leave nothing. Never replaces.

    A full disk may write short without an error, and a failed file would hold on to the last free space: sizes are
    counted, and the dot file is removed whatever happens. Returns whether the name, too, is known to survive a power
    cut: False if the file is there and whole but its directory could not be synced.
    """
    dot = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(dot, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        try:
            for piece in pieces:
                write_all(handle, piece)
            os.fsync(handle)
        finally:
            os.close(handle)
        os.link(dot, path)
    finally:
        try:
            dot.unlink()
        except OSError:
            pass  # a dot file is invisible to every reader; the next attach sweeps it away
    try:
        sync_folder(path.parent)
    except OSError:
        return False
    return True


def write_all(handle: int, piece: bytes | pa.Buffer) -> None:
    rest = memoryview(piece)
    while len(rest):
        written = os.write(handle, rest)
        if written <= 0:
            raise OSError("write made no progress")
        rest = rest[written:]


def sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(folder: Path) -> int:
    """Remove dot files that a killed writer left behind; called when an attempt opens, on the attempts before it."""
    count = 0
    for entry in entries(folder):
        if entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
            Path(entry.path).unlink()
            count += 1
    return count


def entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Directory entries that are not symbolic links: a run directory from elsewhere must not point out of itself."""
    try:
        with os.scandir(folder) as entries:
            yield from (entry for entry in entries if not entry.is_symlink())
    except FileNotFoundError:
        return
