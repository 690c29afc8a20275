"""Paths beneath a run directory, and the only way to open, list, make and remove what stands there.

A run directory from elsewhere must not point out of itself. So each folder on the way is opened by descriptor from the
one above it and no link is followed, for reading or writing; what is opened is a plain file of this user, of root or of
the directory's owner; and no pipe or device blocks. `os` is called by name, so that a test can make a call fail.

A store on disk (`file://`) and the copy of a run pass the same gate by another `role`: neither has an audit's links; a
store may hold files of several people; and a copy is written to by this program alone, while it is brought up to date.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PosixPath, PurePath
from typing import Any, Literal, NamedTuple, TypeAlias

from tiltmeter.errors import StoreError
from tiltmeter.safety.safe_text import log_line

#: What an audit has for itself (`control`: it makes no requests to a trainer); all else in its directory may be a link
#: into the run that it audits.
NEVER_LINKED = ("run.json", "events", "cache", "control", "monitor.log")
COPY_MARK = ".copy"  # in a copy of a run that is kept elsewhere, to which nobody may write
IDENTITY_BYTES = 16 << 20  # of a run.json; that of an audit holds its notes
LONGEST_NAME = 200  # characters of one name below a run or a store

Role: TypeAlias = Literal["run", "store", "copy"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PLAIN = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe in place of a file must not block
_ID = re.compile(rb'"id": ?"[0-9a-f]{16}"')


class UnsafePathError(StoreError, OSError):
    """A link, a pipe, a device, a folder or somebody else's file where a plain file or folder of a run should be.

    Storage that fails is an `OSError`, a file that must not be trusted a `StoreError`: this is both, because writers
    handle the first and readers the second.
    """

    def __init__(self, number: int, why: str, path: Path | str) -> None:
        super().__init__(number, why, str(path))

    def __str__(self) -> str:
        return f"{log_line(str(self.filename))} cannot be read or written: {self.strerror}"


class RunPath(PosixPath):
    """A path that knows how many of its last names are beneath a run directory, and so are not trusted.

    >>> path = run_path("/runs/latest") / "rollouts" / "0"
    >>> path.depth, path.parent.depth, path == Path("/runs/latest/rollouts/0")
    (2, 1, True)
    """

    depth = 1  # a path that lost count is treated like any other: its folder is trusted, its last name is not
    role: Role = "run"

    def __truediv__(self, key: Any) -> RunPath:
        inner = PurePath(key)
        if inner.is_absolute():
            raise UnsafePathError(errno.EINVAL, "not a path below the run", str(inner))
        return _with_depth(super().__truediv__(key), self.depth + len(inner.parts), self.role)

    @property
    def parent(self) -> RunPath:
        return _with_depth(super().parent, max(0, self.depth - 1), self.role)

    def with_name(self, name: str) -> RunPath:
        return _with_depth(super().with_name(name), self.depth, self.role)

    def with_suffix(self, suffix: str) -> RunPath:
        return _with_depth(super().with_suffix(suffix), self.depth, self.role)

    def __reduce__(self) -> Any:
        return _restore, (str(self), self.depth, self.role)


def run_path(path: Path | str, role: Role = "run") -> RunPath:
    """The path of a run directory, store or copy, which the person who names it trusts to be where it is."""
    return _with_depth(RunPath(path), 0, role)


def _with_depth(path: RunPath, depth: int, role: Role) -> RunPath:
    path.depth, path.role = depth, role
    return path


def _restore(path: str, depth: int, role: Role) -> RunPath:
    return _with_depth(RunPath(path), depth, role)


def split_key(key: str) -> tuple[str, ...]:
    """The names on the way to an object or file, each of which is a plain one. Raises `UnsafePathError`.

    >>> split_key("rollouts/0/000001-0.parquet")
    ('rollouts', '0', '000001-0.parquet')
    """
    names = tuple(key.split("/"))
    if not all(map(is_plain_name, names)):
        raise UnsafePathError(errno.EINVAL, "not a path below the run", key[:LONGEST_NAME])
    return names


def is_plain_name(name: str) -> bool:
    """Whether a name that comes from a store or a directory can stand on its own below a folder of ours.

    >>> [is_plain_name(name) for name in ("tonight", "läuft 2", "..", ".ssh", "a/b", "a\\x00", "")]
    [True, True, False, False, False, False, False]
    """
    return 0 < len(name) <= LONGEST_NAME and name[0] != "." and "/" not in name and name.isprintable()


@contextmanager
def open_folder(folder: Path, *, change: bool = False) -> Iterator[int]:
    """A descriptor of a folder. `change`: something will be made or removed in it, so not even the links of an audit
    are followed. Raises `FileNotFoundError`, `UnsafePathError` or another `OSError`."""
    handle = _open_folder(folder, change)[0]
    try:
        yield handle
    finally:
        os.close(handle)


def open_file(path: Path, flags: int = os.O_RDONLY, *, owner: int | None = None) -> int:
    """A descriptor of a plain file. `owner`: nobody else's is accepted."""
    change = bool(flags & (os.O_WRONLY | os.O_RDWR))
    folder, owners = _open_folder(path.parent, change)
    try:
        linkable = isinstance(path, RunPath) and path.role == "run" and path.depth == 1 and not change
        handle = _open_beneath(folder, path, flags, owners, linkable=linkable)
    finally:
        os.close(folder)
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            raise UnsafePathError(errno.EINVAL, "not a plain file", path)
        is_accepted = (not owners or info.st_uid in owners) if owner is None else info.st_uid == owner
        if not is_accepted:
            raise UnsafePathError(errno.EPERM, f"belongs to user {info.st_uid}", path)
    except BaseException:
        os.close(handle)
        raise
    return handle


