"""The thread beside the monitor that mirrors a run: through outages, until the run is over and nothing is left."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct, json

from tiltmeter.errors import AttachError, Boundary, StoreError, describe_error
from tiltmeter.rundir.atomic_write import replace_file
from tiltmeter.rundir.remote.mirror import Mirror, read_mirror
from tiltmeter.rundir.remote.objects import open_objects
from tiltmeter.rundir.remote.upload import Uploader
from tiltmeter.rundir.remote.writer_lease import LeaseLostError, WriterLease
from tiltmeter.rundir.run_path import exists
from tiltmeter.rundir.sidecar import Count
from tiltmeter.rundir.store import RunDirectory

STATE = "upload.json"  # in its cache
CYCLE_SECONDS = 5.0
LONGEST_PAUSE = 60.0
FLUSH_SECONDS = 300.0  # at the end; what is left is uploaded by `tiltmeter upload`, or by the next attempt
LAST_PAUSE = 1.0

log = logging.getLogger("tiltmeter")


class UploadState(Struct, frozen=True, kw_only=True):
    """`cache/upload.json`: how far the mirror is."""

    address: str
    fence: Count = 0
    waiting: Count = 0  # files
    waiting_bytes: Count = 0
    lost: Count = 0  # files that went before they could be uploaded
    withheld: Count = 0  # files that hold a secret and stay here
    last_ok: float = 0.0  # seconds since 1970; 0: never
    error: str = ""


@contextmanager
def keep_uploaded(run: RunDirectory, on_progress: Callable[[], None] = lambda: None) -> Iterator[None]:
    """While this is entered a thread mirrors the run, if it has a mirror; at the end what is left is uploaded."""
    try:
        mirror = read_mirror(run.path)
    except (StoreError, OSError) as error:  # measuring goes on without it
        log.warning("the run is not mirrored: %s", error)
        run.report_trouble(max(run.attempts(), default=0), 0, f"the run is not mirrored: {error}", "mirror")
        mirror = None
    if mirror is None:
        yield
        return
    thread = UploadThread(run, mirror)
    thread.start()
    try:
        yield
    finally:
        thread.finish(FLUSH_SECONDS, on_progress)


class UploadThread(threading.Thread):
    """Uploads every few seconds. It never raises: training and monitor go on whatever becomes of the mirror."""

    def __init__(self, run: RunDirectory, mirror: Mirror) -> None:
        super().__init__(name="tiltmeter-upload", daemon=True)
        self._run, self._mirror, self._over = run, mirror, threading.Event()
        self._lease: WriterLease | None = None
        self._uploader: Uploader | None = None
        self._pause, self._last_ok = CYCLE_SECONDS, 0.0
        self._error, self._is_done = "", False

    @property
    def state(self) -> UploadState:
        uploader, lease = self._uploader, self._lease
        return UploadState(
            address=self._mirror.address,
            fence=0 if lease is None else lease.head.fence,
            waiting=0 if uploader is None else uploader.waiting,
            waiting_bytes=0 if uploader is None else uploader.waiting_bytes,
            lost=0 if uploader is None else uploader.lost,
            withheld=0 if uploader is None else len(uploader.withheld),
            last_ok=self._last_ok,
            error=self._error,
        )

    def run(self) -> None:
        while not self._is_done:
            is_last = self._over.is_set()
            with Boundary(self._note_trouble, own_thread=True):
                self._work(is_last)
            with Boundary(lambda error: log.warning("%s", describe_error(error)), own_thread=True):
                self._write_state()
            if not self._is_done and (is_last or self._over.wait(self._pause)):
                time.sleep(LAST_PAUSE if is_last else 0.0)

    def finish(self, seconds: float, on_progress: Callable[[], None] = lambda: None) -> bool:
        """Upload what is left, for so long at most; whether all is there."""
        self._over.set()
        deadline = time.monotonic() + seconds
        while self.is_alive() and time.monotonic() < deadline:
            self.join(1.0)
            on_progress()
        is_whole = not self.is_alive() and not self._error
        self._is_done = True  # whoever comes next must not find this thread still trying
        return is_whole

    def _work(self, is_last: bool) -> None:
        if self._uploader is None:
            folder = open_objects(self._mirror.address)
            self._lease = WriterLease(folder, self._mirror.owner)
            self._lease.take()
            uploader = Uploader(self._run, folder, self._lease)
            uploader.note_journal()
            self._uploader = uploader
        self._uploader.cycle(whole=is_last)
        self._pause, self._last_ok, self._error = CYCLE_SECONDS, time.time(), ""
        if is_last and self._lease is not None:
            self._lease.release()
            self._is_done = True

    def _note_trouble(self, error: BaseException) -> None:
        self._error = describe_error(error)[:300]
        if isinstance(error, LeaseLostError) and error.owner == self._mirror.owner:
            self._uploader = None  # a trainer that starts again on this machine: who has the monitor's lock uploads
        elif isinstance(error, LeaseLostError | AttachError):
            self._is_done = True
            why = f"{self._mirror.address} is not mirrored any more: {self._error}"
            log.warning("%s", why)
            # The monitor makes a fault of it, which every screen shows.
            self._run.report_trouble(max(self._run.attempts(), default=0), 0, why, "mirror")
        elif self._pause == CYCLE_SECONDS:
            log.warning("%s cannot be written (%s); what is new waits here", self._mirror.address, self._error)
        self._pause = min(LONGEST_PAUSE, self._pause * 1.5)

    def _write_state(self) -> None:
        if exists(self._run.path / "cache"):
            replace_file(self._run.path / "cache" / STATE, json.encode(self.state))
