"""The monitor is started again for as long as training runs; while it is off, the log and the webhook say so."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.adapters import monitor_process
from tiltmeter.adapters.monitor_process import (
    AT_ONCE,
    FROZEN_SECONDS,
    HOUR,
    LONGEST_PAUSE,
    STARTING_SECONDS,
    MonitorProcess,
)
from tiltmeter.errors import AttachError
from tiltmeter.rundir.store import RunDirectory


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(monitor_process, "time", clock)
    monkeypatch.setattr(monitor_process, "CHECK_SECONDS", HOUR)  # the tests look after it themselves
    return clock


def dying(folder: Path) -> MonitorProcess:
    """A monitor that ends at once, each time."""
    return MonitorProcess([sys.executable, "-S", "-c", "raise SystemExit(3)"], folder / "monitor.log")


def starts(process: MonitorProcess, clock: Clock, seconds: float, every: float) -> int:
    """How often it is started while it is looked after every so many seconds."""
    seen = {process.process.pid}
    end = clock.now + seconds
    while clock.now < end:
        process.process.wait()
        process.keep_alive()
        seen.add(process.process.pid)
        clock.now += every
    return len(seen) - 1


def test_a_monitor_that_keeps_dying_is_started_a_dozen_times_an_hour_and_for_ever(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    process = dying(tmp_path)
    with caplog.at_level(logging.WARNING, "tiltmeter"):
        assert starts(process, clock, 10.0, 1.0) == AT_ONCE
        assert "the monitor is off: it ended 4 times within an hour, the last time it stopped (exit 3)" in caplog.text
        first = starts(process, clock, HOUR, 5.0)
        later = starts(process, clock, 6 * HOUR, 30.0)
    assert 5 <= first <= 12
    assert 6 * HOUR / LONGEST_PAUSE * 0.5 <= later <= 6 * 12


def test_a_monitor_that_dies_now_and_then_is_always_started_at_once(tmp_path: Path, clock: Clock) -> None:
    process = dying(tmp_path)
    assert starts(process, clock, 40 * HOUR / 2, HOUR / 2) == 40


COUNTING = """
import sys
with open({path!r}, "a") as file:
    file.write("started\\n")
raise SystemExit({code})
"""


@pytest.mark.parametrize(("code", "more"), [(3, 1), (0, 0)])
def test_a_run_that_ends_while_its_monitor_is_off_starts_one_last_monitor(
    tmp_path: Path, clock: Clock, code: int, more: int
) -> None:
    """Not where the last one measured everything and ended well."""
    told = tmp_path / "starts"
    process = monitor(tmp_path, COUNTING.format(path=str(told), code=code))
    starts(process, clock, 10.0, 1.0)
    process.keep_alive()
    before = len(told.read_text().splitlines())
    process.release()
    process.release()  # as an end that was interrupted does
    process.process.wait()
    assert len(told.read_text().splitlines()) == before + more


def test_a_monitor_that_lives_is_left_to_finish_and_one_that_is_stopped_is_replaced(tmp_path: Path) -> None:
    for is_stopped in (False, True):
        process = monitor(tmp_path, BEATING.format(beat="+"))
        first = process.process
        if is_stopped:
            first.send_signal(signal.SIGSTOP)
            while monitor_process._state(first.pid) != b"T":
                time.sleep(0.01)
        finish(process)
        assert (process.process is not first) == is_stopped
        assert first.wait() == -signal.SIGKILL


def test_a_monitor_that_cannot_be_started_is_tried_again(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = dying(tmp_path)
    process.process.wait()
    with monkeypatch.context() as patch:
        patch.setattr(process, "_start", lambda: (_ for _ in ()).throw(BlockingIOError("no process")))
        for _ in range(20):
            process.keep_alive()
            clock.now += 60.0
    clock.now += LONGEST_PAUSE
    assert starts(process, clock, 2 * LONGEST_PAUSE, 60.0) >= 1


def test_the_webhook_hears_that_the_monitor_is_off(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[dict[str, Any]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            heard.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("TILTMETER_WEBHOOK_URL", f"http://127.0.0.1:{server.server_address[1]}/s3cret")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    process = dying(run.path)
    starts(process, clock, 200.0, 1.0)
    deadline = time.monotonic() + 30.0
    while not heard and time.monotonic() < deadline:
        time.sleep(0.05)
    server.shutdown()
    server.server_close()
    (alert,) = heard
    assert alert["level"] == "ERROR" and alert["title"] == "Monitor off: run"
    assert "it ended 4 times within an hour" in alert["text"] and "tiltmeter watch RUN" in alert["text"]


def test_the_log_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "start-up file").write_text("mine\n")
    (tmp_path / "monitor.log").symlink_to(tmp_path / "start-up file")
    with pytest.raises(AttachError, match=r"monitor\.log"):
        MonitorProcess([sys.executable, "-c", "print('yours')"], tmp_path / "monitor.log")
    assert (tmp_path / "start-up file").read_text() == "mine\n"


BEATING = """
import os, sys, time
while True:
    os.write(int(sys.argv[-1]), b"{beat}")
    time.sleep(0.05)