def read_file(path: Path, limit: int, *, owner: int | None = None, ends: bytes = b"") -> bytes:
    """The bytes of a plain file of at most `limit` bytes. `ends`: it must begin and end with these, which is looked at
    before the rest is read: what is none of ours may be large. Raises `OSError` or `ValueError`."""
    handle = open_file(path, owner=owner)
    try:
        size = os.fstat(handle).st_size
        if size > limit:
            raise ValueError(f"has {size} bytes, more than {limit}")
        if ends and (size < len(ends) or {os.pread(handle, len(ends), at) for at in (0, size - len(ends))} != {ends}):
            raise ValueError(f"does not begin and end with {ends!r}")
        content = os.read(handle, size + 1)
        while len(content) <= size and (more := os.read(handle, size + 1 - len(content))):  # 2 GB at a time at most
            content += more
    finally:
        os.close(handle)
    if len(content) != size:
        raise ValueError("changed while it was read")
    return content


class OpenRun:
    """A run directory, opened once to look at a few of its files: the same rules, for lists of thousands of runs."""

    def __init__(self, run: str) -> None:
        self.run = run
        self._root = os.open(run, _FOLDER)
        self._owners = {os.geteuid(), 0, os.fstat(self._root).st_uid}

    def __enter__(self) -> OpenRun:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._root)

    @contextmanager
    def file(self, folder: str, name: str) -> Iterator[tuple[int, os.stat_result]]:
        """A descriptor of a plain file in a folder of the run, and what `stat` says of it. No link is followed, not
        even those of an audit. Raises `OSError`."""
        inner = os.open(folder, _FOLDER | _PLAIN, dir_fd=self._root)
        try:
            handle = os.open(name, os.O_RDONLY | _PLAIN, dir_fd=inner)
        finally:
            os.close(inner)
        try:
            info = os.fstat(handle)
            if not stat.S_ISREG(info.st_mode) or info.st_uid not in self._owners:
                raise UnsafePathError(errno.EPERM, "not a plain file of its owner", f"{self.run}/{folder}/{name}")
            yield handle, info
        finally:
            os.close(handle)

    def modified(self, name: str) -> float:
        """When a file or folder was changed, by its path in the run; 0 if it is not there."""
        try:
            return os.stat(name, dir_fd=self._root, follow_symlinks=False).st_mtime
        except OSError:
            return 0.0


def entries(folder: Path) -> Iterator[os.DirEntry[str]]:
    """The plain files and folders in a folder; none if it is not there. Their `stat` works while this goes on."""
    try:
        handle = _open_folder(folder, change=False)[0]
    except FileNotFoundError:
        return
    try:
        with os.scandir(handle) as listed:
            for entry in listed:
                if entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
                    yield entry
    finally:
        os.close(handle)


class FolderNames(NamedTuple):
    """The names in a folder: of plain files and folders, and of links, pipes, devices and sockets."""

    plain: list[str]
    others: list[str]

    @classmethod
    def of(cls, folder: Path) -> FolderNames:
        """None are there if the folder is not."""
        names = cls([], [])
        try:
            with open_folder(folder) as handle, os.scandir(handle) as listed:
                for one in listed:
                    plain = one.is_file(follow_symlinks=False) or one.is_dir(follow_symlinks=False)
                    (names.plain if plain else names.others).append(one.name)
        except FileNotFoundError:
            pass
        return names


def folder_changed_at(folder: Path) -> int:
    """When a name in the folder was last added or removed, in nanoseconds by its file system; -1 if it is not there."""
    try:
        with open_folder(folder) as handle:
            return os.fstat(handle).st_mtime_ns
    except FileNotFoundError:
        return -1


def file_status(path: Path) -> os.stat_result | None:
    """What `stat` says of a plain file; None if there is none of this name."""
    try:
        handle = open_file(path)
    except OSError:
        return None
    try:
        return os.fstat(handle)
    finally:
        os.close(handle)


def exists(path: Path) -> bool:
    """Whether anything has this name, a link without a target included."""
    try:
        with open_folder(path.parent) as folder:
            os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_folder(path: Path) -> bool:
    try:
        with open_folder(path):
            return True
    except OSError:
        return False


