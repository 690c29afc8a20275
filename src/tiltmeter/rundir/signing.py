"""The token that signs a run's requests, stored outside the run directory, and safe reading of control files."""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

from tiltmeter.errors import AttachError
from tiltmeter.rundir.atomic_write import publish
from tiltmeter.rundir.owner_state import make_owner_folder, owner_folder, read_owned
from tiltmeter.rundir.run_path import UnsafePathError, make_folder, open_folder
from tiltmeter.rundir.sidecar import list_sidecars
from tiltmeter.rundir.store import RunDirectory

MAX_FILE_BYTES = 4096  # bytes of a request or a receipt
MAX_FILES = 256  # files read in one poll: many planted files must not delay a training step

T = TypeVar("T")

_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def make_token(run: RunDirectory, kind: str = "token") -> bytes:
    """The secret that signs this run's requests, made if there is none yet. Called by the trainer at attach.

    `kind`: of secret; there is another that seals the monitor's snapshots.
    """
    path = _token_path(run, kind)
    if path.exists():
        return read_token(run, kind)  # on a full disk too: a monitor that comes back needs its snapshot's key
    try:
        make_owner_folder()
        publish(path, [secrets.token_hex(32).encode()])
    except FileExistsError:
        pass  # a resumed run, or another start, was first
    except OSError as error:
        raise AttachError(
            f"cannot keep a token in {path.parent}: {error}; set XDG_STATE_HOME to a place you own"
        ) from None
    return read_token(run, kind)


def read_token(run: RunDirectory, kind: str = "token") -> bytes:
    """The secret, for whoever started the run. Raises `AttachError` for anybody else."""
    path = _token_path(run, kind)
    try:
        token = read_owned(path, 128).strip()
    except OSError as error:
        raise AttachError(
            f"no token at {path} ({error.strerror}): only the user who started training may ask for changes, on a "
            "machine that has this file"
        ) from None
    if len(token) < 32:
        raise AttachError(f"{path} is not a token: delete it and attach again")
    return token


def _token_path(run: RunDirectory, kind: str) -> Path:
    name = run.identity().get("id")
    if not isinstance(name, str) or not _RUN.fullmatch(name):
        raise AttachError(f"{run.path / 'run.json'} has no usable id, and tokens are kept by it: start a new run")
    return owner_folder() / f"{name}.{kind}"


def signature(facts: Mapping[str, Any], token: bytes) -> str:
    """HMAC-SHA256 of a request's content, independent of key order.

    >>> signature({"a": 1, "b": 2}, b"secret") == signature({"b": 2, "a": 1}, b"secret")
    True
    """
    plain = json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    return hmac.new(token, plain, hashlib.sha256).hexdigest()


def is_signed(facts: Mapping[str, Any], claimed: str, token: bytes) -> bool:
    return hmac.compare_digest(claimed.encode("utf-8", "surrogatepass"), signature(facts, token).encode())


def receipt_key(token: bytes) -> bytes:
    """The key that signs receipts. Every rank of a trainer has it, and none can sign a request with it."""
    return hmac.new(token, b"receipts", hashlib.sha256).digest()


def make_control_folder(run: RunDirectory, *inner: str) -> Path:
    """`control/`, or a folder in it, made if need be. Raises `UnsafePathError` for one that somebody else made.

    In a directory that others may write to, whoever made this folder first could remove what is put there.
    """
    path: Path = run.path
    for name in ("control", *inner):
        path = make_folder(path, name, mode=0o700)
        with open_folder(path, change=True) as handle:
            if (owner := os.fstat(handle).st_uid) != os.geteuid():
                raise UnsafePathError(errno.EPERM, f"belongs to user {owner}: remove it and start again", path)
    return path


def read_new_files(
    run: Path, inner: str, kind: type[T], seen_names: Collection[str]
) -> tuple[dict[str, T], dict[str, str]]:
    """New `.json` files in a folder of `control/` by name, and why others of them are refused.

    `seen_names` are skipped, with or without `.json`. At most `MAX_FILES` at a time, by name, and of this user only.
    """

    def is_new(name: str) -> bool:
        stem = name.removesuffix(".json")
        return name != stem and not name.startswith(".") and name not in seen_names and stem not in seen_names

    try:
        return list_sidecars(run / "control" / inner, is_new, kind, MAX_FILE_BYTES, most=MAX_FILES, owner=os.geteuid())
    except UnsafePathError:
        return {}, {}  # a symbolic link, which is not followed
