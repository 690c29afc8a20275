"""What people leave in a run: answers, notes, spot checks, requests to act.

Where only a copy of a run on object storage is at hand, that goes to the inbox of the run's address, and whoever writes
the run takes it from there.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tiltmeter.errors import StoreError
from tiltmeter.rundir.atomic_write import publish
from tiltmeter.rundir.remote.address import copy_path
from tiltmeter.rundir.remote.objects import INBOX, ObjectFolder, open_objects
from tiltmeter.rundir.run_path import COPY_MARK, make_folder, read_file
from tiltmeter.rundir.sidecar import write_sidecar
from tiltmeter.rundir.signing import make_control_folder
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line

#: Where people leave files; nothing else is taken. A request to act is signed, and whether it is followed is decided by
#: the token, which no store has.
PLACES = (("gold", "people"), ("gold", "picked"), ("gold", "spot"), ("control", "requests"), ("notes",))
DEEPEST = 2  # names below a place
MOST_BYTES = 64 << 10  # of a file
MOST_FILES = 256  # taken at a time

log = logging.getLogger("tiltmeter")


def leave_file(run: RunDirectory, folders: Sequence[str], name: str, facts: Mapping[str, Any]) -> None:
    """Store a small file that somebody leaves in a run, by the folders on its way. Raises `FileExistsError` if there is
    one of this name, and `OSError` if it could not be stored."""
    if (address := copied_address(run.path)) is None:
        write_sidecar(_make_place(run, folders) / name, facts)
        return
    data = json.dumps(facts, allow_nan=False).encode("ascii")
    path, key = Path(run.path).joinpath(*folders, name), "/".join((*folders, name))
    if path.exists() or not _objects(address).create(f"{INBOX}/{key}", data):
        raise FileExistsError(f"{key} was left before")
    write_to_copy(path, data)  # so that whoever left it sees it at once


def copied_address(run: Path) -> str | None:
    """The address that this is the copy of; None for any other directory, whatever it says about itself."""
    try:
        address = read_file(run / COPY_MARK, 4096).decode("utf-8").strip()
    except (OSError, ValueError, StoreError):
        return None
    return address if copy_path(address).resolve() == Path(run).resolve() else None


def write_to_copy(path: Path, data: bytes, at: float | None = None) -> None:
    """Put a file into a private copy. `at`: its time, so that a copy does not look newer than its run."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    part.write_bytes(data)
    if at is not None:
        os.utime(part, (at, at))
    part.rename(path)


@lru_cache(maxsize=64)
def _objects(address: str) -> ObjectFolder:
    return open_objects(address)


def take_inbox(run: RunDirectory, folder: ObjectFolder) -> list[str]:
    """Put what was left in the inbox into the run directory. Returns the keys of objects that are not needed any more
    once the files are mirrored. Raises `OSError`."""
    taken: list[str] = []
    for one in folder.list(f"{INBOX}/"):
        if len(taken) == MOST_FILES:
            break
        taken.append(one.key)
        parts = one.key.split("/")[1:]
        if one.size > MOST_BYTES or not is_left_by_people(parts):
            log.warning("%s is not taken: no file that a person leaves", log_line(one.key, 200))
            continue
        if (present := folder.read(one.key)) is not None:
            _take(run, parts, present[0])
    return taken


def is_left_by_people(parts: Sequence[str]) -> bool:
    """Whether these names lead to a file that a person may leave.

    >>> is_left_by_people(["notes", "run", "1.json"]), is_left_by_people(["gold", "people", "..", "1.json"])
    (True, False)
    >>> is_left_by_people(["gold", "labels", "0-000001", "1.json"])
    False
    """
    place = next((one for one in PLACES if tuple(parts[: len(one)]) == one), None)
    plain = all(part.isascii() and part.isprintable() and part[:1].isalnum() and len(part) < 200 for part in parts)
    return place is not None and plain and 0 < len(parts) - len(place) <= DEEPEST and parts[-1].endswith(".json")


def _take(run: RunDirectory, parts: Sequence[str], data: bytes) -> None:
    *folders, name = parts
    try:
        publish(_make_place(run, folders) / name, [data])
    except FileExistsError:  # taken before, by a writer that was killed; the first stands
        pass


def _make_place(run: RunDirectory, folders: Sequence[str]) -> Path:
    """The folder in a run; in `control/` only this user may write."""
    return make_control_folder(run, *folders[1:]) if folders[0] == "control" else make_folder(run.path, *folders)
