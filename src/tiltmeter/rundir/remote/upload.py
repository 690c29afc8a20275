"""Mirrors a run directory to object storage, beside the monitor: sealed files once, the journal in segments.

The local directory stays the truth for trainer and monitor. What is not uploaded yet waits there through an outage, up
to a bound; beyond it the oldest measured rollouts go, are counted and reported. Files go before the journal that speaks
of them, so a reader never sees an event whose files are still to come.
"""

from __future__ import annotations

import logging
import os
import re
import time
import zlib
from collections.abc import Callable
from pathlib import Path

from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.gate.file_kinds import file_kind
from tiltmeter.rundir.journal import list_journal, parse
from tiltmeter.rundir.remote.inbox import Inbox
from tiltmeter.rundir.remote.objects import ObjectFolder
from tiltmeter.rundir.remote.outgoing import secrets_in_object
from tiltmeter.rundir.remote.segments import SEGMENT_BYTES, Segment
from tiltmeter.rundir.remote.writer_lease import JournalSpan, WriterLease
from tiltmeter.rundir.run_path import (
    entries,
    file_status,
    open_file,
    open_folder,
    read_file,
    remove,
)
from tiltmeter.rundir.store import STEP_BYTES, RunDirectory

SPOOL_GB, GIGABYTE = "TILTMETER_SPOOL_GB", 1 << 30
DEFAULT_SPOOL_GB = 20.0
FRESH_NS = 2_000_000_000
QUIET_NS = 60_000_000_000  # since its last change, after which a folder is looked at less often
LONGEST_QUIET = 300.0  # seconds
INBOX_SECONDS = 10.0
#: Not looked into: the journal, which goes in segments; caches of this machine; rows that have no step yet.
LEFT_OUT = frozenset({"events", "cache", "unplaced"})
REPLACED = frozenset({"traps.json"})  # the one file that is replaced

log = logging.getLogger("tiltmeter")


