"""Atomic file writes: a file appears complete under its final name, or not at all.

Dot name, write, fsync, link without replacing, fsync of the directory. `os` is called by name throughout, so that a
test can make the n-th call fail.
"""

from __future__ import annotations

import fcntl
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
    dot, handle = open_dot(path)
    try:
        for piece in pieces:
            write_all(handle, piece)
        os.fsync(handle)
        os.link(dot, path)  # while the handle, and with it the lock, is held
    finally:
        try:
            dot.unlink()
        except OSError:
            pass  # a dot file is invisible to every reader; the next attach sweeps it away
        try:
            os.close(handle)
        except OSError:
            pass  # errors in the data were already reported by fsync
    try:
        sync_folder(path.parent)
    except OSError:
        return False
    return True


def open_dot(path: Path) -> tuple[Path, int]:
    """A new file under a dot name beside `path`, open and locked: the lock says that its writer is alive."""
    while True:
        dot = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        handle = os.open(dot, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass  # a sweep came between the two calls; it is about to remove the file
        except OSError:
            return dot, handle  # a file system without locks: no sweep gets one either, and dot files stay
        else:
            if os.fstat(handle).st_nlink:
                return dot, handle
        os.close(handle)


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
    """Remove the dot files of writers that are gone; called when an attempt opens, on the attempts before it.

    A run started twice by mistake has a living writer in an earlier attempt: a dot file that is locked is left alone.
    """
    count = 0
    for entry in entries(folder):
        if entry.name.startswith(".") and entry.is_file(follow_symlinks=False):
            try:
                handle = os.open(entry.path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            except OSError:
                continue  # linked and gone since it was listed, or not ours to remove
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                Path(entry.path).unlink()
                count += 1
            except OSError:
                pass
            finally:
                os.close(handle)
    return count


def entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Directory entries that are not symbolic links: a run directory from elsewhere must not point out of itself."""
    try:
        with os.scandir(folder) as entries:
            yield from (e for e in entries if e.is_file(follow_symlinks=False) or e.is_dir(follow_symlinks=False))
    except FileNotFoundError:
        return
