"""No link in a run directory is followed, for reading or writing, whichever name on the way it is."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tiltmeter.audit.linked_run import link_run
from tiltmeter.cli import app
from tiltmeter.data.batches import from_columns
from tiltmeter.errors import StoreError
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.atomic_write import publish, sweep
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation
from tiltmeter.rundir.journal import Journal, read_events
from tiltmeter.rundir.maintenance import purge, verify
from tiltmeter.rundir.run_path import UnsafePathError, entries, make_folder, open_file, read_file, run_path
from tiltmeter.rundir.store import RunDirectory

FOLDERS = (
    "events", "rollouts", "rollouts/0", "rollouts/0/unplaced", "rollouts/0/packed", "gold", "gold/requests",
    "gold/labels", "gold/people", "gold/picked", "control", "control/requests", "control/receipts", "cache",
    "cache/trackers", "evals", "pinned", "audits",
)  # fmt: skip


def a_run(path: Path) -> RunDirectory:
    run = RunDirectory.create(path)
    run.open_attempt(launch="$(id > PWNED)", ranks=1, resume_step=None)
    for step in range(3):
        run.write(from_columns(step, [0, 0, 1, 1], reward=[1, 2, 3, 4], completion=["a"] * 4), 0, {})
    run.close_rank(0, 0, {"seen": 3})
    write_evaluation(run, Evaluation(0, 1, "gsm8k", 0.5, 10))
    return run


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home folder whose dot files no run may read, change or delete."""
    home = tmp_path / "home"
    for name in (".bashrc", ".profile", ".ssh/config", "runs/0.jsonl", "labels/0.json"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("secret\n")
    return home


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def invoke(*words: str) -> Any:
    done = CliRunner().invoke(app, words)
    assert "Usage:" not in done.output, "a command line that is no command line refuses everything"
    return done


def test_a_journal_that_is_a_link_is_not_written_to(tmp_path: Path, home: Path) -> None:
    """A shell's start-up file, and text of the sender's choice."""
    run = a_run(tmp_path / "run")
    (run.path / "events" / "0.jsonl").symlink_to(home / ".bashrc")
    before = contents(home)
    for words in (("watch", "--once"), ("watch",), ("show",), ("replay",)):
        result = invoke(words[0], str(run.path), *words[1:])
        assert isinstance(result.exception, StoreError) or result.exit_code == 2, words
    assert contents(home) == before
    with pytest.raises(UnsafePathError, match=r"0\.jsonl cannot be read or written: a symbolic link"):
        MonitorLoop(run, Config.standard()).poll()


def test_gold_requests_that_are_a_link_delete_nothing(tmp_path: Path, home: Path) -> None:
    run = a_run(tmp_path / "run")
    (tmp_path / "gold.py").write_text("def score(prompt, completion, **facts):\n    return 1.0\n")
    (run.path / "gold").mkdir()
    (run.path / "gold" / "requests").symlink_to(home)
    before = contents(home)
    result = invoke("watch", str(run.path), "--once", "--gold", f"{tmp_path / 'gold.py'}:score")
    assert isinstance(result.exception, StoreError) and "gold/requests cannot be read or written" in str(
        result.exception
    )
    assert contents(home) == before


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_that_is_a_link_is_neither_read_nor_written_nor_swept(folder: str, tmp_path: Path, home: Path) -> None:
    """The link leads to what the folder itself held, so that a reader that follows it reads on."""
    run = a_run(tmp_path / "run")
    place = run.path / folder
    outside = home / "runs"
    (outside / ".dot").write_text("secret\n")
    if place.exists():
        shutil.copytree(place, outside, dirs_exist_ok=True)
        shutil.rmtree(place)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(outside)
    before = contents(home)
    (tmp_path / "gold.py").write_text("def score(prompt, completion, **facts):\n    return 1.0\n")
    gold = f"{tmp_path / 'gold.py'}:score"
    verbs = (("watch", "--once"), ("watch", "--once", "--gold", gold), ("show",), ("verify",), ("pack",), ("alarms",),
             ("purge", "--yes"), ("audit", "--keep", str(tmp_path / "audit")))  # fmt: skip
    for words in verbs:
        result = invoke(words[0], str(run.path), *words[1:])
        assert result.exception is None or isinstance(result.exception, (StoreError, SystemExit)), (words, result)
    assert contents(home) == before
    with pytest.raises(UnsafePathError, match="a symbolic link"):
        list(entries(place))
    writes: tuple[Callable[[], object], ...] = (
        lambda: publish(place / "1.json", [b"{}"]),
        lambda: sweep(place),
        lambda: Journal(place),
        lambda: make_folder(run.path, *folder.split("/"), "inner"),
        lambda: open_file(place / "new", os.O_RDWR | os.O_CREAT),
    )
    for write in writes:
        with pytest.raises(UnsafePathError, match="a symbolic link"):
            write()
    assert contents(home) == before


def test_an_audit_reads_the_run_that_it_is_of_and_no_other(tmp_path: Path, home: Path) -> None:
    run = a_run(tmp_path / "run")
    audit = link_run(run, tmp_path / "audit", gold=True)
    assert (tmp_path / "audit" / "rollouts").is_symlink()
    assert [file.step for file in audit.files(0)] == [0, 1, 2] and verify(audit) == []
    assert len(audit.read(audit.files(0)[0])[0]) == 4
    with pytest.raises(UnsafePathError):
        publish(audit.path / "rollouts" / "x.json", [b"{}"])
    with pytest.raises(UnsafePathError):
        sweep(audit.path / "rollouts")
    with pytest.raises(StoreError, match="is an audit of"):
        purge(audit)
    other = RunDirectory.create(tmp_path / "other")
    (other.path / "rollouts").rmdir()
    (other.path / "rollouts").symlink_to(run.path / "rollouts")
    with pytest.raises(UnsafePathError):
        other.attempts()
    with pytest.raises(UnsafePathError):
        link_run(other, tmp_path / "second", gold=True)


def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    run = run_path(tmp_path)
    (run / "evals").mkdir()
    (run / "evals" / "1.json").write_text("{}")
    assert read_file(run / "evals" / "1.json", 10) == b"{}"
    os.chown(run / "evals" / "1.json", 12345, -1)
    with pytest.raises(UnsafePathError, match="belongs to user 12345"):
        read_file(run / "evals" / "1.json", 10)
    os.chown(run, 12345, -1)  # the owner of the directory may write in it
    assert read_file(run / "evals" / "1.json", 10) == b"{}"


def test_a_path_keeps_count_of_what_is_beneath_the_run(tmp_path: Path) -> None:
    path = run_path(tmp_path) / "rollouts" / "0" / "000001-0.parquet"
    assert (path.depth, path.parent.depth, path.with_name("x").depth, path.with_suffix(".x").depth) == (3, 2, 3, 3)
    again = pickle.loads(pickle.dumps(path))  # noqa: S301 - ours
    assert again == path == Path(path) and again.depth == 3
    with pytest.raises(UnsafePathError, match="no name of a file"):
        read_file(run_path(tmp_path) / ".." / "x", 10)


def test_the_run_itself_may_be_named_by_a_link(tmp_path: Path) -> None:
    a_run(tmp_path / "run")
    (tmp_path / "latest").symlink_to(tmp_path / "run")
    run = RunDirectory(tmp_path / "latest")
    loop = MonitorLoop(run, Config.standard())
    assert loop.poll() >= 3
    assert read_events(run.path / "events")
