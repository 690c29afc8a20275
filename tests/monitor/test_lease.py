"""On a file system without `flock` one monitor holds a lease; who waits gets it when its holder is gone."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import json
from msgspec.structs import replace

from tiltmeter.errors import AttachError
from tiltmeter.monitor import lease, process
from tiltmeter.monitor.lease import Lease, boot_id, lease_held, read_lease
from tiltmeter.monitor.process import monitor_lock, monitor_running
from tiltmeter.rundir.gate.untrusted import strange_files
from tiltmeter.rundir.store import RunDirectory


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "SETTLE_SECONDS", 0.02)
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.05)
    monkeypatch.setattr(lease, "LEASE_SECONDS", 0.5)
    monkeypatch.setattr(process, "RETRY_SECONDS", 0.02)


@pytest.fixture(params=[errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL])
def run(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    def flock(handle: int, how: int) -> None:
        raise OSError(request.param, os.strerror(request.param))

    monkeypatch.setattr("tiltmeter.monitor.process.fcntl.flock", flock)
    return RunDirectory.create(tmp_path / "run")


def test_without_flock_a_monitor_starts_and_a_second_is_refused(run: RunDirectory) -> None:
    assert monitor_running(run) is False
    with monitor_lock(run) as is_held:
        assert is_held() and monitor_running(run) is not False and strange_files(run) == []
        with pytest.raises(AttachError, match="already has a monitor"), monitor_lock(run):
            pass
        time.sleep(1.0)  # longer than a lease: it is renewed
        with pytest.raises(AttachError, match="already has a monitor"), monitor_lock(run, _for(0.2)):
            pass
        assert is_held()
    assert monitor_running(run) is False
    with monitor_lock(run):
        pass


def _for(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() < end


def test_who_waits_gets_the_lease_of_a_process_that_is_gone(tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-S", "-c", ""])
    gone.wait()
    path = tmp_path / "monitor.lease"
    first = Lease(path)
    assert first.take()
    first._ended.set()
    record = read_lease(path)
    assert record is not None and record.boot == boot_id()
    path.write_bytes(json.encode(replace(record, pid=gone.pid)))
    assert not lease_held(path) and Lease(path).take()


@pytest.mark.parametrize("host", ["here", "elsewhere"])
def test_a_lease_that_is_not_renewed_is_taken_over_and_its_holder_ends(tmp_path: Path, host: str) -> None:
    path = tmp_path / "monitor.lease"
    frozen = Lease(path)
    assert frozen.take()
    frozen._ended.set()
    if host == "elsewhere":
        record = read_lease(path)
        assert record is not None
        path.write_bytes(json.encode(replace(record, host="another", time=0.0)))
    second = Lease(path)
    started = time.monotonic()
    while not second.take():
        time.sleep(0.02)
    assert time.monotonic() - started >= lease.LEASE_SECONDS
    frozen._ended.clear()
    frozen._renew()  # it thaws
    assert frozen.lost and not second.lost
    frozen.release()
    assert read_lease(path) is not None, "it is not the one that was lost"
    second.release()
    assert read_lease(path) is None
