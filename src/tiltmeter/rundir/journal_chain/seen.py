"""What this user has seen of a run's journal: where its files ended and the chain's values there, outside of the run.

By it a reader names a change of what it saw before, also one after which all values were computed again, and does not
read again what has not changed since.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Annotated

from msgspec import Meta, MsgspecError, Struct
from msgspec.json import decode, encode

from tiltmeter.errors import AttachError
from tiltmeter.rundir.atomic_write import replace_file
from tiltmeter.rundir.owner_state import make_owner_folder, owner_folder, read_owned
from tiltmeter.rundir.sidecar import HOSTILE

FOLDER = "journals"  # of the user's state
LIMIT = 1 << 20  # bytes
MOST_FILES = 4096
MOST_SIGNERS = 64
SCHEMA = 1

FileStatus = tuple[int, int, int, int, int]  # device, number, size, modified, changed

log = logging.getLogger("tiltmeter")


class ChainTally(Struct, kw_only=True):
    """What is known of the lines of one file."""

    lines: int = 0  # that are sound
    bare: int = 0  # before the first that states a value
    stated: int = 0
    step: int = -1  # of the first that states one
    signers: Annotated[list[tuple[str, int]], Meta(max_length=MOST_SIGNERS)] = []  # key, empty: none; step it began at


class SeenFile(Struct, kw_only=True, frozen=True):
    """One file of the journal, as it was when all of it was checked."""

    name: str
    status: FileStatus | None  # None: it may have changed without a trace since
    before: str  # the value that the files before it ended with
    key: str  # that signatures were checked by; empty: none
    end: int  # bytes of whole lines
    number: int  # of lines, damaged ones included
    value: str  # after the last of them
    anchor: tuple[int, int, str]  # byte, line and value up to which a power cut takes nothing away
    tally: ChainTally


class SeenJournal(Struct, kw_only=True, frozen=True):
    """A whole journal."""

    schema: int
    files: Annotated[list[SeenFile], Meta(max_length=MOST_FILES)]


def read_seen(run: Path, name: str) -> list[SeenFile]:
    """What was seen of the run with this id in this directory."""
    try:
        seen = decode(read_owned(_seen_path(run, name), LIMIT), type=SeenJournal)
    except (*HOSTILE, MsgspecError, AttachError):
        return []
    return seen.files if seen.schema == SCHEMA else []


def write_seen(run: Path, name: str, files: list[SeenFile]) -> None:
    """Remember it; where that is not possible, the next reader checks all of it."""
    try:
        make_owner_folder(FOLDER)
        replace_file(_seen_path(run, name), encode(SeenJournal(schema=SCHEMA, files=files[:MOST_FILES])))
    except OSError as error:
        log.info("what was seen of the journal is not remembered: %s", error)


def _seen_path(run: Path, name: str) -> Path:
    place = hashlib.sha256(f"{run.resolve()}\0{name}".encode("utf-8", "surrogateescape")).hexdigest()[:24]
    return owner_folder(FOLDER) / f"{place}.json"
