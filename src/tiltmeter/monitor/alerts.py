"""The process that posts alerts to a webhook, started and restarted by the monitor."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time

from tiltmeter.rundir.store import RunDirectory

WEBHOOK_VARIABLE = "TILTMETER_WEBHOOK_URL"
STARTS = 4  # of the process that posts alerts: the first, and again when it dies
START_SECONDS = 5.0  # between two of them

log = logging.getLogger("tiltmeter")


class AlertProcess:
    """A child process that posts alerts to the webhook named in the environment, so that measuring goes on if posting
    fails. The address stays in the environment, because anybody can see a command line. The child ends after this
    process; one that ended earlier has died, and is started again a few times."""

    def __init__(self, run: RunDirectory, starts: int = STARTS) -> None:
        track = [sys.executable, "-m", "tiltmeter", "track", str(run.path)]
        self._command = [*track, "--attached", str(os.getpid())]
        self._starts = starts if os.environ.get(WEBHOOK_VARIABLE) else 0
        self._process: subprocess.Popen[bytes] | None = None
        self._not_before = 0.0
        self.check()

    def check(self, measured: int = 0) -> None:
        if self._process is not None:
            if (code := self._process.poll()) is None:
                return
            self._process = None
            self._log_failure(f"the process that posts alerts ended with {code}")
        if self._starts and time.monotonic() >= self._not_before:
            self._starts, self._not_before = self._starts - 1, time.monotonic() + START_SECONDS
            try:
                self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            except OSError as error:
                self._log_failure(f"no process that posts alerts could be started ({error.strerror})")

    def _log_failure(self, why: str) -> None:
        then = "it is started again" if self._starts else "no alert is posted until you run: tiltmeter track RUN"
        log.warning("%s; %s", why, then)
