"""The secret that signs what is asked of a run, kept outside its directory, and the careful reading of such files."""

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

from tiltmeter.durable import publish
from tiltmeter.errors import AttachError
from tiltmeter.store import RunDirectory

LARGEST = 4096  # bytes of a request or a receipt
MOST = 256  # files looked at in one poll: a heap of planted ones must not hold up a training step

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
        found = os.fstat(handle)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
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
    """HMAC-SHA256 of what a request says, whatever the order of its keys.

    >>> signature({"a": 1, "b": 2}, b"secret") == signature({"b": 2, "a": 1}, b"secret")
    True
    """
    plain = json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()
    return hmac.new(token, plain, hashlib.sha256).hexdigest()


def unread(run: Path, inner: str, known: set[str]) -> list[tuple[str, bytes | str]]:
    """Names of `.json` files in a folder of `control/` with their content, or with why it is not read.

    `known` are those to leave out, with or without `.json`. At most `MOST` at a time, by name.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        outer = os.open(run / "control", flags)
    except OSError:
        return []  # nobody has asked anything yet; a symbolic link points out of the run and is none of ours
    try:
        folder = os.open(inner, flags, dir_fd=outer)
    except OSError:
        return []
    finally:
        os.close(outer)
    try:
        found = (name for name in os.listdir(folder) if name.endswith(".json") and not name.startswith("."))  # noqa: PTH208
        new = sorted(name for name in found if not {name, name.removesuffix(".json")} & known)
        return [(name, _content(name, folder)) for name in new[:MOST]]
    finally:
        os.close(folder)


def _content(name: str, folder: int) -> bytes | str:
    try:
        # Not blocking: whoever plants a pipe must not stop training.
        handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except OSError as error:
        return f"cannot be opened, or is a symbolic link: {error.strerror}"
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            return "not a plain file"
        if found.st_uid != os.geteuid():
            return f"belongs to user {found.st_uid}"
        if found.st_size > LARGEST:
            return f"has {found.st_size} bytes, more than {LARGEST}"
        return os.read(handle, LARGEST + 1)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    finally:
        os.close(handle)
