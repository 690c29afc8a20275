"""Keeps the final workspace of an episode: what differs from the task's own tree, read without following anything.

What was left out is counted by its reason, and named where it might have been part of the program.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct, to_builtins

from tiltmeter.gold.regrade.hostile_folder import MOST_LOOKED_AT, read_folder
from tiltmeter.gold.regrade.path_rules import counts, fixed_folder, is_workspace_path
from tiltmeter.rundir.atomic_write import replace_file
from tiltmeter.rundir.run_path import exists, make_folder, read_file, run_path
from tiltmeter.rundir.sidecar import HOSTILE, parse_sidecar, refuse

FOLDER = "workspaces"  # in a run directory
KEPT_BYTES = 16 << 20  # of one kept workspace, as it is stored
MOST_FILES = 1000  # that are kept
MOST_NAMED = 50  # of those left out

Path400 = Annotated[str, Meta(max_length=400)]


class KeptWorkspace(Struct, frozen=True, omit_defaults=True):
    """What differs from the tree that the task began with; `base` is the digest of that tree."""

    base: str = ""
    files: dict[Path400, str] = {}
    binary: dict[Path400, str] = {}  # base64
    links: dict[Path400, Path400] = {}  # that stay inside of the workspace
    removed: tuple[Path400, ...] = ()
    left_out: dict[str, int] = {}  # what was not kept, by reason
    unknown: tuple[Path400, ...] = ()  # of what was left out: paths that might count

    @property
    def content(self) -> dict[str, bytes]:
        """The files that are kept. Raises `ValueError`."""
        decoded = {path: base64.b64decode(text, validate=True) for path, text in self.binary.items()}
        return {path: text.encode() for path, text in self.files.items()} | decoded


def tree_digest(files: Mapping[str, bytes]) -> str:
    """SHA-256 of a tree's paths and contents."""
    lines = (f"{path}\0{hashlib.sha256(content).hexdigest()}\n" for path, content in sorted(files.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def diff_workspace(
    path: str | os.PathLike[str], base: Mapping[str, bytes] | None = None, allow: Sequence[str] = ("**",),
    protected: Sequence[str] = (),
) -> KeptWorkspace:  # fmt: skip
    """What an agent left in a folder, as what differs from the tree it began with. Raises `OSError`."""
    listing = read_folder(path, sorted({fixed_folder(pattern) for pattern in allow}, reverse=True), base)
    base = {} if base is None else base
    changed = {name: content for name, content in listing.files.items() if base.get(name) != content}
    order = sorted(changed, key=lambda name: (not counts(name, allow, protected), name))
    for name in order[MOST_FILES:]:
        listing.leave_out(name, "more files than are kept")
    texts, binary = {}, {}
    for name in order[:MOST_FILES]:
        try:
            texts[name] = changed[name].decode("utf-8")
        except UnicodeDecodeError:
            binary[name] = base64.b64encode(changed[name]).decode()
    unknown = [name for name, why in listing.unread.items() if counts(name, allow, protected) and why in UNKNOWN]
    if listing.cut and any(_may_hold(listing.cut, pattern) for pattern in allow):
        unknown.append(listing.cut.strip("/"))
    removed = [name for name in base if name not in listing.files and name not in unknown]
    return KeptWorkspace(
        tree_digest(base) if base else "", texts, binary, listing.links, tuple(sorted(removed)[:MOST_LOOKED_AT]),
        dict(listing.left_out), tuple(sorted(unknown)[:MOST_NAMED]),
    )  # fmt: skip


#: Reasons for which a file's content is not expected, although it is a file like any other. Links, devices and the like
#: are no files of the agent's, and the tests run without them.
UNKNOWN = ("too large", "more files than are kept", "cannot be read", "changed while it was read")


def _may_hold(folder: str, pattern: str) -> bool:
    """Whether there may be paths of a pattern in a folder."""
    fixed, folder = fixed_folder(pattern), folder.strip("./")
    return not fixed or not folder or folder.startswith(fixed) or fixed.startswith(folder)


def store_workspace(run: Path, workspace: KeptWorkspace) -> str:
    """Write a workspace into a run directory, under the hash of its content; returns that. Raises `OSError`."""
    content = json.dumps(to_builtins(workspace), sort_keys=True, ensure_ascii=True).encode()
    if len(content) > KEPT_BYTES:
        raise OSError(f"a workspace of {len(content)} bytes is not kept")
    address = hashlib.sha256(content).hexdigest()
    path = make_folder(run_path(run), FOLDER) / f"{address}.json"
    if not exists(path):
        # Not synced, for training waits: a power cut costs labels. What another rank wrote meanwhile is the same.
        replace_file(path, content)
    return address


def load_workspace(run: Path, address: str) -> KeptWorkspace:
    """A workspace that was kept. Raises `StoreError`."""
    path = run_path(run) / FOLDER / f"{address}.json"
    if len(address) != 64 or not set(address) <= set("0123456789abcdef"):
        raise refuse(path, "no address of a workspace")
    try:
        content = read_file(path, KEPT_BYTES)
        if hashlib.sha256(content).hexdigest() != address:
            raise ValueError("its content is not what its name says")
        workspace = parse_sidecar(content, KeptWorkspace)
        if not all(map(is_workspace_path, _paths(workspace))):
            raise ValueError("a path leads out of it")
        return workspace
    except HOSTILE as error:
        raise refuse(path, error) from error


def _paths(workspace: KeptWorkspace) -> Iterator[str]:
    for names in (workspace.files, workspace.binary, workspace.links, workspace.removed):
        yield from names
