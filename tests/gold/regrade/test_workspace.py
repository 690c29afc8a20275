"""Keeping a workspace: hostile folders, bounds, and what comes back is what was kept."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tiltmeter
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.gold import CompletionToLabel
from tiltmeter.gold.regrade.grading import TaskGrader
from tiltmeter.gold.regrade.hostile_folder import read_folder
from tiltmeter.gold.regrade.settings import Regrade
from tiltmeter.gold.regrade.source import RegradeSource, load_regrade, write_settings
from tiltmeter.gold.regrade.task import GradingTask, TaskError, read_task
from tiltmeter.gold.regrade.workspace import (
    MOST_FILES,
    KeptWorkspace,
    diff_workspace,
    load_workspace,
    store_workspace,
)
from tiltmeter.rundir.gate.file_kinds import file_kind
from tiltmeter.rundir.maintenance import purge
from tiltmeter.rundir.store import RunDirectory

SECRET = "the answer is on the host"
BASE = {"src/a.py": b"x = 0\n", "tests/test_a.py": b"def test_a(): pass\n"}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    for path, content in BASE.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


@contextmanager
def everything_else(root: Path, *but: Path) -> Iterator[None]:
    """Nothing beneath a folder is changed, made or removed but in the folders that are named."""

    def seen() -> dict[str, tuple[int, int, int]]:
        paths = (path for path in root.rglob("*") if not any(path.is_relative_to(one) for one in but))
        return {str(path): (path.lstat().st_mtime_ns, path.lstat().st_size, path.lstat().st_mode) for path in paths}

    before = seen()
    yield
    assert seen() == before


def make_hostile(work: Path, host: Path) -> None:
    """Links out, hard links, devices, pipes, sockets, sparse files, odd names, a deep folder."""
    host.write_text(SECRET)
    (work / "src" / "link.py").symlink_to(host)
    (work / "src" / "up.py").symlink_to("../../secret.txt")
    (work / "src" / "folder").symlink_to(host.parent)
    os.link(host, work / "src" / "hard.py")
    os.mkfifo(work / "src" / "pipe.py")
    if os.geteuid() == 0:
        os.mknod(work / "src" / "device.py", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(work / "src" / "s.py"))
    with (work / "src" / "sparse.py").open("wb") as file:
        file.truncate(1 << 40)
    for name in ("a\nb.py", "\x1b[2J.py", "..\udc80.py"):
        (work / "src" / name).write_text("odd")
    deep = work / "src"
    for _ in range(60):
        deep /= "d"
    deep.mkdir(parents=True)
    (deep / "x.py").write_text("deep")
    (work / "src" / "inside.py").symlink_to("a.py")


def test_nothing_of_the_host_is_kept_from_a_hostile_folder(work: Path, tmp_path: Path) -> None:
    make_hostile(work, tmp_path / "secret.txt")
    run = tmp_path / "run"
    run.mkdir()
    with everything_else(tmp_path, run):
        kept = diff_workspace(work, BASE, ["src/**"], ["tests/**"])
        address = store_workspace(run, kept)
    stored = (run / "workspaces" / f"{address}.json").read_text()
    assert SECRET not in stored and "\x1b" not in stored and "\n" not in stored
    assert [str(path.relative_to(run)) for path in run.rglob("*")] == ["workspaces", f"workspaces/{address}.json"]
    assert kept.links == {"src/inside.py": "a.py"} and not kept.files
    assert kept.left_out["a link out of the workspace"] == 3 and kept.left_out["has another name elsewhere"] == 1
    assert kept.left_out["a device, pipe or socket"] >= 2 and kept.left_out["a name that no file should have"] == 3
    assert kept.left_out["too large"] == 1 and kept.left_out["deeper than is looked at"] == 1
    assert "src/sparse.py" in kept.unknown  # it might have been a program: there is no grade


def test_a_workspace_of_a_hundred_thousand_files_ends_soon_and_hides_no_program(work: Path) -> None:
    (work / "src" / "a.py").write_text("x = 1\n")
    (work / "junk").mkdir()
    for number in range(100_000):
        os.close(os.open(work / "junk" / f"{number}", os.O_CREAT | os.O_WRONLY))
    kept = diff_workspace(work, BASE, ["src/**"], ["tests/**"])
    assert kept.files["src/a.py"] == "x = 1\n" and not kept.unknown
    assert len(kept.files) == MOST_FILES and len(json.dumps(kept.left_out)) < 500
    assert kept.removed == ()
    crowded = diff_workspace(work, BASE, ["**"], ["tests/**"])
    assert crowded.unknown  # of what counts, not all was seen


def test_a_restored_workspace_leaves_nothing_outside_of_its_sandbox(work: Path, tmp_path: Path) -> None:
    task = GradingTask(BASE, ("tests",), cases=(("src.a:f", (1,), 1),))
    escape = (
        "import os, pathlib, socket\n"
        f"for place in ({str(tmp_path)!r}, '/etc', '/usr', '/py', '/packages', '/var/tmp', '/home', '/root'):\n"
        "    try:\n        pathlib.Path(place, 'left-by-the-agent').write_text('x')\n"
        "    except OSError:\n        pass\n"
        f"def f(x):\n    return 1 if not os.path.exists({str(tmp_path)!r}) else 2\n"
    )
    links = {"src/up": "../..", "src/abs": "/etc"}
    with everything_else(tmp_path):
        grade = TaskGrader(task).grade(KeptWorkspace(files={"src/a.py": escape}, links=links))
    assert grade.value == 1.0, grade
    for place in ("/etc", "/usr", "/var/tmp", "/home", "/root"):
        assert not Path(place, "left-by-the-agent").exists()


def test_what_was_kept_comes_back_and_nothing_else_does(tmp_path: Path) -> None:
    kept = KeptWorkspace("", {"src/a.py": "é"}, {"src/b": "AP8="}, {"src/c": "a.py"}, ("src/d",))
    address = store_workspace(tmp_path, kept)
    assert load_workspace(tmp_path, address) == kept and store_workspace(tmp_path, kept) == address
    path = tmp_path / "workspaces" / f"{address}.json"
    assert file_kind(f"workspaces/{path.name}") is not None
    for bad in ("../run", "a" * 63, "Z" * 64, address[:-1] + "/"):
        with pytest.raises(StoreError):
            load_workspace(tmp_path, bad)
    path.write_text(path.read_text().replace("a.py", "b.py"))
    with pytest.raises(StoreError, match="not what its name says"):
        load_workspace(tmp_path, address)
    evil = json.dumps({"files": {"../../x": "y"}}).encode()
    name = hashlib.sha256(evil).hexdigest()
    (tmp_path / "workspaces" / f"{name}.json").write_bytes(evil)
    with pytest.raises(StoreError, match="leads out"):
        load_workspace(tmp_path, name)


def test_purge_removes_workspaces_and_nothing_that_is_not_ours(tmp_path: Path) -> None:
    with tiltmeter.open_run(tmp_path / "run", monitor=False) as run:
        (tmp_path / "w").mkdir()
        artifacts = tiltmeter.keep_workspace(tmp_path / "w")
        run.observe(step=0, group=[0], reward=[1.0], completion=["x"], artifacts=[artifacts])
    mine = tmp_path / "run" / "workspaces" / "mine.txt"
    mine.write_text("a person's")
    assert purge(RunDirectory(tmp_path / "run"), before=1) and (tmp_path / "run" / "workspaces").exists()
    purge(RunDirectory(tmp_path / "run"))
    assert [path.name for path in mine.parent.iterdir()] == ["mine.txt"]


def test_a_source_reads_its_settings_and_grades_what_a_run_kept(work: Path, tmp_path: Path) -> None:
    cases = {"one": [("src.a:f", (2,), 4)], "two": [("src.a:f", (2,), 5)]}
    settings = Regrade(base=str(tmp_path / "tasks" / "{task}"), cases=cases)
    for name in cases:
        read = tmp_path / "tasks" / name
        (read / "src").mkdir(parents=True)
        (read / "src" / "a.py").write_text("")
    source = load_regrade(write_settings(tmp_path, settings))
    assert source.settings == settings and source.identity == RegradeSource(settings).identity
    source.directory = tmp_path
    (work / "src" / "a.py").write_text("def f(x): return 4\n")
    keeper_base = tmp_path / "tasks" / "one"
    address = tiltmeter.keep_workspace(work, base=keeper_base, directory=tmp_path)
    rows = [{"task": "one"}, {"task": "two"}, {"task": "../one"}, {}]
    asked = [
        CompletionToLabel(f"0-0-{at}", 0, 0, at, "slope", "p", "c", {"artifacts": json.dumps(address), **row})
        for at, row in enumerate(rows)
    ]
    asked.append(CompletionToLabel("0-0-9", 0, 0, 9, "slope", "p", "c", {}))
    labels = source.label(asked)
    assert labels[:2] == [1.0, 0.0] and all(isinstance(one, LookupError) for one in labels[2:])


def test_a_harbor_folder_is_read_by_its_copy_lines(tmp_path: Path) -> None:
    for path, text in {
        "task.toml": "",
        "environment/Dockerfile": "WORKDIR /app\nCOPY src/ /app/src/\nCOPY a.txt .\nCOPY b.txt /etc/b\n",
        "environment/src/a.py": "x = 1", "environment/a.txt": "a", "environment/b.txt": "b",
        "tests/test_a.py": "def test_a(): pass",
    }.items():  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    task = read_task(Regrade(base=str(tmp_path), allow=["**"]))
    assert sorted(task.tree) == ["a.txt", "src/a.py", "tests/test_a.py"] and task.test_files == ("tests/test_a.py",)


def test_what_cannot_be_graded_is_said_when_the_run_opens(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    with pytest.raises(AttachError, match=r"no test_\*.py"):
        tiltmeter.open_run(tmp_path / "run", gold=Regrade(base=str(tmp_path / "repo")), monitor=False)
    assert not (tmp_path / "run").exists()
    with pytest.raises(AttachError, match="plain values"):
        Regrade(cases=[("a:f", (object(),), 1)]).cases_of("")
    with pytest.raises(AttachError, match="list of texts"):
        Regrade(allow="src/**")
    with pytest.raises(TaskError):
        read_task(Regrade(base=str(tmp_path / "none")))
    assert read_folder(tmp_path).files == {}
