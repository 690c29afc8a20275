"""What people leave in a run: answers, notes, spot checks, requests to act.

Where only a copy of a run on object storage is at hand, that goes to the inbox of the run's address, and whoever writes
the run takes it from there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tiltmeter.errors import StoreError
from tiltmeter.rundir.atomic_write import publish, replace_file
from tiltmeter.rundir.gate.file_kinds import file_kind
from tiltmeter.rundir.remote.address import copy_path
from tiltmeter.rundir.remote.authors import AuthorBook, sign_entry
from tiltmeter.rundir.remote.objects import INBOX, ObjectFacts, ObjectFolder, open_objects
from tiltmeter.rundir.run_path import COPY_MARK, entries, make_folder, read_file, run_path, split_key
from tiltmeter.rundir.sidecar import WRONG_CONTENT, reason, write_sidecar
from tiltmeter.rundir.signing import make_control_folder
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.safe_text import log_line

MOST_FILES = 256  # taken at a time
MOST_REFUSED = 10_000  # entries that are remembered; behind so many nothing is looked at
MOST_NAMED = 5  # entries that are refused at a time and named in the log

log = logging.getLogger("tiltmeter")


def leave_file(run: RunDirectory, folders: Sequence[str], name: str, facts: Mapping[str, Any]) -> None:
    """Store a small file that somebody leaves in a run, by the folders on its way. Raises `FileExistsError` if there is
    one of this name, and `OSError` if it could not be stored."""
    if (address := copied_address(run.path)) is None:
        write_sidecar(_make_place(run, folders) / name, facts)
        return
    key = "/".join((*folders, name))
    data = json.dumps(sign_entry(run, key, facts), allow_nan=False).encode("ascii")
    path = Path(run.path).joinpath(*folders, name)
    if path.exists() or not _objects(address).create(f"{INBOX}/{key}", data):
        raise FileExistsError(f"{key} was left before")
    copy = run_path(run.path, "copy")
    replace_file(make_folder(copy, *folders) / name, data)  # so that the person who left it sees it at once


def copied_address(run: Path) -> str | None:
    """The address that this is the copy of; None for any other directory, whatever it says about itself."""
    try:
        address = read_file(run / COPY_MARK, 4096).decode("utf-8").strip()
    except (OSError, ValueError, StoreError):
        return None
    return address if copy_path(address).resolve() == Path(run).resolve() else None


@lru_cache(maxsize=64)
def _objects(address: str) -> ObjectFolder:
    return open_objects(address)


class Inbox:
    """The inbox of a run's address, as the machine that writes the run reads it.

    An entry is taken if its name is one that people leave, it is small, and its author signed it. Everything else stays
    where it is: this program did not write it, so it does not delete it.
    """

    def __init__(self, run: RunDirectory, folder: ObjectFolder) -> None:
        self._run, self._folder = run, folder
        self._refused: set[tuple[str, int, float]] = set()

    def take(self) -> list[str]:
        """Put what people left into the run directory. Returns the keys of objects that are not needed any more once
        the files are mirrored. Raises `OSError`."""
        taken: list[str] = []
        book: AuthorBook | None = None
        for one in self._folder.list(f"{INBOX}/"):
            if len(taken) == MOST_FILES or len(self._refused) > MOST_REFUSED:
                break
            if one in self._refused:
                continue
            book = book or AuthorBook(self._run)
            try:
                self._take(one, book)
                taken.append(one.key)
            except FileNotFoundError:
                continue  # removed since it was listed
            except (StoreError, *WRONG_CONTENT) as error:
                self._refuse(one, error)
        if taken and book is not None:
            book.save()
        return taken

    def _take(self, one: ObjectFacts, book: AuthorBook) -> None:
        """Raises `ValueError` or `StoreError` for an entry that is not taken."""
        place = one.key.removeprefix(f"{INBOX}/")
        kind = file_kind(place)
        if kind is None or not kind.is_left_by_people:
            raise ValueError("no file that a person leaves")
        data = b"".join(self._folder.stream(one.key, kind.most_bytes))
        book.check(place, data)
        *folders, name = split_key(place)
        folder = _make_place(self._run, folders)
        if sum(1 for _ in entries(folder)) >= kind.most:
            raise ValueError(f"there are {kind.most:,} of its kind already")
        try:
            publish(folder / name, [data])
        except FileExistsError:  # taken before, by a writer that was killed; the first stands
            pass

    def _refuse(self, one: ObjectFacts, error: Exception) -> None:
        self._refused.add(one)
        if len(self._refused) <= MOST_NAMED:
            log.warning("%s is not taken: %s", log_line(one.key, 200), reason(error))


def _make_place(run: RunDirectory, folders: Sequence[str]) -> Path:
    """The folder in a run; in `control/` only this user may write."""
    return make_control_folder(run, *folders[1:]) if folders[0] == "control" else make_folder(run.path, *folders)
