"""Which runs a server finds below a folder, and how often it reads them."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("starlette", reason="needs the server: pip install 'tiltmeter[dashboard]'")

from tiltmeter.data.batches import from_columns
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.server import run_list as module
from tiltmeter.view.server.run_list import ListedRun, RunList, list_run


def made(path: Path, *, ended: bool = True, steps: int = 2) -> RunDirectory:
    run = RunDirectory.create(path)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(steps):
        extend(run, step)
    if ended:
        run.close_rank(0, 0, {"seen": steps, "written": steps})
    measure(run)
    return run


def extend(run: RunDirectory, step: int) -> None:
    reward = np.random.default_rng(step).normal(size=16)
    batch = from_columns(step, np.repeat(np.arange(4), 4), reward=reward, gold=(reward > 0).astype(float))
    run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}})


def measure(run: RunDirectory) -> None:
    watch = MonitorLoop(run, Config.standard())
    watch.poll()
    watch.close()


class Counted:
    """The real line of a run, counted."""

    def __init__(self) -> None:
        self.read: Counter[str] = Counter()

    def __call__(self, book: RunReader) -> ListedRun:
        self.read[book.name] += 1
        return list_run(book)


def names(shelf: RunList) -> set[str]:
    return {shelf.reader(id).name for id in shelf.ids()}


def test_runs_are_found_below_folders_but_not_through_links_or_hidden_folders(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "runs" / "plain")
    RunDirectory.create(tmp_path / "runs" / "trainer" / "tiltmeter")  # called as the trainer's own directory
    RunDirectory.create(tmp_path / "runs" / ".hidden" / "no")
    RunDirectory.create(tmp_path / "elsewhere" / "secret")
    RunDirectory.create(tmp_path / "runs" / "1" / "2" / "3" / "4" / "5" / "6" / "deep")
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    planted = tmp_path / "runs" / "planted"
    planted.mkdir()
    (planted / "run.json").symlink_to(tmp_path / "elsewhere" / "secret" / "run.json")
    assert names(RunList([tmp_path / "runs"])) == {"plain", "trainer"}
    assert names(RunList([tmp_path / "runs", tmp_path / "runs" / "plain"])) == {"plain", "trainer"}, "each once"


def test_an_id_says_nothing_of_the_path_and_an_unknown_one_finds_nothing(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "a")
    shelf = RunList([tmp_path])
    (id,) = shelf.ids()
    assert len(id) == 12 and int(id, 16) >= 0
    for wrong in ("", "..", "a", str(tmp_path / "a"), id.upper() + "0"):
        with pytest.raises(KeyError):
            shelf.reader(wrong)


def test_a_run_that_begins_or_goes_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SCAN_SECONDS", 0.0)
    RunDirectory.create(tmp_path / "a")
    shelf = RunList([tmp_path])
    assert names(shelf) == {"a"}
    RunDirectory.create(tmp_path / "b")
    assert names(shelf) == {"a", "b"}
    shutil.rmtree(tmp_path / "a")
    assert names(shelf) == {"b"}
    assert [row.row.name for row in shelf.rows(list_run)[0]] == ["b"]


def test_a_run_that_has_ended_is_read_once_until_something_is_added(tmp_path: Path) -> None:
    ended, live = made(tmp_path / "ended"), made(tmp_path / "live", ended=False)
    shelf, counted = RunList([tmp_path]), Counted()
    for _ in range(3):
        rows, *others = shelf.rows(counted)
        time.sleep(0.5)
    assert counted.read == {"ended": 1, "live": 3} and others == [0, 0]
    assert {row.row.name: (row.row.live, row.row.step) for row in rows} == {"ended": (False, 1), "live": (True, 1)}
    number = ended.open_attempt(launch="y", ranks=1, resume_step=None)
    assert number == 1
    measure(ended)
    rows = shelf.rows(counted).listed
    assert counted.read["ended"] == 2 and {row.row.name: row.row.attempt for row in rows}["ended"] == 1
    extend(live, 2)
    measure(live)
    assert {row.row.name: row.row.step for row in shelf.rows(counted)[0]}["live"] == 2


def test_a_run_that_cannot_be_read_is_counted_and_hides_no_other(tmp_path: Path) -> None:
    made(tmp_path / "good")
    RunDirectory.create(tmp_path / "newer")
    (tmp_path / "newer" / "run.json").write_text('{"format": 999}')
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_bytes(b"\xff\x00")
    rows, unread, unreadable = RunList([tmp_path]).rows(list_run)
    assert [row.row.name for row in rows] == ["good"] and (unread, unreadable) == (0, 2)


def test_ages_go_on_though_nothing_is_read(tmp_path: Path) -> None:
    made(tmp_path / "a")
    shelf = RunList([tmp_path])
    first = shelf.rows(list_run)[0][0].row.age_s
    time.sleep(0.4)
    later = shelf.rows(list_run)[0][0].row.age_s
    assert first is not None and later is not None and later >= first + 0.3


def test_a_thousand_runs_that_have_ended_cost_milliseconds_to_list_again(tmp_path: Path) -> None:
    """The budget is 300 ms for 5,000; by CPU time, because others work on this machine too."""
    first = made(tmp_path / "project" / "0").path
    files = [path.relative_to(first) for path in first.rglob("*") if path.is_file() and "cache" not in path.parts]
    for number in range(1, 1000):
        for file in files:
            copy = tmp_path / "project" / str(number) / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            os.link(first / file, copy)
    shelf = RunList([tmp_path])
    while shelf.rows(list_run)[1]:
        pass
    began = time.process_time()
    rows, *others = shelf.rows(list_run)
    assert len(rows) == 1000 and others == [0, 0]
    assert time.process_time() - began < 0.12
    assert len(shelf._readers) <= module.OPEN_ENDED, "runs that nobody looks at are closed again"
