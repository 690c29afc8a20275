"""Atomic file writes: a file appears complete under its final name, or not at all.

Dot name, write, fsync, link without replacing, fsync of the directory. `os` is called by name throughout, so that a
test can make the n-th call fail.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from tiltmeter.rundir.run_path import open_folder


def publish(path: Path, pieces: Sequence[bytes | pa.Buffer]) -> bool:
    """Make a whole file appear under its final name, or raise and leave nothing. Never replaces.

    A full disk may write short without an error, and a failed file would hold on to the last free space: sizes are
    counted, and the dot file is removed whatever happens. Returns whether the name, too, is known to survive a power
    cut: False if the file is there and whole but its directory could not be synced.
    """
    with open_folder(path.parent, change=True) as folder:
        dot, handle = open_dot(path.name, folder)
        try:
            for piece in pieces:
                write_all(handle, piece)
            os.fsync(handle)
            # while the handle, and with it the lock, is held
            os.link(dot, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            try:
                os.unlink(dot, dir_fd=folder)
            except OSError:
                pass  # a dot file is invisible to every reader; the next attach sweeps it away
            try:
                os.close(handle)
            except OSError:
                pass  # errors in the data were already reported by fsync
        try:
            os.fsync(folder)
        except OSError:
            return False
    return True


def replace_file(path: Path, content: bytes) -> None:
    """Put a file in place of what has its name, whole or not at all; a power cut may undo it. For caches."""
    with open_folder(path.parent, change=True) as folder:
        dot = f".{path.name}.{secrets.token_hex(4)}"
        handle = os.open(dot, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            write_all(handle, content)
            os.rename(dot, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(dot, dir_fd=folder)
            raise
        finally:
            os.close(handle)


def open_dot(name: str, folder: int) -> tuple[str, int]:
    """A new file under a dot name in an open folder, locked: the lock says that its writer is alive."""
    while True:
        dot = f".{name}.{secrets.token_hex(4)}"
        handle = os.open(dot, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
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
    with open_folder(folder) as handle:
        os.fsync(handle)


def sweep(folder: Path) -> int:
    """Remove the dot files of writers that are gone; called when an attempt opens, on the attempts before it.

    A run started twice by mistake has a living writer in an earlier attempt: a dot file that is locked is left alone.
    """
    try:
        with open_folder(folder, change=True) as opened:
            names = [name for name in os.listdir(opened) if name.startswith(".")]  # noqa: PTH208 - names alone
            return sum(_remove_dead(name, opened) for name in names)
    except FileNotFoundError:
        return 0


def _remove_dead(name: str, folder: int) -> bool:
    try:
        handle = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=folder)
    except OSError:
        return False  # linked and gone since it was listed, or not ours to remove
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return False
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(name, dir_fd=folder)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True
