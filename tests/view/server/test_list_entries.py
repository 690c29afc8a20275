"""List entries: a list of runs by what their monitors left, and never green where the run does not bear it out."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("starlette", reason="needs the server: pip install 'tiltmeter[dashboard]'")

from msgspec.structs import asdict

from tiltmeter.data.batches import from_columns
from tiltmeter.monitor.list_entry_writer import ListEntryWriter
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.process import run_monitor
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.payloads.overview import FleetRow
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server import run_list as module
from tiltmeter.view.server.run_list import ListedRun, RunList, RunRows, list_run

STEPS = 40


def write_steps(path: Path, *, harm: bool, ended: bool = True) -> RunDirectory:
    run = RunDirectory.create(path)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(STEPS):
        write_step(run, step, harm=harm)
    if ended:
        run.close_rank(0, 0, {"seen": STEPS, "written": STEPS})
    return run


def write_step(run: RunDirectory, step: int, *, harm: bool) -> None:
    reward = np.random.default_rng(step).normal(size=16)
    gold = (reward < 0 if harm else reward > 0).astype(float)
    batch = from_columns(step, np.repeat(np.arange(4), 4), reward=reward, gold=gold)
    run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}, "time": time.time()})


def measure(run: RunDirectory, *, over: bool) -> None:
    """What a monitor does; `over`: it has ended since, else it is taken to be alive."""
    watch, writer = MonitorLoop(run, Config.standard()), ListEntryWriter(run)
    while watch.poll():
        pass
    watch.close()
    while not (run.path / "cache" / "list_entry.json").exists():
        writer.update(over=over)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run of each kind, measured by the real monitor to its end, or as one that is at work."""
    folder = tmp_path_factory.mktemp("made")
    for name, harm in (("healthy", False), ("harmed", True)):
        run_monitor(write_steps(folder / name, harm=harm), Config.standard())
        measure(write_steps(folder / f"{name}-live", harm=harm, ended=False), over=False)
    return folder


@pytest.fixture
def runs(made: Path, tmp_path: Path) -> Path:
    """Copies with the times of their files, which say what is newer than what."""
    shutil.copytree(made, tmp_path / "runs")
    return tmp_path / "runs"


def never(reader: RunReader) -> ListedRun:
    raise AssertionError(f"{reader.name} was read")


def by_name(rows: RunRows) -> dict[str, FleetRow]:
    return {run.row.name: run.row for run in rows.listed}


def by_file_alone(run: Path, now: float) -> FleetRow:
    """The row while somebody else reads the journals."""
    shelf = RunList([run])
    shelf._read_list_entries(shelf.ids(), now)
    shelf._listed_once = True
    with shelf._read_lock:
        (row,) = shelf.rows(list_run).listed
    return row.row