"""
SPINNING = """
import os, sys
os.write(int(sys.argv[-1]), b"+")
while True:
    pass
"""


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHECK_SECONDS", "FROZEN_SECONDS", "STARVED_SECONDS", "BUSY_SECONDS"):
        monkeypatch.setattr(monitor_process, name, getattr(monitor_process, name) / 20.0)


def started_again(process: MonitorProcess, seconds: float) -> bool:
    first, deadline = process.process.pid, time.monotonic() + seconds
    while process.process.pid == first and time.monotonic() < deadline:
        time.sleep(0.02)
    return process.process.pid != first


def finish(process: MonitorProcess) -> None:
    process.release()
    process.process.kill()
    process.process.wait()


def monitor(folder: Path, program: str) -> MonitorProcess:
    return MonitorProcess([sys.executable, "-S", "-c", program], folder / "monitor.log")


@pytest.mark.usefixtures("fast")
def test_a_monitor_that_is_stopped_is_killed_and_started_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = monitor(tmp_path, BEATING.format(beat="+"))
    try:
        assert not started_again(process, 2.0)
        with caplog.at_level(logging.WARNING, "tiltmeter"):
            os.kill(process.process.pid, signal.SIGSTOP)
            assert started_again(process, 20.0)
        assert "the monitor has given no sign of life for 1 s; starting it again" in caplog.text
        assert len(process._restarts) == 1  # in the budget of those that died
    finally:
        finish(process)


@pytest.mark.usefixtures("fast")
def test_a_monitor_caught_in_native_code_is_killed(tmp_path: Path) -> None:
    process = monitor(tmp_path, SPINNING)
    try:
        assert started_again(process, 20.0)
    finally:
        finish(process)


@pytest.mark.usefixtures("fast")
def test_a_monitor_that_lives_without_progress_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(monitor_process, "STUCK_SECONDS", 2.0)
    process = monitor(tmp_path, BEATING.format(beat="."))
    try:
        assert started_again(process, 20.0)
    finally:
        finish(process)


def test_time_in_which_the_trainer_stood_still_does_not_count(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = monitor(tmp_path, "import time; time.sleep(60)")
    pid = process.process.pid
    try:
        process._heard = True
        monkeypatch.setattr(monitor_process, "CHECK_SECONDS", 1.0)
        for _ in range(int(FROZEN_SECONDS) // 2):
            clock.now += 100.0
            process.keep_alive()
        assert process.process.pid == pid and not process._killed_for
        while not process._killed_for:  # it may still be starting, and in need of a processor
            clock.now += 100.0
            process.keep_alive()
            time.sleep(0.01)
    finally:
        finish(process)


def test_the_monitor_itself_gives_signs_of_life(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    command = [sys.executable, "-m", "tiltmeter.monitor", str(run.path), "--attached", str(os.getpid())]
    process = MonitorProcess(command, run.path / "monitor.log")
    try:
        deadline = time.monotonic() + 60.0
        while not process._heard and time.monotonic() < deadline:
            time.sleep(0.1)
        assert process._heard and process._idle < STARTING_SECONDS
    finally:
        finish(process)
