"""Starts the monitor (`tiltmeter watch`) as a separate process and restarts it if it dies."""

from __future__ import annotations

import logging
import os
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from tiltmeter.errors import AttachError

MONITOR_RESTARTS = 3

log = logging.getLogger("tiltmeter")


class MonitorProcess:
    """The `tiltmeter watch` process of this run: started at once, restarted if it dies, left to finish at the end."""

    def __init__(self, command: Sequence[str], log_path: Path) -> None:
        self._command, self._log_path = list(command), log_path
        self._starts = 0
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
        with self._log_path.open("ab") as log_file:
            # A session of its own: Ctrl-C in the terminal stops training, and the monitor then finishes what is stored.
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=log_file,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        self._starts += 1
        # A thread waits for it; otherwise it stays a zombie for as long as training lasts.
        threading.Thread(target=self.process.wait, name="tiltmeter-monitor-wait", daemon=True).start()

    def keep_alive(self) -> None:
        """Restart the monitor if it died. Called on the writer's thread after each file, or on the recorder's."""
        if not self._restart_lock.acquire(blocking=False):
            return  # another thread is checking
        try:
            if not self._released and self.process.poll() is not None and self._starts <= MONITOR_RESTARTS:
                log.warning("the monitor stopped (exit %s); starting it again", self.process.returncode)
                self._start()
        except (OSError, RuntimeError) as error:  # no process, or no thread to wait for it
            self._starts = MONITOR_RESTARTS + 1
            log.warning("the monitor cannot be started: %s; training goes on, `tiltmeter watch` catches up", error)
        finally:
            self._restart_lock.release()

    def release(self) -> None:
        self._released = True