def change_file(run: Path, **changes: Any) -> None:
    """Another file in place of the monitor's, with the time it had."""
    path = run / "cache" / "list_entry.json"
    times = path.stat()
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def test_a_file_says_what_the_journal_says_and_no_journal_is_read(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("healthy-live", "harmed-live"):
        change_file(runs / name, heartbeat=time.time(), due=time.time() + 30)
    by_file = by_name(RunList([runs]).rows(never))
    monkeypatch.setattr(module, "read_list_entry", lambda *_: None)
    by_journal = by_name(RunList([runs]).rows(list_run))
    assert {name: row.state for name, row in by_file.items()} == {
        "healthy": "OK", "harmed": "ACT", "healthy-live": "OK", "harmed-live": "ACT",
    }  # fmt: skip
    for name, row in by_file.items():
        left, right = asdict(row), asdict(by_journal[name])
        assert abs(left.pop("age_s") - right.pop("age_s")) < 30
        assert left.pop("picture") is None and right.pop("picture") is not None  # it is drawn when it is shown
        assert left == right


def edits(name: str) -> dict[str, Callable[[Path], object]]:
    """What makes a file that says OK one that must not be believed."""

    def grow(run: Path) -> None:
        with (run / "events" / "0.jsonl").open("ab") as file:
            file.write(b"~\n")

    def shrink(run: Path) -> None:
        os.truncate(run / "events" / "0.jsonl", 4000)

    def swap(run: Path) -> None:
        (run / "events" / "0.jsonl").write_bytes((run.parent / f"harmed{name}" / "events" / "0.jsonl").read_bytes())

    def restart(run: Path) -> None:
        RunDirectory(run).open_attempt(launch="y", ranks=1, resume_step=None)

    def lose(run: Path) -> None:
        (run / "events" / "0.jsonl").unlink()

    return {
        "the journal went on": grow,
        "the journal was cut": shrink,
        "the journal is another's": swap,
        "an attempt began": restart,
        "the journal is gone": lose,
    }


@pytest.mark.parametrize("what", edits(""))
@pytest.mark.parametrize("name", ["", "-live"])
def test_a_file_that_the_run_contradicts_is_never_green(runs: Path, what: str, name: str) -> None:
    run = runs / f"healthy{name}"
    if name:
        change_file(run, heartbeat=time.time() - 10, due=time.time() + 30)
    edits(name)[what](run)
    shelf = RunList([runs])

    def slow(reader: RunReader) -> ListedRun:
        raise OSError("storage is away")

    rows = shelf.rows(slow)
    row = by_name(rows).get(run.name)
    assert row is None or (row.state not in ("OK", "WATCH") and row.unread)
    assert rows.unread + rows.unreadable >= 1
    while (rows := RunList([runs]).rows(list_run)).unread:
        pass
    row = by_name(rows).get(run.name)
    if what == "the journal is another's":
        assert row is not None and row.state == "ACT"
    if what in ("the journal was cut", "the journal is gone"):
        assert row is None or row.state not in ("OK", "WATCH")


def test_a_monitor_that_is_late_or_gone_takes_the_green_away(runs: Path) -> None:
    now, run = time.time(), runs / "healthy-live"
    for changes in (
        {"heartbeat": now - 300, "due": now - 270},  # killed
        {"heartbeat": now, "due": now + 30, "over": True},  # ended while the trainer goes on
        {"heartbeat": now + 3600, "due": now + 3630},  # of a clock that nobody knows
        {"heartbeat": now, "due": now + 30, "data_time": now - 4000},  # at work, and nothing to measure
    ):
        change_file(run, **changes)
        row = by_file_alone(run, now)
        assert row.state == "STALE" and "ago" in row.what, changes
    change_file(runs / "harmed-live", heartbeat=now - 300, due=now - 270)
    old = by_file_alone(runs / "harmed-live", now)
    assert (old.state, old.unread) == ("ACT", True), "what needs a person is said though it may be old"


HOSTILE: dict[str, bytes] = {
    "not JSON": b"\xff\xfe{",
    "too large": b"[" + b" " * 20_000 + b"]",
    "nested": b"[" * 9000 + b"]" * 9000,
    "another type": b'{"schema": "one"}',
    "no number": b'{"schema": NaN}',
}


@pytest.mark.parametrize("what", [*HOSTILE, "a link", "a pipe", "a folder", "a state of its own", "a path"])
def test_a_hostile_file_is_as_none(runs: Path, what: str) -> None:
    run = runs / "harmed"
    path = run / "cache" / "list_entry.json"
    good = (runs / "healthy" / "cache" / "list_entry.json").read_text()
    path.unlink()
    match what:
        case "a link":
            path.symlink_to(runs / "healthy" / "cache" / "list_entry.json")
        case "a pipe":
            os.mkfifo(path)
        case "a folder":
            path.mkdir()
        case "a state of its own":
            path.write_text(json.dumps({**json.loads(good), "state": "FINE"}))
        case "a path":
            path.write_text(json.dumps({**json.loads(good), "journal": "../../healthy/events/0.jsonl"}))
        case _:
            path.write_bytes(HOSTILE[what])
    assert by_name(RunList([run]).rows(list_run))["harmed"].state == "ACT"


def test_a_writer_that_fails_leaves_no_file_and_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_steps(tmp_path / "run", harm=False)
    measure(run, over=False)

    def fail(*_: object) -> None:
        raise ValueError("a defect")

    writer = ListEntryWriter(run)
    monkeypatch.setattr("tiltmeter.monitor.list_entry_writer.ages", fail)
    writer.update(over=True)
    assert not (run.path / "cache" / "list_entry.json").exists()
    writer.update(over=True)
