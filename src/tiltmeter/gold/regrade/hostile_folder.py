"""Reads a folder that an agent wrote, without following or opening anything but plain files, within bounds.

Folders are opened one by one from the one above, so that no link leads out. Devices, pipes, sockets and files with
another name elsewhere are counted, and never opened to be kept.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tiltmeter.gold.regrade.path_rules import CACHES, DEEPEST, is_workspace_path

FILE_BYTES = 1 << 20
TOTAL_BYTES = 4 << 20  # of the files of one workspace that are kept
MOST_LOOKED_AT = 20_000  # names in a workspace


@dataclass
class FolderContent:
    """What stands in a folder, as far as it may be read."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)
    unread: dict[str, str] = field(default_factory=dict)  # files that were left out, with the reason
    cut: str = ""  # the folder in which looking ended

    def leave_out(self, path: str, why: str) -> None:
        self.left_out[why] += 1
        if len(self.unread) < MOST_LOOKED_AT:
            self.unread[path] = why


def read_folder(
    path: str | os.PathLike[str], first: Sequence[str] = ("",), same: Mapping[str, bytes] | None = None,
    *, file_bytes: int = FILE_BYTES, total_bytes: int = TOTAL_BYTES, most: int = MOST_LOOKED_AT,
) -> FolderContent:  # fmt: skip
    """The plain files of a folder. `first`: folders that are looked at before the rest. `same`: contents that are read
    to be compared only, and do not count. Raises `OSError` if the folder itself cannot be opened."""
    listing, rest = FolderContent(), [most, total_bytes]
    seen: set[str] = set()
    root = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for expected in same or ():  # whatever else is there
            _look_at(root, expected, listing, rest, same or {}, file_bytes, seen)
        for place in dict.fromkeys((*first, "")):
            handle = _open_inside(root, place)
            if handle is None:
                continue
            seen.add(place)
            try:
                _look(handle, f"{place}/" if place else "", listing, rest, same or {}, file_bytes, seen)
            finally:
                os.close(handle)
    finally:
        os.close(root)
    return listing


_PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def _open_inside(root: int, place: str) -> int | None:
    """A folder inside, by names of which none is a link."""
    handle = os.dup(root)
    for name in filter(None, place.split("/")):
        outer = handle
        try:
            handle = os.open(name, _PLAIN | os.O_DIRECTORY, dir_fd=outer)
        except OSError:
            return None
        finally:
            os.close(outer)
    return handle


def _look_at(
    root: int, path: str, listing: FolderContent, rest: list[int], same: Mapping[str, bytes], most: int, seen: set[str]
) -> None:
    """One path of which it is known that it may be there."""
    folder, _, name = path.rpartition("/")
    handle = _open_inside(root, folder)
    if handle is None:
        return
    try:
        mode = os.stat(name, dir_fd=handle, follow_symlinks=False).st_mode
        if not stat.S_ISDIR(mode):
            seen.add(path)
            if stat.S_ISLNK(mode):
                _keep_link(handle, name, path, listing)
            else:
                _keep_file(handle, name, path, listing, rest, same, most)
    except OSError:
        pass  # it is gone
    finally:
        os.close(handle)


def _look(
    folder: int,
    prefix: str,
    listing: FolderContent,
    rest: list[int],
    same: Mapping[str, bytes],
    most: int,
    seen: set[str],
) -> None:
    folders: list[str] = []
    with os.scandir(folder) as listed:
        for entry in listed:
            if rest[0] <= 0:
                listing.left_out["more names than are looked at"] += 1
                listing.cut = listing.cut or prefix or "."
                return
            rest[0] -= 1
            path = f"{prefix}{entry.name}"
            if path in seen or entry.name in CACHES or entry.name.endswith(".pyc"):
                continue
            seen.add(path)
            if not is_workspace_path(path):
                deep = prefix.count("/") >= DEEPEST - 1
                listing.left_out["deeper than is looked at" if deep else "a name that no file should have"] += 1
                listing.cut = listing.cut or (prefix if deep else "")
            elif entry.is_symlink():
                _keep_link(folder, entry.name, path, listing)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                _keep_file(folder, entry.name, path, listing, rest, same, most)
    for name in sorted(folders):
        inner = _open_inside(folder, name)
        if inner is None:
            listing.leave_out(f"{prefix}{name}", "a folder that cannot be opened")
            continue
        try:
            _look(inner, f"{prefix}{name}/", listing, rest, same, most, seen)
        finally:
            os.close(inner)


def _keep_link(folder: int, name: str, path: str, listing: FolderContent) -> None:
    """A link is kept as text, where by its text it stays in the workspace."""
    try:
        target = os.readlink(name, dir_fd=folder)
    except OSError:
        target = "/"
    landed = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120 - of text
    if target.startswith("/") or not is_workspace_path(landed) or not target.isprintable() or len(target) > 400:
        listing.leave_out(path, "a link out of the workspace")
    else:
        listing.links[path] = target


def _keep_file(
    folder: int, name: str, path: str, listing: FolderContent, rest: list[int], same: Mapping[str, bytes], most: int
) -> None:
    expected = same.get(path)
    try:
        # The kind is looked at first: to open a device may already do something.
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISREG(info.st_mode):
            listing.leave_out(path, "a device, pipe or socket")
            return
        if info.st_size > most or (expected is None and info.st_size > rest[1]):
            listing.leave_out(path, "too large")
            return
        handle = os.open(name, _PLAIN, dir_fd=folder)
        try:
            opened = os.fstat(handle)
            if (opened.st_dev, opened.st_ino) != (info.st_dev, info.st_ino):
                raise OSError("it changed")
            content = _read(handle, min(opened.st_size, most) + 1)
        finally:
            os.close(handle)
    except OSError:
        listing.leave_out(path, "cannot be read")
        return
    if len(content) != info.st_size:
        listing.leave_out(path, "changed while it was read")
    elif content == expected:
        listing.files[path] = content
    elif info.st_nlink > 1:
        listing.leave_out(path, "has another name elsewhere")
    elif len(content) > rest[1]:
        listing.leave_out(path, "too large")
    else:
        listing.files[path] = content
        rest[1] -= len(content)


def _read(handle: int, most: int) -> bytes:
    parts: list[bytes] = []
    while most > 0 and (part := os.read(handle, most)):
        parts.append(part)
        most -= len(part)
    return b"".join(parts)