class Uploader:
    """One run directory and its mirror. `cycle` uploads what is new; it may be killed anywhere and begun again."""

    def __init__(self, run: RunDirectory, folder: ObjectFolder, lease: WriterLease) -> None:
        self.run, self._folder, self._lease = run, folder, lease
        self.lost = lease.head.lost_files
        self.bound = int(float(os.environ.get(SPOOL_GB) or DEFAULT_SPOOL_GB) * GIGABYTE)
        self._sent: set[str] = {one.key for one in folder.list()}
        self.withheld: set[str] = set()  # keys of objects with a secret
        self._waiting: dict[str, int] = {}  # size by key
        self._replaced_at: dict[str, int] = {}
        #: By folder, its time when it was listed, its folders, and when it is to be looked at again.
        self._listed: dict[str, tuple[int, list[str], float]] = {}
        self._sizes: dict[str, int] = {}  # of step files that are here
        self._spans = dict(lease.head.journal)
        self._inbox, self._next_inbox = Inbox(run, folder), 0.0  # when it is looked at
        self._measured: dict[int, int] = {}  # newest measured step by attempt

    @property
    def waiting_bytes(self) -> int:
        return sum(self._waiting.values())

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def cycle(self, *, whole: bool = True) -> None:
        """Upload what was there when this began; without `whole`, folders that have long been quiet are looked at now
        and then. Raises `OSError` while the store is away, and `LeaseLostError`."""
        ends = self._journal_ends()
        self._look(whole)
        try:
            self._lease.renew()
            taken = self._take_inbox(whole)
            for key in sorted(self._waiting, key=lambda one: (one != "run.json", one)):
                self._send(key)
                self._lease.renew()
            self._send_journal(ends)
            for key in taken:  # each has its own name in the mirror by now
                self._folder.delete(key)
        finally:
            self._keep_within_bound()

    def _take_inbox(self, whole: bool) -> list[str]:
        """What people left there, now and then: each look is a request that the store charges for."""
        if not whole and time.monotonic() < self._next_inbox:
            return []
        self._next_inbox = time.monotonic() + INBOX_SECONDS
        try:
            taken = self._inbox.take()
        except (StoreError, AttachError) as error:  # planted, or cannot be checked here: the run is mirrored still
            log.warning("the inbox is not read: %s", error)
            attempt = max(self.run.attempts(), default=0)
            self.run.report_trouble(attempt, 0, f"the inbox is not read: {error}", "inbox")
            return []
        if taken:
            self._look(True)
        return taken

    # -- files ------------------------------------------------------------------------------------------------------

    def _look(self, whole: bool) -> None:
        """List folders that have changed; every file that is not there yet waits to be sent."""
        pending = [""]
        while pending:
            inner = pending.pop()
            folder = self.run.path / inner if inner else self.run.path
            before, folders, next_look = self._listed.get(inner, (-1, [], 0.0))
            if not whole and time.time() < next_look:
                continue  # with all that is in it
            try:
                with open_folder(folder) as handle:
                    changed = os.fstat(handle).st_mtime_ns
            except FileNotFoundError:
                continue
            age_ns = time.time_ns() - changed
            if before != changed:
                folders = self._list(folder, inner)
                # A folder that was changed just now is listed again: its time has a coarse grain.
                before = changed if age_ns > FRESH_NS else -1
            # A long run has a folder of labels for each step.
            quiet = 0.0 if folders or age_ns < QUIET_NS else min(age_ns / 1e10, LONGEST_QUIET)
            self._listed[inner] = (before, folders, time.time() + quiet)
            pending += folders

    def _list(self, folder: Path, inner: str) -> list[str]:
        """Note the files of a folder; its folders."""
        folders = []
        for entry in entries(folder):
            key = f"{inner}/{entry.name}" if inner else entry.name
            if entry.name.startswith(".") or entry.name in LEFT_OUT:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(key)
                continue
            kind = file_kind(key)
            if kind is None or not kind.is_mirrored:
                continue
            facts = entry.stat(follow_symlinks=False)
            if key.startswith("rollouts/"):
                self._sizes[key] = facts.st_size
            is_new = self._replaced_at.get(key) != facts.st_mtime_ns if key in REPLACED else key not in self._sent
            if is_new:
                self._waiting[key] = facts.st_size
        return folders

    def _send(self, key: str) -> None:
        status = file_status(self.run.path / key)
        try:
            data = read_file(self.run.path / key, STEP_BYTES)
        except FileNotFoundError:
            self._forget(key)  # packed, or removed by a person
            return
        except (StoreError, ValueError) as error:  # a link, or too large: it must not hold up the others
            log.warning("%s is not mirrored: %s", key, error)
            self._forget(key)
            self._sent.add(key)
            return
        if self._withhold(key, data):
            self._forget(key)
            self._sent.add(key)
            return
        if key in REPLACED:
            self._folder.replace(key, data)
            self._replaced_at[key] = -1 if status is None else status.st_mtime_ns
        elif not self._folder.create(key, data):
            # Another writer's file of this name: two machines wrote one attempt. Both are kept.
            self._folder.create(f"{key}.conflict-{self._lease.head.fence}", data)
            log.warning("%s is there with other content; this one is kept beside it", key)
        self._sent.add(key)
        self._waiting.pop(key, None)

    def _withhold(self, key: str, data: bytes) -> bool:
        """Whether an object holds a secret and stays here; it is counted, and a fault of the run."""
        if not (names := secrets_in_object(key, data)):
            return False
        if key not in self.withheld:
            self.withheld.add(key)
            why = f"{key} is not uploaded: it holds a secret ({', '.join(names)}). Remove it, and change the secret"
            log.warning("%s", why)
            place, attempt = re.sub(r"[^a-z0-9]+", "-", key.partition("/")[0]), max(self.run.attempts(), default=0)
            self.run.report_trouble(attempt, 0, why, f"secret-{place}")
        return True

    def _forget(self, key: str) -> None:
        self._waiting.pop(key, None)
        self._sizes.pop(key, None)

    def _keep_within_bound(self) -> None:
        """Remove the oldest measured rollouts while they take more room than they may: those that are uploaded first.
        One that was not is lost to the mirror, which is counted and reported."""
        size = sum(self._sizes.values())
        for only_sent in (True, False):
            for key in sorted(self._sizes):
                if size <= self.bound:
                    return
                place = step_of(key)
                if place is None or place[1] > self._measured.get(place[0], -1) - 1 or (key in self._sent) != only_sent:
                    continue
                remove(self.run.path / key, missing_ok=True)
                size -= self._sizes[key]
                if not only_sent:
                    self.lost += 1
                    self.run.report_trouble(place[0], 0, self._why_lost(), "upload")
                self._forget(key)

    def _why_lost(self) -> str:
        return (
            f"the store was away and the spool is full ({self.bound / GIGABYTE:g} GB, {SPOOL_GB}): measured rollouts "
            "are removed before they could be uploaded"
        )

    # -- journal ----------------------------------------------------------------------------------------------------

    def _journal_ends(self) -> dict[str, int]:
        """Size of each file of the journal."""
        sizes = {}
        for path in list_journal(self.run.path / "events"):
            status = file_status(path)
            sizes[path.name.removesuffix(".jsonl")] = 0 if status is None else status.st_size
        return sizes

    def _send_journal(self, ends: dict[str, int]) -> None:
        """Send whole lines up to these sizes, then let the head say so."""
        spans = dict(self._spans)
        for file, end in sorted(ends.items(), key=lambda item: int(item[0]) if item[0].isdecimal() else -1):
            span = spans.get(file, JournalSpan())
            handle = open_file(self.run.path / "events" / f"{file}.jsonl")
            try:
                while span.bytes < end:
                    data = _whole_lines(handle, span.bytes, end)
                    if not data or self._withhold(f"events/{file}.jsonl", data):
                        break
                    segment = Segment(file, span.bytes, self._lease.head.fence)
                    if not self._folder.create(segment.key, data):
                        data = self._adopt(segment, handle)
                    span = JournalSpan(span.bytes + len(data), zlib.crc32(data, span.crc))
                    self._note_steps(data)
            finally:
                os.close(handle)
            spans[file] = span
        if spans != self._spans or self.lost > self._lease.head.lost_files:
            self._lease.commit(spans, self.lost)
            self._spans = spans

    def _adopt(self, segment: Segment, handle: int) -> bytes:
        """A segment that this writer sent before it was killed, or before the head could say so: a beginning of what is
        to be sent now."""
        present = self._folder.read(segment.key, SEGMENT_BYTES)
        data = b"" if present is None else present[0]
        if not data or os.pread(handle, len(data), segment.start) != data:
            raise StoreError(f"{segment.key} is there with other content than the journal's")
        return data

    def _note_steps(self, data: bytes) -> None:
        for line in data.splitlines():
            for event in parse(line, 1 << 62):
                if event.kind == "step_done":
                    self._measured[event.attempt] = max(event.step, self._measured.get(event.attempt, -1))

    def note_journal(self) -> None:
        """Learn from the committed part of the journal what is measured. Raises `StoreError` if it is another one."""
        for file, span in self._spans.items():
            if local_crc(self.run.path, file, span.bytes, self._note_steps) != span.crc:
                raise StoreError(f"events/{file}.jsonl differs from its mirror")


