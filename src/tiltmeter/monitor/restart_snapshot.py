"""A snapshot of the monitor's memory, so that a monitor that is started again does not fold a long journal again.

The journal stays the truth. A snapshot is used only if it was written by this code with these settings, belongs to this
journal and bears this user's seal, with a key outside of the run directory; otherwise the journal is folded as if there
were none. It holds panel and advisor, where the time goes. A restart still reads the lines before it, without their
readings, for what is cheap and kept elsewhere: open labels, the baseline, which files were handled.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import MsgspecError, Struct, msgpack

from tiltmeter.data.object_graph import decode_graph, encode_graph
from tiltmeter.data.records import Alarm, Fault, Reading
from tiltmeter.errors import AttachError
from tiltmeter.monitor.advisor import Advisor
from tiltmeter.monitor.memory import MonitorMemory
from tiltmeter.monitor.panel import InstrumentPanel
from tiltmeter.rundir.atomic_write import replace_file
from tiltmeter.rundir.journal import Event
from tiltmeter.rundir.run_path import make_folder, read_file
from tiltmeter.rundir.signing import make_token
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.page_snapshot import code_digest

SHARE = 0.05  # of the monitor's CPU time that is spent on snapshots, at most
FIRST_SECONDS = 3.0  # of CPU before the first: shorter runs are folded as fast
LIMIT = 1 << 28  # bytes
#: What a restart makes anew: wiring, and what the process has done outside of the journal.
PANEL_WIRING = frozenset({"config", "strict"})
ADVISOR_WIRING = frozenset(
    {"run", "_digest", "_live", "_strict", "_reward", "_gold", "_sent_ids", "_started_experiments", "_results"}
)
#: Rooms whose code decides what a fold remembers.
ROOMS = ("data", "stats", "verdict", "detectors", "diagnosis", "interventions", "gold", "monitor")

log = logging.getLogger("tiltmeter")


class StaleSnapshotError(Exception):
    """The journal is not the one that the snapshot was made of."""


class RestartSnapshot(Struct, frozen=True, kw_only=True):
    """What was folded up to a place in the journal."""

    code: str
    config: str
    seq: int  # of the first event that is not in it
    last: str  # id of the event before
    folds: bytes

    def install(self, memory: MonitorMemory) -> None:
        """Give the memory its parts, with what they remember."""
        try:
            folds = decode_graph(self.folds)
        except Exception as error:  # its seal is right: a defect, for which no monitor may stay away
            log.warning("a snapshot is of no use: %s: %s", type(error).__name__, error)
            raise StaleSnapshotError from error
        vars(memory.panel).update(folds["panel"])
        vars(memory.advisor).update(folds["advisor"])
        memory.past_due = folds["past_due"]
        if memory.label_queue is not None:
            memory.label_queue.share = folds["share"]


class RestartSnapshots:
    """Writes and reads the snapshot of one run; without a place for its key there is none."""

    def __init__(self, run: RunDirectory, config: str) -> None:
        self._config, self._code = config, code_digest(ROOMS)
        self._since, self._pause = time.process_time(), FIRST_SECONDS
        self._key: bytes | None = None
        try:
            self._path = make_folder(run.path, "cache") / "restart_snapshot"
            self._key = make_token(run, "snapshot-key")
        except (AttachError, OSError) as error:
            log.info("no snapshots, a restart reads the whole journal: %s", error)

    def read(self) -> RestartSnapshot | None:
        """The snapshot, if it can be used by this code and with these settings."""
        if self._key is None:
            return None
        try:
            content = read_file(self._path, LIMIT)
            if not hmac.compare_digest(content[:32], self._seal(content[32:])):
                return None
            snapshot = msgpack.decode(content[32:], type=RestartSnapshot)
        except (OSError, ValueError, MsgspecError):
            return None
        return snapshot if (snapshot.code, snapshot.config) == (self._code, self._config) else None

    def write_if_due(self, memory: MonitorMemory, seq: int, last: str) -> None:
        """Write one if enough was done since the last; `seq` and `last` as in `RestartSnapshot`."""
        started = time.process_time()
        if self._key is None or started - self._since < self._pause:
            return
        try:
            self._write(memory, seq, last)
        except TypeError as error:  # a plug-in that remembers something
            log.info("no snapshots, a restart reads the whole journal: %s", error)
            self._key = None
        except OSError as error:
            log.warning("a snapshot was not written: %s", error)
        self._since = time.process_time()
        self._pause = max(FIRST_SECONDS, (self._since - started) / SHARE)

    def _write(self, memory: MonitorMemory, seq: int, last: str) -> None:
        folds = {
            "panel": {name: item for name, item in vars(memory.panel).items() if name not in PANEL_WIRING},
            "advisor": {name: item for name, item in vars(memory.advisor).items() if name not in ADVISOR_WIRING},
            "past_due": memory.past_due,
            "share": None if memory.label_queue is None else memory.label_queue.share,
        }
        content = msgpack.encode(
            RestartSnapshot(code=self._code, config=self._config, seq=seq, last=last, folds=encode_graph(folds))
        )
        replace_file(self._path, self._seal(content) + content)

    def _seal(self, content: bytes) -> bytes:
        assert self._key is not None
        return hmac.new(self._key, content, hashlib.sha256).digest()


class SkippedPanel(InstrumentPanel):
    """Stands for the panel while inputs are applied that the snapshot has: it remembers nothing."""

    def collect_readings(self, *_: object) -> list[Reading]:
        return []

    def fold(self, *_: object, **__: object) -> tuple[list[Reading], list[Alarm]]:
        return [], []

    def rewind(self, attempt: int, step: int) -> list[Alarm]:
        return []

    def dismiss(self, about: str, step: int) -> list[Alarm]:
        return []

    def close_step(self, *_: object, **__: object) -> list[Fault]:
        return []


class SkippedAdvisor(Advisor):
    """Stands for the advisor in the same way."""

    def update_alarms(self, alarms: Iterable[Alarm]) -> None: ...

    def add_late_readings(self, readings: Iterable[Reading]) -> None: ...

    def add_experiment(self, facts: Mapping[str, Any]) -> None: ...

    def start_segment(self) -> None: ...

    def enter_attempt(self, *_: object, **__: object) -> list[Event]:
        return []

    def advise_step(self, *_: object) -> list[Event]:
        return []

    def handle_reply(self, *_: object) -> list[Event]:
        return []
