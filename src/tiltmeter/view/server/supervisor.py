"""Keeps the page up: it serves from a child process, which is replaced when it dies or hangs.

Reading a run may end a process (native code that aborts on a file somebody crafted, memory that runs out) or never
return (storage that is away), and a thread cannot be killed. So the process that does the reading can be. What it was
reading is noted in shared memory: a run that two processes were lost over is set aside, and the others are shown.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from types import FrameType

from tiltmeter.view.server.read_marks import ReadMarks

READ_SECONDS = 120.0  # a request is answered after half of it at most, whatever its reading does
LOOK_SECONDS = 0.2
DEATHS = 2  # while a run was read, before it is set aside
MOST_DEATHS = 8  # within an hour, before the page ends
HOUR = 3600.0


def supervise(work: Callable[[], None], marks: ReadMarks, restarted: Callable[[str], None]) -> None:
    """Run `work` in a child until it returns or a signal ends this process; `restarted` is told why a new one begins.

    Raises `RuntimeError` if it dies again and again.
    """
    deaths: deque[float] = deque(maxlen=MOST_DEATHS)
    blamed: Counter[str] = Counter()
    with _Signals() as signals:
        while True:
            marks.clear()
            child = _fork(work, signals)
            why, lost_over = _wait(child, marks, signals)
            if not why:
                return
            deaths.append(time.monotonic())
            if len(deaths) == MOST_DEATHS and deaths[-1] - deaths[0] < HOUR:
                raise RuntimeError(f"the page's process was lost {MOST_DEATHS} times within an hour; at last it {why}")
            for run in lost_over:
                blamed[run] += 1
                marks.suspects.add(run)
                if blamed[run] >= DEATHS:
                    marks.set_aside[run] = f"two processes of the page were lost over this run; the last one {why}"
            restarted(why)


class _Signals:
    """While it is entered, the signals that end a server are passed on to the child."""

    def __enter__(self) -> _Signals:
        self.child, self.ended = 0, False
        self._before = {number: signal.signal(number, self._pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    def restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        self.ended = True
        if self.child:
            try:
                os.kill(self.child, signal.SIGTERM if number == signal.SIGTERM else signal.SIGINT)
            except ProcessLookupError:
                pass


def _fork(work: Callable[[], None], signals: _Signals) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    signals.child = os.fork()
    if signals.child:
        return signals.child
    status = 1
    try:
        signals.restore()
        threading.Thread(target=_end_with, args=(parent,), name="tiltmeter-parent", daemon=True).start()
        work()
        status = 0
    except KeyboardInterrupt:
        status = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # what the parent opened is the parent's to close


def _end_with(parent: int) -> None:
    """A parent that was killed can tell nobody: a page without one would hold its port for ever."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _wait(child: int, marks: ReadMarks, signals: _Signals) -> tuple[str, set[str]]:
    """Until the child is gone: why it must be replaced, and the runs that it may have been lost over.

    No reason if it ended by itself or was told to.
    """
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            if code == 0 or signals.ended:
                return "", set()
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            return f"ended with {how}", {mark.run for mark in marks.current() if mark.run}
        now = time.monotonic()
        late = [mark for mark in marks.current() if not mark.patient and now - mark.began > READ_SECONDS]
        if late:
            _kill(child)
            first = min(late, key=lambda mark: mark.began)  # later ones may only wait for it
            return f"hung for {READ_SECONDS:.0f} s", {first.run} - {""}
        time.sleep(LOOK_SECONDS)


def _kill(child: int) -> None:
    """Kill it; one that waits for storage cannot even be reaped, and nobody waits for it."""
    os.kill(child, signal.SIGKILL)
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline and not os.waitpid(child, os.WNOHANG)[0]:
        time.sleep(LOOK_SECONDS)
