"""What a user keeps about runs outside of their directories: tokens, keys, and where a run is mirrored to.

A run directory may come from anybody. What decides where data goes, and who may ask for changes, is therefore never
read from it.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tiltmeter.errors import AttachError


def owner_folder(*names: str) -> Path:
    """A folder of this user's state; `XDG_STATE_HOME` moves it."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home).absolute().joinpath("tiltmeter", *names)


def make_owner_folder(*names: str) -> Path:
    """The folder, made so that only this user can look into it."""
    path = owner_folder(*names)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def read_owned(path: Path, limit: int) -> bytes:
    """The first bytes of a file that only this user can read and write. Raises `OSError`, and `AttachError` for a file
    that others can read or change."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        info = os.fstat(handle)
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077:
            raise AttachError(f"{path} is not yours alone: chmod 600 {path}")
        return os.read(handle, limit)
    finally:
        os.close(handle)
