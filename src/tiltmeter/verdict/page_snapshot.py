"""The facts of a run, folded up to a place, so that a page opens a long run without reading all of its journal.

The monitor writes it with the readings in blocks (`reading_blocks`), every few thousand steps. The journal stays the
truth: a snapshot is used by the code that made it, for the journal that it was made of, by who has the key that it is
sealed with; otherwise the journal is read as if there were none. What came after it is read from the journal.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
from array import array
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import MsgspecError, Struct, msgpack

from tiltmeter.data.object_graph import decode_graph, encode_graph
from tiltmeter.data.records import Ints
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.atomic_write import replace_file
from tiltmeter.rundir.journal import Event, JournalReader
from tiltmeter.rundir.run_path import file_status, make_folder, open_file, read_file
from tiltmeter.rundir.signing import make_token, read_token
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.event_log import is_rare
from tiltmeter.verdict.reading_blocks import BlockWriter, ReadingBlock, StoredBlock
from tiltmeter.verdict.run_facts import RunFacts

NAME = "page_snapshot"
KEY = "snapshot-key"
LIMIT = 1 << 28  # bytes
TAIL = 4096  # bytes of a journal file before its place, that must be the same
LEAST_EVENTS = 4000  # between two: a shorter run is read as fast
#: Rooms whose code decides what is folded.
ROOMS = ("data", "stats", "rundir", "verdict")

log = logging.getLogger("tiltmeter")


class StoredPageSnapshot(Struct, frozen=True, kw_only=True):
    """The snapshot as it is stored."""

    code: str
    events: int  # that are in it
    skipped: int  # damaged lines among them
    offsets: dict[str, int]  # by journal file, what was read of it
    tails: dict[str, bytes]  # by journal file, a hash of the bytes before that
    rare_lines: dict[str, bytes]
    blocks: list[StoredBlock]
    folds: bytes


class PageSnapshot:
    """A snapshot that may be used."""

    def __init__(self, stored: StoredPageSnapshot, key: bytes) -> None:
        folds = decode_graph(stored.folds)
        self.key, self.events, self.blocks = key, stored.events, [StoredBlock(*block) for block in stored.blocks]
        self.run_facts: RunFacts = folds["run_facts"]
        self.extra: dict[str, Any] = folds["extra"]
        self._ids, self._stored = folds["ids"], stored

    @property
    def records(self) -> int:
        """How many records the blocks hold."""
        return sum(block.records for block in self.blocks)

    @property
    def rare_lines(self) -> dict[str, Ints]:
        return {name: np.frombuffer(lines, np.int64) for name, lines in self._stored.rare_lines.items()}

    def continue_reading(self, journal: JournalReader) -> None:
        """Let a reader of the journal go on where the snapshot ends."""
        journal.offsets, journal.ids = dict(self._stored.offsets), self._ids
        journal.skipped = self._stored.skipped


def read_page_snapshot(run: RunDirectory) -> PageSnapshot | None:
    """The snapshot of a run; None if there is none that can be used."""
    try:
        key = read_token(run, KEY)
        content = read_file(run.path / "cache" / NAME, LIMIT)
        if not hmac.compare_digest(content[:32], _seal(key, content[32:])):
            return None
        stored = msgpack.decode(content[32:], type=StoredPageSnapshot)
        if stored.code != code_digest(ROOMS) or journal_tails(run, stored.offsets) != stored.tails:
            return None
        return PageSnapshot(stored, key)
    except (AttachError, StoreError, OSError, ValueError, MsgspecError):
        return None
    except Exception as error:  # noqa: BLE001  # its seal is right: a defect, for which no run may stay closed
        log.warning("a snapshot is of no use: %s: %s", type(error).__name__, error)
        return None


def page_snapshot_time(run: RunDirectory) -> int:
    """When the snapshot was written, in nanoseconds; 0 if there is none."""
    status = file_status(run.path / "cache" / NAME)
    return 0 if status is None else status.st_mtime_ns


def journal_tails(run: RunDirectory, offsets: Mapping[str, int]) -> dict[str, bytes]:
    """By journal file, a hash of its last bytes before a place, and of the place. Raises OSError."""
    tails = {}
    for name, offset in offsets.items():
        handle = open_file(run.path / "events" / name)
        try:
            begins = max(0, offset - TAIL)
            content = os.pread(handle, offset - begins, begins)
        finally:
            os.close(handle)
        if len(content) != offset - begins:
            raise OSError(f"{name} is shorter than it was")
        tails[name] = hashlib.sha256(content).digest()
    return tails


class PageSnapshotWriter:
    """Collects what a snapshot holds, event by event, and writes one now and then. For the monitor alone."""

    def __init__(self, run: RunDirectory) -> None:
        self._run = run
        self._events, self._written = 0, 0
        self._rare: dict[str, array[int]] = {}  # by journal file, where lines with a rare event begin
        self._key: bytes | None = None
        self._blocks: BlockWriter | None = None
        self.snapshot: PageSnapshot | None = None
        try:
            make_folder(run.path, "cache")
            self._key = make_token(run, KEY)
        except (AttachError, StoreError, OSError) as error:
            log.info("no snapshots, a page reads the whole journal: %s", error)
            return
        self.snapshot = snapshot = self._read()
        self._blocks = BlockWriter(run, self._key, [] if snapshot is None else snapshot.blocks)
        if snapshot is not None:
            self._events = self._written = snapshot.events
            self._rare = {name: array("q", lines.tolist()) for name, lines in snapshot.rare_lines.items()}

    def _read(self) -> PageSnapshot | None:
        """The snapshot to go on with, if its blocks are there too: one that nobody can use is made again."""
        snapshot = read_page_snapshot(self._run)
        if snapshot is None:
            return None
        try:
            for block in snapshot.blocks:
                ReadingBlock(self._run, snapshot.key, block)
        except StoreError as error:
            log.warning("a snapshot for pages is made again: %s", error)
            return None
        return snapshot

    def add(self, event: Event, line: tuple[str, int]) -> None:
        """An event, and where in the journal its line begins."""
        self._events += 1
        if self._blocks is None:
            return
        if is_rare(event):
            name, offset = line
            lines = self._rare.setdefault(name, array("q"))
            if not lines or lines[-1] != offset:
                lines.append(offset)
        try:
            self._blocks.add(event)
        except (OSError, TypeError, OverflowError) as error:
            self._leave(error)

    def write_if_due(self, run_facts: RunFacts, journal: JournalReader, extra: Mapping[str, Any]) -> None:
        """Write one if much has come since the last; the journal must have been read to its end."""
        if self._blocks is None or self._key is None or self._events - self._written < LEAST_EVENTS:
            return
        try:
            self._blocks.write()
            folds = {"run_facts": run_facts, "extra": dict(extra), "ids": journal.ids}
            stored = StoredPageSnapshot(
                code=code_digest(ROOMS),
                events=self._events,
                skipped=journal.skipped,
                offsets=journal.offsets,
                tails=journal_tails(self._run, journal.offsets),
                rare_lines={name: lines.tobytes() for name, lines in self._rare.items()},
                blocks=self._blocks.blocks,
                folds=encode_graph(folds),
            )
            content = msgpack.encode(stored)
            replace_file(self._run.path / "cache" / NAME, _seal(self._key, content) + content)
            self._written = self._events
        except (OSError, TypeError) as error:
            self._leave(error)

    def _leave(self, error: Exception) -> None:
        """Without snapshots from here on: the last one stays right, and the next monitor begins again."""
        log.warning("no more snapshots for pages: %s: %s", type(error).__name__, error)
        self._blocks = None


def _seal(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, b"page snapshot" + content, hashlib.sha256).digest()


@lru_cache
def code_digest(rooms: tuple[str, ...]) -> str:
    """A hash of the code that folds: what another version remembers may mean something else."""
    package, whole = Path(__file__).parent.parent, hashlib.sha256()
    for path in sorted(
        path for room in rooms for path in (package / room).rglob("*") if path.suffix in (".py", ".toml")
    ):
        whole.update(path.read_bytes())
    return whole.hexdigest()
