"""Starts the monitor (`tiltmeter watch`) as a separate process, and again if it dies, for as long as training runs.

A thread of its own looks after it. A monitor that is alive and stands still (stopped, deadlocked, caught in native
code) is killed: it sends a byte a second through a pipe, from a thread that cannot run while native code holds the
interpreter, and another byte when its loop has moved on. Time in which this process stood still itself does not count,
and a monitor that waits for a processor is given longer: to start it again would cost more.

The first restarts within an hour are at once, further ones after growing pauses, about a dozen an hour: what kills a
monitor may pass, and a run of days must not lose it for good. While it is off, the trainer's log and the webhook tell.
A run that ends while it is off starts it once more.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue

from tiltmeter.errors import AttachError, Boundary, describe_error
from tiltmeter.monitor.heartbeat import PROGRESS
from tiltmeter.rundir.run_path import open_file

AT_ONCE = 3  # restarts within an hour that do not wait
FIRST_PAUSE, LONGEST_PAUSE = 15.0, 600.0  # seconds before the next one; doubled each time
HOUR = 3600.0
CHECK_SECONDS = 1.0
#: Seconds without a sign of life after which a monitor is killed: once it has given one, before (imports may come from
#: a slow disk), while it waits for a processor; and seconds without a turn of its loop, which may measure a large step.
FROZEN_SECONDS, STARTING_SECONDS, STARVED_SECONDS, STUCK_SECONDS = 15.0, 120.0, 120.0, 900.0
BUSY_SECONDS = 8.0  # of CPU since the last sign: native code runs, and no shortage of processors keeps it silent
LOOK_SECONDS, LAST_LOOKS = 0.05, 60  # how often, and how many times, the end looks for the last monitor's start
WEBHOOK_VARIABLE = "TILTMETER_WEBHOOK_URL"

log = logging.getLogger("tiltmeter")


class MonitorProcess:
    """The monitor's process of this run: started at once, restarted if it dies, left to finish at the end."""

    def __init__(self, command: Sequence[str], log_path: Path) -> None:
        self._command, self._log_path = list(command), log_path
        self._restarts: list[float] = []  # those within the last hour, in monotonic seconds
        self._not_before = 0.0  # when the next one may be
        self._off = False
        self._last_alert = -HOUR
        self._pipe = -1
        # A plain attribute and queues of C: an `Event` whose user is interrupted by a signal handler may stay locked.
        self._released = self._is_over = False
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._over: SimpleQueue[None] = SimpleQueue()
        self._restart_lock = threading.Lock()
        try:
            self._start()
            threading.Thread(target=self._supervise, name="tiltmeter-monitor-supervisor", daemon=True).start()
        except (OSError, RuntimeError) as error:
            raise AttachError(
                f"the monitor cannot be started ({error}); open_run(monitor=False) records without it, "
                "and `tiltmeter watch` measures later"
            ) from error

    def _start(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        self._killed_for = ""
        self._heard, self._silent, self._idle, self._cpu = False, 0.0, 0.0, 0.0
        self._checked = time.monotonic()
        self._pipe, beats = os.pipe()
        try:
            os.set_blocking(self._pipe, False)
            with os.fdopen(open_file(self._log_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab") as log_file:
                # A session of its own: Ctrl-C in the terminal stops training, and the monitor then finishes what is
                # stored.
                self.process = subprocess.Popen(
                    [*self._command, "--heartbeat", str(beats)],
                    stdin=subprocess.DEVNULL,
                    stdout=log_file,
                    stderr=log_file,
                    start_new_session=True,
                    pass_fds=(beats,),
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                )
        finally:
            os.close(beats)

    def _supervise(self) -> None:
        while not self._released:
            with suppress(Empty):
                self._wake.get(timeout=CHECK_SECONDS)
            with Boundary(self._report_failure, own_thread=True):
                self.keep_alive()
        with Boundary(self._report_failure, own_thread=True):
            self._start_last()
        self._is_over = True
        self._over.put(None)
        self.process.wait()  # otherwise it stays a zombie for as long as this process lasts
        with self._restart_lock:
            os.close(self._pipe)

    def _report_failure(self, error: BaseException) -> None:
        log.warning("the monitor could not be looked after: %s", describe_error(error))

    def keep_alive(self) -> None:
        """Restart the monitor if it died or stands still. Called every second on a thread of its own, and after each
        file on the writer's."""
        if not self._restart_lock.acquire(blocking=False):
            return  # another thread is checking
        try:
            if self._released:
                return
            now = time.monotonic()
            if self.process.poll() is not None:
                self._restart(now)
            elif not self._killed_for and (why := self._stands_still(now)):
                self._killed_for = why
                log.warning("the monitor %s; it is killed", why)
                # With what it has started: a gold function that hangs must not outlive it.
                os.killpg(self.process.pid, signal.SIGKILL)
        finally:
            self._restart_lock.release()

    def _stands_still(self, now: float) -> str:
        """Why a monitor that is alive is to be killed; empty if it is not."""
        passed, self._checked = min(now - self._checked, 2.0 * CHECK_SECONDS), now
        self._silent, self._idle = self._silent + passed, self._idle + passed
        waits, cpu = _processor_use(self.process.pid)
        if beats := self._read_beats():
            self._heard, self._silent, self._cpu = True, 0.0, cpu
        if PROGRESS in beats:
            self._idle = 0.0
        if self._idle > STUCK_SECONDS:
            return f"has made no progress for {self._idle:.0f} s"
        starved = waits and cpu - self._cpu < BUSY_SECONDS
        patience = STARVED_SECONDS if starved else FROZEN_SECONDS if self._heard else STARTING_SECONDS
        return f"has given no sign of life for {self._silent:.0f} s" if self._silent > patience else ""

    def _read_beats(self) -> bytes:
        try:
            return os.read(self._pipe, 1 << 16)
        except BlockingIOError:
            return b""

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
            log.warning("the monitor %s; starting it again", self._end)
            self._start()
        except OSError as error:
            log.warning("the monitor cannot be started: %s; training goes on, `tiltmeter watch` catches up", error)

    @property
    def _end(self) -> str:
        """How it ended, after "the monitor"."""
        return self._killed_for or f"stopped (exit {self.process.returncode})"

    def _report_off(self, now: float, pause: float) -> None:
        why = f"it ended {len(self._restarts) + 1} times within an hour, the last time it {self._end}"
        log.warning("the monitor is off: %s; nothing is measured until it starts again, in %.0f s", why, pause)
        if os.environ.get(WEBHOOK_VARIABLE) and now >= self._last_alert + HOUR:
            self._last_alert = now
            command = [sys.executable, "-m", "tiltmeter.view.trackers.monitor_off", str(self._log_path.parent), why]
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            threading.Thread(target=process.wait, name="tiltmeter-alert-wait", daemon=True).start()

    def release(self) -> None:
        """The run has ended, and the monitor is left to finish. Where none lives, a last one is started, by the
        supervisor's thread, which is waited for: it would not outlive an exit. May be called again."""
        self._released = True
        self._wake.put(None)
        for _ in range(LAST_LOOKS):
            if self._is_over:
                return
            with suppress(Empty):
                self._over.get(timeout=LOOK_SECONDS)

    def _start_last(self) -> None:
        """Start a monitor once more if the one before did not measure to the end, whatever its pause."""
        with self._restart_lock:
            if self.process.poll() is None and _state(self.process.pid) == b"T":
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
            if self.process.poll() is not None and self.process.returncode:
                log.warning("the monitor %s; it is started a last time, for the steps that are not measured", self._end)
                self._start()


def _state(pid: int) -> bytes:
    """The letter of a process's state; empty if it is not known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return b""


def _processor_use(pid: int) -> tuple[bool, float]:
    """Whether a process could run and waits for a processor or has one, and its CPU seconds; no and 0 if unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        return fields[0] == b"R", (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return False, 0.0
