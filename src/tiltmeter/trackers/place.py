"""How far a sink has been told, in a small file: a tracker that is killed goes on where it was."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

from tiltmeter.durable import open_dot, sync_folder, write_all
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.store import RunDirectory

FORMAT = 1
APART = 60.0  # seconds between two alerts of one title
LARGEST = 16 << 20


class BusyError(AttachError):
    """Another process tells this run to the same place."""


class Place:
    """What one sink has been told of one run: readings up to a line of the journal, and each alert by its identity.

    Another project, directory or address is another place: it is told everything from the beginning. The file holds no
    address and no secret. Only one process holds a place at a time.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with_place = Place(Path(folder), "webhook", "https://example.org/x", "7cc90d")
    ...     with_place.mark(["ba6fe9"], "Alarm: gold.slope down in tonight")
    ...     with_place.save()
    ...     with_place.close()
    ...     Place(Path(folder), "webhook", "https://example.org/x", "7cc90d").delivered
    {'ba6fe9'}
    """

    def __init__(self, folder: Path, sink: str, target: str, run: str) -> None:
        digest = hashlib.sha256(target.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        self.path = folder / f"{sink}-{digest}.json"
        self.run, self.seq, self.failing = run, -1, ""
        self.delivered: set[str] = set()
        self.sent: dict[str, float] = {}  # by title, when an alert was last told
        self.memo: dict[str, str] = {}  # what the sink itself wants to find again
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(
                self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
        except OSError as error:
            why = f"{folder} cannot be written ({error.strerror})"
            raise AttachError(f"{why}: name another folder with --state") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise BusyError(f"another process tells this run to the same {sink}: end that one first") from error
        try:
            self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"{self.path} cannot be read ({error.strerror}): remove it") from error
        with os.fdopen(handle, "rb") as file:
            text = file.read(LARGEST + 1)
        try:
            told = json.loads(text)
            sound = isinstance(told, dict) and told["format"] == FORMAT and isinstance(told["run"], str)
            if not sound or type(told["seq"]) is not int:
                raise ValueError("it is not as this version writes it")
            if told["run"] == self.run:  # of another run that was here before nothing has been told
                self.seq, self.delivered = told["seq"], {str(one) for one in told["delivered"]}
                self.sent = {str(title): float(when) for title, when in told["sent"].items()}
                self.memo = {str(key): str(value) for key, value in told["memo"].items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            why = f"{self.path} is damaged ({type(error).__name__})"
            raise StoreError(f"{why}: remove it; what was told before is then told once more") from error

    def mark(self, identities: list[str], title: str) -> None:
        now = time.time()
        self.delivered.update(identities)
        self.sent = {known: when for known, when in self.sent.items() if abs(now - when) < APART}
        if title:
            self.sent[title] = now

    def wait(self, title: str) -> float:
        """Seconds until another alert of this title may be told."""
        passed = time.time() - self.sent.get(title, float("-inf"))
        return APART - passed if 0.0 <= passed < APART else 0.0  # a clock that was set back holds nothing up

    def save(self) -> None:
        told: dict[str, Any] = {"format": FORMAT, "run": self.run, "seq": self.seq, "failing": self.failing}
        told |= {"delivered": sorted(self.delivered), "sent": self.sent, "memo": self.memo}
        dot, handle = open_dot(self.path)
        try:
            write_all(handle, json.dumps(told).encode("ascii"))
            os.fsync(handle)
            os.replace(dot, self.path)  # noqa: PTH105 - `os` is called by name wherever something must last
        except OSError:
            dot.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
        sync_folder(self.path.parent)

    def close(self) -> None:
        os.close(self._lock)


def folder_in(run: RunDirectory) -> Path:
    """Where a run keeps the places of its sinks. A run directory from elsewhere must not point out of itself."""
    for folder in (run.path / "cache", run.path / "cache" / "trackers"):
        if folder.is_symlink():
            raise StoreError(f"{folder} is a symbolic link: remove it, or name another folder with --state")
    return run.path / "cache" / "trackers"
