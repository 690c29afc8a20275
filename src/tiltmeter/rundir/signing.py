"""The token that signs a run's requests, stored outside the run directory, and safe reading of control files."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.rundir.atomic_write import publish
from tiltmeter.rundir.store import RunDirectory

MAX_FILE_BYTES = 4096  # bytes of a request or a receipt
MAX_FILES = 256  # files read in one poll: many planted files must not delay a training step

_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}")


def make_token(run: RunDirectory) -> bytes:
    """The secret that signs this run's requests, made if there is none yet. Called by the trainer at attach."""
    path = _token_path(run)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        publish(path, [secrets.token_hex(32).encode()])
    except FileExistsError:
        pass  # a resumed run, or another start, was first
    except OSError as error:
        raise AttachError(
            f"cannot keep a token in {path.parent}: {error}; set XDG_STATE_HOME to a place you own"
        ) from None
    return read_token(run)


def read_token(run: RunDirectory) -> bytes:
    """The secret, for whoever started the run. Raises `AttachError` for anybody else."""
    path = _token_path(run)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise AttachError(
            f"no token at {path} ({error.strerror}): only the user who started training may ask for changes, on a "
            "machine that has this file"
        ) from None
    try:
        info = os.fstat(handle)
        if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077:
            raise AttachError(f"{path} is not yours alone: chmod 600 {path}")
        token = os.read(handle, 128).strip()
    finally:
        os.close(handle)
    if len(token) < 32:
        raise AttachError(f"{path} is not a token: delete it and attach again")
    return token


def _token_path(run: RunDirectory) -> Path:
    name = run.identity().get("id")
    if not isinstance(name, str) or not _RUN.fullmatch(name):
        raise AttachError(f"{run.path / 'run.json'} has no usable id, and tokens are kept by it: start a new run")
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "tiltmeter" / f"{name}.token"


def signature(facts: Mapping[str, Any], token: bytes) -> str:
    """HMAC-SHA256 of a request's content, independent of key order.

    >>> signature({"a": 1, "b": 2}, b"secret") == signature({"b": 2, "a": 1}, b"secret")
    True
    """
    plain = json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    return hmac.new(token, plain, hashlib.sha256).hexdigest()


def read_new_files(run: Path, inner: str, seen_names: set[str]) -> list[tuple[str, bytes | str]]:
    """New `.json` files in a folder of `control/`: their names with their content, or with the reason it is not read.

    `seen_names` are skipped, with or without `.json`. At most `MAX_FILES` at a time, by name.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        outer = os.open(run / "control", flags)
    except OSError:
        return []  # no requests yet, or a symbolic link, which is not followed
    try:
        folder = os.open(inner, flags, dir_fd=outer)
    except OSError:
        return []
    finally:
        os.close(outer)
    try:
        names = (name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith("."))  # noqa: PTH208
        new = sorted(name for name in names if not {name, name.removesuffix(".json")} & seen_names)
        return [(name, _content(name, folder)) for name in new[:MAX_FILES]]
    finally:
        os.close(folder)


def _content(name: str, folder: int) -> bytes | str:
    try:
        # Non-blocking: a planted pipe must not stop training.
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        return f"cannot be opened, or is a symbolic link: {error.strerror}"
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode):
            return "not a plain file"
        if info.st_uid != os.geteuid():
            return f"belongs to user {info.st_uid}"
        if info.st_size > MAX_FILE_BYTES:
            return f"has {info.st_size} bytes, more than {MAX_FILE_BYTES}"
        return os.read(handle, MAX_FILE_BYTES + 1)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    finally:
        os.close(handle)
