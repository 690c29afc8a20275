"""Starts the monitor (`tiltmeter watch`) as a separate process, and again if it dies, for as long as training runs.

The first restarts within an hour are at once, further ones after growing pauses, about a dozen an hour: what kills a
monitor may pass, and a run of days must not lose it for good. While it is off, the trainer's log and the webhook tell.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tiltmeter.errors import AttachError
from tiltmeter.rundir.run_path import open_file

AT_ONCE = 3  # restarts within an hour that do not wait
FIRST_PAUSE, LONGEST_PAUSE = 15.0, 600.0  # seconds before the next one; doubled each time
HOUR = 3600.0
WEBHOOK_VARIABLE = "TILTMETER_WEBHOOK_URL"

log = logging.getLogger("tiltmeter")


class MonitorProcess:
    """The `tiltmeter watch` process of this run: started at once, restarted if it dies, left to finish at the end."""

    def __init__(self, command: Sequence[str], log_path: Path) -> None:
        self._command, self._log_path = list(command), log_path
        self._restarts: list[float] = []  # those within the last hour, in monotonic seconds
        self._not_before = 0.0  # when the next one may be
        self._off = False
        self._last_alert = -HOUR
        self._released = False
        self._restart_lock = threading.Lock()
        try:
            self._start()
        except OSError as error:
            raise AttachError(
                f"the monitor cannot be started ({error}); open_run(monitor=False) records without it, "
                "and `tiltmeter watch` measures later"
            ) from error

    def _start(self) -> None:
        with os.fdopen(open_file(self._log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as log_file:
            # A session of its own: Ctrl-C in the terminal stops training, and the monitor then finishes what is stored.
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        # A thread waits for it; otherwise it stays a zombie for as long as training lasts.
        threading.Thread(target=self.process.wait, name="tiltmeter-monitor-wait", daemon=True).start()

    def keep_alive(self) -> None:
        """Restart the monitor if it died. Called on the writer's thread after each file, or on the recorder's."""
        if not self._restart_lock.acquire(blocking=False):
            return  # another thread is checking
        try:
            if not self._released and self.process.poll() is not None:
                self._restart(time.monotonic())
        finally:
            self._restart_lock.release()

    def _restart(self, now: float) -> None:
        if not self._off:
            self._restarts = [earlier for earlier in self._restarts if earlier > now - HOUR]
            late = len(self._restarts) - AT_ONCE
            pause = 0.0 if late < 0 else min(LONGEST_PAUSE, FIRST_PAUSE * 2.0**late)
            self._off, self._not_before = True, now + pause
            if pause:
                self._report_off(now, pause)
        if now < self._not_before:
            return
        self._off = False
        self._restarts.append(now)
        try:
            log.warning("the monitor stopped (exit %s); starting it again", self.process.returncode)
            self._start()
        except (OSError, RuntimeError) as error:  # no process, or no thread to wait for it
            log.warning("the monitor cannot be started: %s; training goes on, `tiltmeter watch` catches up", error)

    def _report_off(self, now: float, pause: float) -> None:
        why = f"it ended {len(self._restarts) + 1} times within an hour (exit {self.process.returncode})"
        log.warning("the monitor is off: %s; nothing is measured until it starts again, in %.0f s", why, pause)
        if os.environ.get(WEBHOOK_VARIABLE) and now >= self._last_alert + HOUR:
            self._last_alert = now
            command = [sys.executable, "-m", "tiltmeter.view.trackers.monitor_off", str(self._log_path.parent), why]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            threading.Thread(target=process.wait, name="tiltmeter-alert-wait", daemon=True).start()

    def release(self) -> None:
        self._released = True
