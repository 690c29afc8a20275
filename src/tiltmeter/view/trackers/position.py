"""`SinkPosition`: what was delivered to a sink, in a small file, so that a restarted process continues there."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.atomic_write import open_dot, write_all
from tiltmeter.rundir.run_path import RunPath, make_folder, open_file, open_folder
from tiltmeter.rundir.sidecar import find_sidecar
from tiltmeter.rundir.store import RunDirectory

FORMAT = 1
APART = 60.0  # seconds between two alerts of one title
LARGEST = 16 << 20


class BusyError(AttachError):
    """Another process sends this run to the same target."""


class SavedPosition(Struct, frozen=True):
    """The file of a position."""

    format: Literal[1]
    run: str
    seq: int
    delivered: set[str]
    sent: dict[str, float]
    memo: dict[str, str]


class SinkPosition:
    """What was delivered of one run to one sink: readings up to a journal line, and each alert by its identity.

    Another project, directory or address has its own position and gets everything from the beginning. The file holds
    no address and no secret. Only one process can hold a position at a time.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with_place = SinkPosition(Path(folder), "webhook", "https://example.org/x", "7cc90d")
    ...     with_place.mark(["ba6fe9"], "Alarm: gold.slope down in tonight")
    ...     with_place.save()
    ...     with_place.close()
    ...     SinkPosition(Path(folder), "webhook", "https://example.org/x", "7cc90d").delivered
    {'ba6fe9'}
    """

    def __init__(self, folder: Path, sink: str, target: str, run: str) -> None:
        digest = hashlib.sha256(target.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        self.path = folder / f"{sink}-{digest}.json"
        self.run, self.seq, self.failing = run, -1, ""
        self.delivered: set[str] = set()
        self.sent: dict[str, float] = {}  # by title, when an alert was last sent
        self.memo: dict[str, str] = {}  # values that the sink itself stores
        try:
            if isinstance(folder, RunPath):
                make_folder(folder.parent.parent, folder.parent.name, folder.name, mode=0o700)
            else:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = open_file(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT)
        except OSError as error:
            why = f"{folder} cannot be written ({error.strerror})"
            raise AttachError(f"{why}: name another folder with --state") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise BusyError(f"another process sends this run to the same {sink}: end that one first") from error
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        try:
            saved = find_sidecar(self.path, SavedPosition, LARGEST)
        except (StoreError, OSError) as error:
            raise StoreError(f"{error}: remove it; what was sent before is then sent again") from error
        if saved is not None and saved.run == self.run:  # a position of another run does not apply
            self.seq, self.delivered, self.sent, self.memo = saved.seq, saved.delivered, saved.sent, saved.memo

    def mark(self, identities: list[str], title: str) -> None:
        now = time.time()
        self.delivered.update(identities)
        self.sent = {sent_title: when for sent_title, when in self.sent.items() if abs(now - when) < APART}
        if title:
            self.sent[title] = now

    def seconds_until_allowed(self, title: str) -> float:
        """Seconds until another alert of this title may be sent."""
        elapsed = time.time() - self.sent.get(title, float("-inf"))
        return APART - elapsed if 0.0 <= elapsed < APART else 0.0  # a clock that was set back must not delay alerts

    def save(self) -> None:
        fields: dict[str, Any] = {"format": FORMAT, "run": self.run, "seq": self.seq, "failing": self.failing}
        fields |= {"delivered": sorted(self.delivered), "sent": self.sent, "memo": self.memo}
        with open_folder(self.path.parent, change=True) as folder:
            dot, handle = open_dot(self.path.name, folder)
            try:
                write_all(handle, json.dumps(fields).encode("ascii"))
                os.fsync(handle)
                os.replace(dot, self.path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                os.unlink(dot, dir_fd=folder)
                raise
            finally:
                os.close(handle)
            os.fsync(folder)

    def close(self) -> None:
        os.close(self._lock)


def state_folder(run: RunDirectory) -> Path:
    """The folder of a run for sink positions. Symbolic links are refused: a run directory is untrusted."""
    for folder in (run.path / "cache", run.path / "cache" / "trackers"):
        if folder.is_symlink():
            raise StoreError(f"{folder} is a symbolic link: remove it, or name another folder with --state")
    return run.path / "cache" / "trackers"