def make_folder(run: Path, *names: str, mode: int = 0o777) -> Path:
    """A folder inside a run directory, made if need be so that it survives a power cut."""
    path = run
    for name in names:
        with open_folder(path, change=True) as outer:
            path = path / name
            try:
                os.mkdir(name, mode, dir_fd=outer)
            except FileExistsError:
                continue  # if it is a link, opening it refuses it
            except OSError:
                if not is_folder(path):  # it may be there though the server's reply was lost
                    raise
            os.fsync(outer)
    with open_folder(path, change=True):
        return path


def remove(path: Path, *, missing_ok: bool = False) -> None:
    """Remove a file, or a link in its place, but never what a link leads to."""
    try:
        with open_folder(path.parent, change=True) as folder:
            os.unlink(path.name, dir_fd=folder)
    except IsADirectoryError:
        raise UnsafePathError(errno.EISDIR, "a folder in place of a file", path) from None
    except FileNotFoundError:
        if not missing_ok:
            raise


def find_linked(path: Path) -> Path:
    """Where the link of an audit leads. Raises `UnsafePathError` for any other link."""
    with open_folder(path.parent) as root:
        source, _ = _open_audited(root, path)
        os.close(source)
    return path.readlink()


def _open_folder(folder: Path, change: bool) -> tuple[int, set[int]]:
    """A descriptor of a folder, and whose files in it are accepted; empty: everybody's."""
    depth, role = (folder.depth, folder.role) if isinstance(folder, RunPath) else (0, "run")
    names = folder.parts[len(folder.parts) - depth :]
    root = Path(*folder.parts[: len(folder.parts) - depth])
    handle = os.open(root, _FOLDER)
    owners = set() if role == "store" else {os.geteuid(), 0, os.fstat(handle).st_uid}
    try:
        if change and depth and role == "run":
            _refuse_copy(handle, root)
        for number, name in enumerate(names):
            root, linkable = root / name, role == "run" and not (number or change)
            outer, handle = handle, _open_beneath(handle, root, _FOLDER, owners, linkable=linkable)
            os.close(outer)
    except BaseException:
        os.close(handle)
        raise
    return handle, owners


def _refuse_copy(root: int, path: Path) -> None:
    """Refuse to write into a copy: whoever made the run would never see it."""
    try:
        os.stat(COPY_MARK, dir_fd=root, follow_symlinks=False)
    except FileNotFoundError:
        return
    raise UnsafePathError(
        errno.EROFS, "a copy of a run on object storage, which is only read: do this where the run is written", path
    )


def _open_beneath(folder: int, path: Path, flags: int, owners: set[int], *, linkable: bool) -> int:
    """Open one name in an open folder. `linkable`: it may be the link of an audit."""
    if path.name in ("", ".", ".."):
        raise UnsafePathError(errno.EINVAL, "no name of a file", path)
    try:
        return os.open(path.name, flags | _PLAIN, 0o600, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENXIO, errno.EISDIR):
            raise UnsafePathError(error.errno, str(error.strerror), path) from None
        if error.errno not in (errno.ELOOP, errno.ENOTDIR):
            raise
    if not stat.S_ISLNK(os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode):
        raise UnsafePathError(errno.ENOTDIR, "not a folder", path)
    if not linkable:
        raise UnsafePathError(errno.ELOOP, "a symbolic link", path)
    source, owner = _open_audited(folder, path)
    owners.add(owner)
    try:
        return os.open(path.name, flags | _PLAIN, dir_fd=source)
    except OSError as error:
        raise UnsafePathError(errno.ELOOP, "a symbolic link", path) from error
    finally:
        os.close(source)


def _open_audited(root: int, path: Path) -> tuple[int, int]:
    """The run that an audit was made of, and its owner, from a link in the audit's directory.

    Such a link leads to the same name in the audited run, whose run.json the audit has a copy of. It holds a random
    number, so that a directory from elsewhere cannot lead to a run that its sender has not seen.
    """
    refusal = UnsafePathError(errno.ELOOP, "a symbolic link", path)
    target = Path(os.readlink(path.name, dir_fd=root))
    if path.name in NEVER_LINKED or not target.is_absolute() or target.name != path.name:
        raise refusal
    try:
        source = os.open(target.parent, _FOLDER)
    except OSError:
        raise refusal from None
    try:
        identity = _read_identity(root)
        if identity is None or _ID.search(identity) is None or identity != _read_identity(source):
            raise refusal
    except BaseException:
        os.close(source)
        raise
    return source, os.fstat(source).st_uid


def _read_identity(root: int) -> bytes | None:
    try:
        handle = os.open("run.json", os.O_RDONLY | _PLAIN, dir_fd=root)
    except OSError:
        return None
    try:
        info = os.fstat(handle)
        whole = stat.S_ISREG(info.st_mode) and info.st_size <= IDENTITY_BYTES
        return os.read(handle, info.st_size) if whole else None
    finally:
        os.close(handle)
