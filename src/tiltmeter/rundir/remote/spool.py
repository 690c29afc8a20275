"""The local directory in which a run for object storage is written: opened, continued, or restored from its mirror."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path

from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.remote.address import spool_path
from tiltmeter.rundir.remote.copy import fetch, make_private
from tiltmeter.rundir.remote.mirror import read_mirror, write_mirror
from tiltmeter.rundir.remote.objects import ObjectFolder, conditional_problem, open_objects
from tiltmeter.rundir.remote.upload import local_crc
from tiltmeter.rundir.remote.writer_lease import JournalSpan, WriterLease, read_head

WAIT_SECONDS = 120.0  # of another rank for rank 0


def open_spool(address: str, rank: int = 0) -> Path:
    """The directory to write the run into, with this machine as the mirror's writer. Raises `AttachError`.

    What a mirror has and this machine has not is fetched first, so that a run goes on where another machine left it. A
    spool whose run went on elsewhere since is set aside, never deleted.
    """
    path = spool_path(address)
    if int(os.environ.get("WORLD_SIZE", "1")) != int(
        os.environ.get("LOCAL_WORLD_SIZE", os.environ.get("WORLD_SIZE", "1"))
    ):
        raise AttachError(f"{address}: ranks of several machines need a directory that they share; name a path")
    if rank:
        return _wait_for_rank_0(path)
    make_private(path.parent)
    try:
        _open(open_objects(address), address, path)
    except (OSError, StoreError) as error:
        if isinstance(error, AttachError):
            raise
        raise AttachError(
            f"{address} cannot be written: {error}. Check the address, its permissions and credentials, or name a "
            "local directory"
        ) from error
    return path


def _open(folder: ObjectFolder, address: str, path: Path) -> None:
    if why := conditional_problem(folder):
        raise AttachError(f"no run can be kept at {address}: {why}; name another store, or a local directory")
    head, tag = read_head(folder)
    mirror = read_mirror(path) if path.exists() else None
    owner = mirror.owner if mirror is not None else new_owner()
    goes_on_here = mirror is not None and head.owner in ("", owner) and _is_beginning_of_ours(head.journal, path)
    if path.exists() and tag is not None and not goes_on_here:
        path.rename(path.with_name(f"{path.name}-aside-{int(time.time())}"))
        owner = new_owner()
    lease = WriterLease(folder, owner)
    lease.take()
    path.mkdir(mode=0o700, exist_ok=True)
    if tag is not None and not goes_on_here:
        fetch(folder, path)
    write_mirror(path, address, owner)


def new_owner() -> str:
    return secrets.token_hex(8)


def _is_beginning_of_ours(journal: Mapping[str, JournalSpan], path: Path) -> bool:
    """Whether all that is committed is what this spool has."""
    return all(local_crc(path, file, span.bytes) == span.crc for file, span in journal.items())


def _wait_for_rank_0(path: Path) -> Path:
    deadline = time.monotonic() + WAIT_SECONDS
    while read_mirror(path) is None:
        if time.monotonic() > deadline:
            raise AttachError(f"rank 0 has not opened {path} within {WAIT_SECONDS:.0f} s")
        time.sleep(0.05)
    return path
