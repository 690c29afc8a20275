"""Atomic file writes: a file appears complete under its final name, or not at all.

Dot name, write, fsync, final name without replacing, fsync of the directory. `os` is called by name throughout, so that
a test can make the n-th call fail. The final name is given by a hard link; where there are none, by a rename that does
not replace; where there is none either, by a plain rename under a claim.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa

from tiltmeter.rundir.run_path import open_folder, remove

MOUNTS = Path("/proc/self/mountinfo")
#: Names under which this module writes, and the final name in each: all that a sweep may remove.
DOT_FILE = re.compile(r"\.(?P<name>.+)\.(?:[0-9a-f]{8}|claim)|\.probe-[0-9a-f]{8}", re.DOTALL)
#: Types of FUSE mounts whose files are objects.
OBJECT_STORES = (
    *("s3fs", "gcsfuse", "goofys", "geesefs", "mount-s3", "mountpoint-s3", "rclone", "blobfuse", "blobfuse2", "ossfs"),
)


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
            name_file(dot, path.name, folder, handle)  # while the handle, and with it the lock, is held
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


def replace_file(path: Path, content: bytes | Iterable[bytes], *, at: float | None = None) -> None:
    """Put a file in place of what has its name, whole or not at all; a power cut may undo it. For caches and copies.

    `content`: at once or piece by piece. `at`: the time that the file has from then on.
    """
    with open_folder(path.parent, change=True) as folder:
        dot = f".{path.name}.{secrets.token_hex(4)}"
        handle = os.open(dot, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            for piece in (content,) if isinstance(content, bytes) else content:
                write_all(handle, piece)
            if at is not None:
                os.utime(handle, (at, at))
            os.rename(dot, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(dot, dir_fd=folder)
            raise
        finally:
            os.close(handle)


def name_file(dot: str, name: str, folder: int, handle: int) -> None:
    """Give a finished dot file its final name, which must be free; raises `FileExistsError` if it is not.

    A file server may do what it is asked and lose its reply, and the client that asks again is told of an error: so it
    counts whether the name is this file's, not what was returned.
    """
    for way in (_link, _rename_new, _rename_claimed):
        try:
            way(dot, name, folder)
            return
        except OSError as error:
            if _is_named(name, folder, handle):
                return
            if error.errno not in UNSUPPORTED:
                raise
    raise OSError(errno.ENOTSUP, "its file system can neither link nor rename files: choose a directory on another one")


#: What a file system answers that has no such operation.
UNSUPPORTED = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.EMLINK)
CLAIM_SECONDS = 2.0  # after which a claim is that of a writer that was killed
_NOREPLACE = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _link(dot: str, name: str, folder: int) -> None:
    os.link(dot, name, src_dir_fd=folder, dst_dir_fd=folder)


def _rename_new(dot: str, name: str, folder: int) -> None:
    """Rename, and fail if there is a file of that name. Not in Python's `os`, and not on every system."""
    function = getattr(_libc, "renameat2", None)
    if function is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if function(folder, os.fsencode(dot), folder, os.fsencode(name), _NOREPLACE):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)


def _rename_claimed(dot: str, name: str, folder: int) -> None:
    """A plain rename, which would replace: one writer at a time looks whether the name is free and takes it."""
    claim, deadline = f".{name}.claim", time.monotonic() + CLAIM_SECONDS
    while True:
        try:
            os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder))
            break
        except FileExistsError:
            if time.monotonic() > deadline:
                break
            time.sleep(0.01)
    try:
        try:
            os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            os.rename(dot, name, src_dir_fd=folder, dst_dir_fd=folder)
        else:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
    finally:
        with suppress(OSError):
            os.unlink(claim, dir_fd=folder)


def _is_named(name: str, folder: int, handle: int) -> bool:
    """Whether an open file has this name by now."""
    try:
        return os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(handle))
    except OSError:
        return False


def object_store_mount(folder: Path) -> str:
    """The kind of mount, if the folder is an object store's by FUSE; "" otherwise, also where nobody can tell.

    What such a mount says that it did may happen later, or on this machine alone: two machines could each be told that
    a name is theirs, which no test on one of them can find out.
    """
    try:
        lines = MOUNTS.read_text("utf-8", "replace").splitlines()
        path = str(folder.resolve())
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        before, _, after = line.partition(" - ")
        if len(fields := before.split()) > 4 and after:
            place = fields[4].replace("\\040", " ")
            if (path == place or path.startswith(place.rstrip("/") + "/")) and len(place) >= len(best):
                best, kind = place, after.split()[0]
    name = kind.removeprefix("fuse.")
    return name if kind.startswith("fuse") and name.lower() in OBJECT_STORES else ""


def storage_problem(folder: Path) -> str:
    """Why no run can be kept in this folder; empty if a file can be made, named once and read there. Tries it."""
    if mount := object_store_mount(folder):
        why = f"it is an object store, mounted by {mount}, where two writers can each be told that a file is theirs"
        return f"{why}: give its address instead, as s3://BUCKET/RUN"
    probe = folder / f".probe-{secrets.token_hex(4)}"
    try:
        publish(probe, [b"probe"])
        try:
            publish(probe, [b"again"])
        except FileExistsError:
            return ""
        finally:
            with suppress(OSError):  # a dot file, which the next attempt sweeps away
                remove(probe)
    except OSError as error:
        return error.strerror or str(error)
    return "its file system replaces files where it should not: choose a directory on another one"


def open_dot(name: str, folder: int) -> tuple[str, int]:
    """A new file under a dot name in an open folder, locked: the lock says that its writer is alive."""
    while True:
        dot = f".{name}.{secrets.token_hex(4)}"
        try:
            handle = os.open(dot, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        except FileExistsError:
            continue  # no two draw the same name: it was made, and the reply was lost
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
            names = filter(DOT_FILE.fullmatch, os.listdir(opened))  # noqa: PTH208 - names alone
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
