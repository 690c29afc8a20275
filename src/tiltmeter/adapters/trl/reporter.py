"""Lines on the trainer's console, and the process that writes into the trainer's own runs of its trackers.

Nothing is sent or measured here. A thread waits for lines to print; the process does the rest, and is started again if
it dies. Training never waits for it; when training has ended, the last lines are waited for, for a while.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError, Boundary, describe_error
from tiltmeter.rundir.run_path import open_file

QUIET_VARIABLE = "TILTMETER_QUIET"
STARTS = 4  # of the process: the first, and again when it dies
START_SECONDS = 5.0  # before the next
LAST_SECONDS = 60.0  # that the end of training waits for what is still to be measured and sent
SILENT_SECONDS = 3.0  # after which it says what it waits for

log = logging.getLogger("tiltmeter")


def print_line(text: str) -> None:
    """A line on standard error, above the progress bar if there is one."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    tqdm.write(f"tiltmeter: {text}", file=sys.stderr)


def is_quiet() -> bool:
    return os.environ.get(QUIET_VARIABLE, "") not in ("", "0")


class RunReporter:
    """The process `tiltmeter.view.trackers.trainer_run` of one attempt, and the thread that prints its lines."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._first: dict[str, Any] | None = None  # where to send: repeated to a process that is started again
        self._ended, self._left, self._finished = False, False, threading.Event()
        self._starts = STARTS
        self._lock = threading.Lock()
        self._pid = os.getpid()
        try:
            self._start()
            threading.Thread(target=self._read, name="tiltmeter-reporter", daemon=True).start()
        except (OSError, RuntimeError) as error:
            raise AttachError(
                f"nothing can be reported ({error}): attach(tracker=False, quiet=True) watches without it"
            ) from error

    def open(self, trackers: Mapping[str, str], environment: Mapping[str, str], console: str) -> None:
        """Say where the trainer's own runs are; `console`: where to look, or nothing for no lines."""
        with self._lock:
            self._first = {"trackers": dict(trackers), "environment": dict(environment), "console": console}
            self._write(self._first)

    def finish(self, *, quiet: bool) -> bool:
        """Training has ended: wait for the last lines, and say whether they came."""
        with self._lock:
            if os.getpid() != self._pid or self._ended:
                return True
            self._ended = True
            self._write({"end": True})
        if not self._finished.wait(SILENT_SECONDS) and not quiet:
            print_line(f"the last steps are being measured, for at most {LAST_SECONDS:.0f} s")
        return self._finished.wait(LAST_SECONDS - SILENT_SECONDS)

    def leave(self) -> None:
        """Close the pipe: the process sends what is left by itself, and prints nothing more."""
        with self._lock:
            self._ended = self._left = True
            self._close_pipe()

    def _close_pipe(self) -> None:
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except OSError:
                pass  # it has died with a message unread

    def _start(self) -> None:
        self._starts -= 1
        command = [sys.executable, "-m", "tiltmeter.view.trackers.trainer_run", str(self._directory)]
        log_file = open_file(self._directory / "monitor.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            # A session of its own: Ctrl-C in the terminal stops training, and what is left is still sent.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log_file,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        finally:
            os.close(log_file)

    def _write(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(message).encode("ascii") + b"\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            pass  # it has died: the thread starts it again and repeats what was said

    def _read(self) -> None:
        with Boundary(self._report_failure, own_thread=True):
            while True:
                assert self._process.stdout is not None
                with self._process.stdout as lines:
                    for line in lines:
                        self._take(json.loads(line))
                code = self._process.wait()
                with self._lock:
                    self._close_pipe()
                if self._finished.is_set() or self._ended or not self._starts:
                    break
                log.warning("the process that reports ended with %s; it is started again", code)
                time.sleep(START_SECONDS)
                with self._lock:
                    self._start()
                    if self._first is not None:
                        self._write(self._first)
            if not self._finished.is_set() and not self._ended:
                log.warning("the process that reports has died %d times: nothing more is reported here", STARTS)
        self._finished.set()

    def _take(self, message: Mapping[str, Any]) -> None:
        if "line" in message and not self._left:
            print_line(str(message["line"]))
        if message.get("done"):
            self._finished.set()

    def _report_failure(self, error: BaseException) -> None:
        log.warning("nothing more is reported here: %s", describe_error(error))
