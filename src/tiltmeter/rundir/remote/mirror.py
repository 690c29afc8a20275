"""Where a run directory on this machine is mirrored to: the owner's own record, never what the directory says.

A run directory may come from somebody else. An address inside of it would have this machine copy files of the sender's
choice to a place of the sender's choice, with the reader's credentials.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from msgspec import Struct, json
from msgspec.structs import replace

from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.atomic_write import replace_file
from tiltmeter.rundir.owner_state import make_owner_folder, owner_folder, read_owned
from tiltmeter.rundir.sidecar import WRONG_CONTENT, Text300, parse_sidecar
from tiltmeter.rundir.store import RunDirectory

MOST_BYTES = 1 << 16


class Mirror(Struct, frozen=True, kw_only=True):
    """The address of a run's mirror, and the name under which this machine writes there."""

    address: str
    owner: Text300
    path: str  # of the run directory
    run: Text300 = ""  # its id; empty until the run is made


def read_mirror(run: Path) -> Mirror | None:
    """Where a run directory is mirrored to; None if it is not. Raises `StoreError` if another run was."""
    try:
        mirror = parse_sidecar(read_owned(_record(run), MOST_BYTES), Mirror)
    except FileNotFoundError:
        return None
    except (AttachError, OSError, *WRONG_CONTENT) as error:
        raise StoreError(f"{_record(run)} cannot be read: {error}") from error
    run_id = _run_id(run)
    if mirror.path != _resolved(run) or (mirror.run and run_id and mirror.run != run_id):
        raise StoreError(f"{run} is not the run that was mirrored to {mirror.address}")
    if run_id and not mirror.run:
        mirror = replace(mirror, run=run_id)
        _write(run, mirror)
    return mirror


def write_mirror(run: Path, address: str, owner: str) -> None:
    _write(run, Mirror(address=address, owner=owner, path=_resolved(run), run=_run_id(run)))


def _write(run: Path, mirror: Mirror) -> None:
    make_owner_folder("mirrors")
    replace_file(_record(run), json.encode(mirror))


def _record(run: Path) -> Path:
    name = hashlib.sha256(os.fsencode(_resolved(run))).hexdigest()[:32]
    return owner_folder("mirrors") / f"{name}.json"


def _resolved(run: Path) -> str:
    return str(Path(run).resolve())


def _run_id(run: Path) -> str:
    try:
        return str(RunDirectory(run).identity().get("id", ""))
    except StoreError:
        return ""  # a spool in which no run was made yet
