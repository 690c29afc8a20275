"""Addresses of runs on object storage, as `s3://bucket/runs/tonight`, and where their local directories are kept."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from tiltmeter.rundir.owner_state import owner_folder
from tiltmeter.rundir.run_path import is_plain_name

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "file")
SPOOL = "TILTMETER_SPOOL"
#: A path that was made of an address has lost a slash.
_ADDRESS = re.compile(rf"({'|'.join(SCHEMES)}):/+(.+)")


def parse_address(text: str | os.PathLike[str]) -> str | None:
    """The address that a text or path means; None if it means a local directory.

    >>> parse_address(Path("s3://bucket/runs/tonight")), parse_address("runs/tonight"), parse_address("file:/data/x/")
    ('s3://bucket/runs/tonight', None, 'file:///data/x')
    """
    match = _ADDRESS.fullmatch(os.fspath(text))
    if match is None:
        return None
    rest = match[2].rstrip("/")
    return f"file:///{rest}" if match[1] == "file" else f"{match[1]}://{rest}"


def address_name(address: str) -> str:
    """The last name of an address, which is the run's; inside a trainer's output folder that of the folder.

    >>> address_name("s3://bucket/runs/tonight/tiltmeter"), address_name("s3://bucket/runs/..")
    ('tonight', 'run')
    """
    names = [name for name in re.split(r"/+", address) if name]
    name = names[-2] if names[-1] == "tiltmeter" and len(names) > 2 else names[-1]
    return name if is_plain_name(name) else "run"


def spool_path(address: str) -> Path:
    """Where the run is written on this machine, before and while it is mirrored. `TILTMETER_SPOOL` moves it."""
    root = os.environ.get(SPOOL) or owner_folder("spool")
    return Path(root).absolute() / _digest(address) / address_name(address)


def copy_path(address: str) -> Path:
    """Where a copy of the run is kept for readers on this machine."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home).absolute() / "tiltmeter" / "remote" / _digest(address) / address_name(address)


def _digest(address: str) -> str:
    return hashlib.sha256(address.encode("utf-8", "surrogatepass")).hexdigest()[:16]
