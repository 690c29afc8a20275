"""`tiltmeter doctor` on a run: each thing that can be wrong is made wrong, and is named with its fix."""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tiltmeter
from tiltmeter import cli
from tiltmeter.adapters.tried_versions import version_note
from tiltmeter.cli import doctor
from tiltmeter.monitor.process import monitor_lock
from tiltmeter.rundir.store import RunDirectory


@pytest.fixture(autouse=True)
def no_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The installation is another test's."""
    monkeypatch.setattr(doctor, "check_machine", lambda directory, imports=False: iter(()))


def record(folder: Path, steps: int = 3, settings: dict[str, Any] | None = None, gold: bool = True) -> RunDirectory:
    with tiltmeter.open_run(folder, monitor=False, settings=settings) as run:
        for step in range(steps):
            columns: dict[str, Any] = {"gold": [1.0, 0.0]} if gold else {}
            run.observe(step=step, group=[0, 0], reward=[1.0, 0.0], completion=["yes", "no"], **columns)
    return RunDirectory(folder)


def measure(run: RunDirectory, *more: str) -> None:
    CliRunner().invoke(cli.app, ["watch", str(run.path), "--plain", *more])


def check(path: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    result = CliRunner().invoke(cli.app, ["doctor", str(path), "--json"])
    return result.exit_code, {row["what"]: row for row in json.loads(result.stdout)["checks"]}


def test_a_sound_run_has_no_problem(tmp_path: Path) -> None:
    run = record(tmp_path / "run", settings={"package": "trl 1.16.0"})
    measure(run)
    code, rows = check(tmp_path / "run")
    assert code == 0, rows
    assert {"run", "monitor", "gold", "readings", "room", "clock", "trainer", "page"} <= set(rows)
    assert all(row["fix"] for row in rows.values() if not row["ok"]) and rows["gold"]["found"].startswith("6 gold")
    assert rows["trainer"]["ok"] and "which was tried" in rows["trainer"]["found"]
    assert not rows["readings"]["ok"] and "tokens" in rows["readings"]["found"]  # and that is no problem


def test_what_is_no_run_ends_the_checks_with_the_fix(tmp_path: Path) -> None:
    code, rows = check(tmp_path / "nowhere")
    assert code == 2 and set(rows) == {"run"} and "does not exist" in rows["run"]["found"] and rows["run"]["fix"]


def test_steps_that_nobody_measures_and_a_monitor_that_is_at_work(tmp_path: Path) -> None:
    run = record(tmp_path / "run")
    code, rows = check(run.path)
    assert code == 2 and not rows["monitor"]["ok"] and rows["monitor"]["fix"] == f"tiltmeter watch {run.path}"
    shown = CliRunner().invoke(cli.app, ["show", str(run.path), "--plain"]).stdout
    assert "no monitor is measuring the run" in shown
    with monitor_lock(run):
        code, rows = check(run.path)
        assert rows["monitor"]["ok"] and rows["monitor"]["found"].startswith("it is measuring")
        shown = CliRunner().invoke(cli.app, ["show", str(run.path), "--plain"]).stdout
        assert "its monitor is measuring" in shown and "wait, and ask again" in shown


def test_no_gold_is_a_problem_and_gold_that_fails_says_why(tmp_path: Path) -> None:
    run = record(tmp_path / "run", gold=False)
    measure(run)
    code, rows = check(run.path)
    assert code == 2 and rows["gold"]["found"] == "none" and "gold=" in rows["gold"]["fix"]
    (tmp_path / "checks.py").write_text("def score(completion):\n    raise KeyError('the table is gone')\n")
    run = record(tmp_path / "other", gold=False)
    measure(run, "--gold", f"{tmp_path / 'checks.py'}:score")
    code, rows = check(run.path)
    assert code == 2 and "the table is gone" in rows["gold"]["found"] and "monitor.log" in rows["gold"]["fix"]


def test_a_full_disk_a_wrong_clock_and_a_trainer_that_was_not_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tiltmeter.open_run(tmp_path / "run", monitor=False, settings={"package": "trl 9.9.9"})
    store.observe(step=0, group=[0, 0], reward=[1.0, 0.0], completion=["yes", "no"])
    deadline = time.monotonic() + 30
    run = RunDirectory(tmp_path / "run")
    while not run.files(0, []) and time.monotonic() < deadline:
        time.sleep(0.05)
    later = time.time() + 3_600
    os.utime(run.files(0, [])[0].path, (later, later))
    usage = type("Usage", (), {"free": 10_000_000, "used": 0, "total": 0})
    monkeypatch.setattr("tiltmeter.cli.doctor_run.shutil.disk_usage", lambda path: usage)
    code, rows = check(run.path)
    assert code == 2 and not rows["room"]["ok"] and "pack" in rows["room"]["fix"]
    assert not rows["clock"]["ok"] and "s in the future" in rows["clock"]["found"]
    assert not rows["trainer"]["ok"] and "9.9.9 was not tried" in rows["trainer"]["found"]
    store.close()


def test_versions_are_looked_up_and_nothing_is_imported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "costly_one.py").write_text("raise ImportError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doctor, "lowest_versions", lambda: {"numpy": "99.0", "rich": "1.0"})
    problems = doctor.version_problems(["numpy", "rich", "costly_one", "no_such_one"])
    assert problems["numpy"].endswith("and 99.0 is the lowest that works") and problems["rich"] == ""
    assert problems["costly_one"] == "" and "costly_one" not in sys.modules
    assert problems["no_such_one"] == "not installed"


def test_the_lowest_versions_are_those_of_the_package() -> None:
    try:
        importlib.metadata.requires("tiltmeter")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("this checkout is not installed")
    lowest = doctor.lowest_versions()
    assert lowest["numpy"] == "2.0" and lowest["trl"] == "0.29" and lowest["mcp"] == "2.3"


def test_the_storage_of_a_folder_is_tried(tmp_path: Path) -> None:
    row = doctor.storage_row(tmp_path)
    assert row["ok"] and "locks work" in str(row["found"]) and not list(tmp_path.iterdir())


def test_a_version_that_was_not_tried_is_said_with_what_follows() -> None:
    assert version_note("verl", "0.9.1") == "" and version_note("numpy", "1") == ""
    assert "was not tried" in version_note("verl", "0.12.0")
