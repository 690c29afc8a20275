"""An early line of the journal that was changed is named wherever a run is shown, with its caches and without."""

from __future__ import annotations

import json
import os
import shutil
import time
import zlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette", reason="needs the server: pip install 'tiltmeter[dashboard]'")

from tests.command_line import tiltmeter as command

from tiltmeter.data.batches import from_columns
from tiltmeter.monitor.list_entry_writer import leave_list_entry
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.process import run_monitor
from tiltmeter.rundir.maintenance import verify
from tiltmeter.rundir.remote.copy import fetch_copy
from tiltmeter.rundir.remote.objects import open_objects
from tiltmeter.rundir.remote.upload import Uploader
from tiltmeter.rundir.remote.writer_lease import WriterLease
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict import page_snapshot
from tiltmeter.verdict.list_entry import read_list_entry
from tiltmeter.verdict.page_snapshot import read_page_snapshot
from tiltmeter.view.payloads.overview import FleetRow
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.summary import summary
from tiltmeter.view.server.run_list import ListedRun, RunList, list_run

STEPS = 40
CHANGED = "the journal was changed at or just before step 1 (events/0.jsonl, line 3)"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A healthy run by the real monitor, which leaves all its caches."""
    folder = tmp_path_factory.mktemp("surfaces")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_snapshot, "LEAST_EVENTS", 8)
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        run = RunDirectory.create(folder / "runs" / "run")
        run.open_attempt(launch="x", ranks=1, resume_step=None)
        for step in range(STEPS):
            reward = np.random.default_rng(step).normal(size=16)
            gold = (reward > 0).astype(float)
            batch = from_columns(step, np.repeat(np.arange(4), 4), reward=reward, gold=gold)
            run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}, "time": time.time()})
        run.close_rank(0, 0, {"seen": STEPS, "written": STEPS})
        run_monitor(run, Config.standard())
    return folder


@pytest.fixture
def run(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    shutil.copytree(original, tmp_path / "place")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "place" / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "place" / "cache"))
    return RunDirectory(tmp_path / "place" / "runs" / "run")


@pytest.fixture(params=["seen", "unseen"])
def changed(run: RunDirectory, request: pytest.FixtureRequest) -> RunDirectory:
    """The run with another third line, its checksum right and its file as old as it was. "seen": by a reader whose
    caches are full."""
    if request.param == "seen":
        assert command("show", run.path).returncode == 0
        assert list_rows(run)[0].state == "OK"
        time.sleep(0.01)  # the clock of a file system ticks
    change_line(run.path / "events" / "0.jsonl")
    return run


def change_line(path: Path) -> None:
    times = path.stat()
    content = path.read_bytes().splitlines(keepends=True)
    body = content[2][:-19].replace(b'"rows":16', b'"rows":17')
    assert body != content[2][:-19]
    content[2] = b'%b,"crc":"%08x"}\n' % (body, zlib.crc32(b"}", zlib.crc32(body)))
    path.write_bytes(b"".join(content))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def list_rows(run: RunDirectory, *, by_file: bool = True) -> list[FleetRow]:
    def never(reader: RunReader) -> ListedRun:
        raise AssertionError(f"{reader.name} was read")

    return [one.row for one in RunList([run.path.parent]).rows(never if by_file else list_run).listed]


def test_before_it_is_changed_it_is_signed_and_intact_everywhere(run: RunDirectory) -> None:
    shown = command("show", run.path, "--more")
    assert shown.returncode == 0 and "Journal: signed and intact." in shown.stdout
    assert "Journal: signed and intact." in summary(RunReader(run)).asides
    checked = command("verify", run.path, "--json")
    assert checked.returncode == 0 and json.loads(checked.stdout)["journal"]["level"] == "signed"
    assert [row.state for row in list_rows(run)] == ["OK"]


def test_the_terminal_names_it(changed: RunDirectory) -> None:
    shown = command("show", changed.path)
    assert shown.returncode == 2 and CHANGED in " ".join(shown.stdout.split()) and "BLIND" in shown.stdout


@pytest.mark.parametrize("cached", [True, False])
def test_the_page_names_it(changed: RunDirectory, cached: bool) -> None:
    assert read_page_snapshot(changed) is not None
    page = summary(RunReader(changed, cached=cached))
    assert page.state == "BLIND" and page.sentence.startswith(CHANGED)


@pytest.mark.parametrize("by_file", [True, False])
def test_the_list_names_it(changed: RunDirectory, by_file: bool) -> None:
    if not by_file:
        (changed.path / "cache" / "list_entry.json").unlink()
    (row,) = list_rows(changed, by_file=by_file)
    assert row.state == "BLIND" and row.sentence.startswith(CHANGED) and row.what.startswith(CHANGED)


def test_the_list_says_what_it_has_not_checked(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiltmeter.view.server.run_list.JOURNAL_SECONDS", 0.0)
    (row,) = list_rows(run)
    assert row.what.endswith("(its journal is not checked yet)")


def test_a_cache_that_a_monitor_leaves_names_it(changed: RunDirectory) -> None:
    leave_list_entry(changed)
    left = read_list_entry(str(changed.path), time.time())
    assert left is not None and left[0].state == "BLIND" and left[0].sentence.startswith(CHANGED)


def test_verify_names_it(changed: RunDirectory) -> None:
    assert any(problem.startswith(CHANGED) for problem in verify(changed))
    assert command("verify", changed.path).returncode == 1


@pytest.mark.parametrize("mirrored", ["before", "after"])
def test_a_copy_of_a_bucket_names_it(run: RunDirectory, mirrored: str, tmp_path: Path) -> None:
    """`before`: the change is made in the bucket, whose head is made to agree, after a reader had its copy."""
    store = tmp_path / "store"
    store.mkdir()
    address = f"file://{store}/run"
    if mirrored == "after":
        change_line(run.path / "events" / "0.jsonl")
    lease = WriterLease(open_objects(address), "one")
    lease.take(patience=0.0)
    uploader = Uploader(run, open_objects(address), lease)
    uploader.note_journal()
    uploader.cycle()
    if mirrored == "before":
        assert command("show", address).returncode == 0
        (segment,) = (store / "run" / "events" / "0").iterdir()
        change_line(segment)
        head = json.loads((store / "run" / "head.json").read_text())
        head["journal"]["0"]["crc"] = zlib.crc32(segment.read_bytes())
        (store / "run" / "head.json").write_text(json.dumps(head))
    shown = command("show", address)
    assert shown.returncode == 2 and CHANGED in " ".join(shown.stdout.split())
    copy = fetch_copy(address)
    assert summary(RunReader(RunDirectory(copy))).sentence.startswith(CHANGED)