def local_crc(run: Path, file: str, size: int, note: Callable[[bytes], None] = lambda data: None) -> int | None:
    """CRC-32 of the first bytes of a file of the journal; None if it is shorter."""
    try:
        handle = open_file(run / "events" / f"{file}.jsonl")
    except FileNotFoundError:
        return 0 if size == 0 else None
    crc, place = 0, 0
    try:
        while place < size:
            data = _whole_lines(handle, place, size) or os.pread(handle, size - place, place)
            if not data:
                return None
            note(data)
            crc, place = zlib.crc32(data, crc), place + len(data)
    finally:
        os.close(handle)
    return crc


def _whole_lines(handle: int, start: int, end: int) -> bytes:
    """Whole lines from a byte on, about as much as a segment may have; empty if there is none yet."""
    size = SEGMENT_BYTES
    while True:
        data = os.pread(handle, min(size, end - start), start)
        whole = data[: data.rfind(b"\n") + 1]
        if whole or len(data) >= end - start:
            return whole
        size *= 2


def step_of(key: str) -> tuple[int, int] | None:
    """Attempt and step of a step's file; None for another file."""
    parts = key.split("/")
    if len(parts) != 3 or not parts[2].endswith(".parquet") or "." in parts[2].removesuffix(".parquet"):
        return None
    step = parts[2].partition("-")[0]
    return (int(parts[1]), int(step)) if parts[1].isdecimal() and step.isdecimal() else None
