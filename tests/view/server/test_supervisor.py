"""The page's process can be lost, and the page stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("starlette", reason="needs the server: pip install 'tiltmeter[dashboard]'")

from tiltmeter.errors import StoreError
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.server import supervisor
from tiltmeter.view.server.read_marks import ReadMarks
from tiltmeter.view.server.run_list import RunList, list_run
from tiltmeter.view.server.supervisor import MOST_DEATHS, supervise


def test_a_run_that_two_processes_were_lost_over_is_set_aside_and_no_other(tmp_path: Path) -> None:
    for name in ("bad", "good"):
        RunDirectory.create(tmp_path / name)
    runs = RunList([tmp_path])
    [bad] = [id for id in runs.ids() if runs.reader(id).name == "bad"]
    reasons: list[str] = []

    def serve() -> None:
        def read(id: str) -> None:
            try:
                runs.reader(id)
            except StoreError:
                return
            with runs.marks.reading(id):
                if id == bad:
                    time.sleep(0.3)  # the other one is being read as well
                    os.kill(os.getpid(), signal.SIGKILL)
                time.sleep(0.6)

        threads = [threading.Thread(target=read, args=(id,)) for id in runs.ids()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    supervise(serve, runs.marks, reasons.append)
    assert reasons == ["ended with SIGKILL"] * len(reasons) and 2 <= len(reasons) <= 3
    assert list(runs.marks.set_aside) == [bad]
    with pytest.raises(StoreError, match="two processes of the page were lost over this run"):
        runs.reader(bad)
    shown, unread, unreadable = runs.rows(list_run)
    assert [row.row.name for row in shown] == ["good"] and (unread, unreadable) == (0, 1)


def test_a_read_that_never_returns_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "READ_SECONDS", 0.3)
    marks, reasons = ReadMarks(), list[str]()

    def serve() -> None:
        with marks.reading("patient", patient=True):
            time.sleep(0.5)
        if "stuck" not in marks.set_aside:
            with marks.reading("stuck"):
                threading.Event().wait()

    supervise(serve, marks, reasons.append)
    assert len(reasons) == 2 and all(why.startswith("hung") for why in reasons)
    assert list(marks.set_aside) == ["stuck"]


def test_a_page_that_dies_again_and_again_ends() -> None:
    reasons: list[str] = []
    with pytest.raises(RuntimeError, match=f"{MOST_DEATHS} times within an hour"):
        supervise(lambda: os._exit(3), ReadMarks(), reasons.append)
    assert reasons == ["ended with exit code 3"] * (MOST_DEATHS - 1)


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def answer(port: int) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/login", timeout=10) as reply:
            return int(reply.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find the page's process")
def test_the_real_page_comes_back_and_leaves_nothing_behind(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "run")
    command = [sys.executable, "-m", "tiltmeter", "view", str(tmp_path), "--port", "0", "--json"]
    state = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=state) as page:
        try:
            assert page.stdout is not None and page.stderr is not None
            facts = json.loads(page.stdout.readline())
            assert answer(facts["port"]) == 405
            [first] = children(page.pid)
            os.kill(first, signal.SIGKILL)
            said = page.stderr.readline()
            assert "ended with SIGKILL" in said
            again = said.rsplit("once: ", 1)[1].strip()
            assert again.startswith(facts["url"].split("#")[0]) and again != facts["url"]
            assert answer(facts["port"]) == 405
            [second] = children(page.pid)
            assert second != first
            page.send_signal(signal.SIGINT)
            assert page.wait(20) == 0
            assert not Path(f"/proc/{second}").exists()
        finally:
            page.kill()


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find the page's process")
def test_the_pages_process_ends_with_its_parent(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "run")
    command = [sys.executable, "-m", "tiltmeter", "view", str(tmp_path), "--port", "0", "--json"]
    state = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=state) as page:
        assert page.stdout is not None
        port = json.loads(page.stdout.readline())["port"]
        assert answer(port) == 405
        [child] = children(page.pid)
        page.kill()
        deadline = time.monotonic() + 15.0
        while Path(f"/proc/{child}").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2]
