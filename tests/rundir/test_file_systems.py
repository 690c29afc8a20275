"""File systems that answer otherwise than a local one: the way that works is chosen, or the run is refused at once.

`benchmarks/portable.py` kills writers on each of them.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.data.batches import from_columns
from tiltmeter.errors import AttachError
from tiltmeter.rundir import atomic_write
from tiltmeter.rundir.atomic_write import publish, storage_problem
from tiltmeter.rundir.maintenance import pack, verify
from tiltmeter.rundir.store import RunDirectory

pytestmark = pytest.mark.disk
Simulate = Callable[[pytest.MonkeyPatch], None]


def refusing(number: int) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        raise OSError(number, os.strerror(number))

    return call


def losing(real: Callable[..., Any], number: int) -> Callable[..., Any]:
    """Done, and then an error: as when a server's reply is lost and the client asks again."""

    def call(*arguments: Any, **options: Any) -> Any:
        real(*arguments, **options)
        raise OSError(number, os.strerror(number))

    return call


def no_links(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "link", refusing(errno.EPERM))


def no_links_plain_rename(patch: pytest.MonkeyPatch) -> None:
    no_links(patch)
    patch.setattr(atomic_write, "_rename_new", refusing(errno.EINVAL))


def no_rename(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "rename", refusing(errno.EXDEV))
    patch.setattr(atomic_write, "_rename_new", refusing(errno.EXDEV))


def no_locks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fcntl, "flock", refusing(errno.ENOSYS))


def lost_link(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "link", losing(os.link, errno.EEXIST))


def lost_rename(patch: pytest.MonkeyPatch) -> None:
    no_links_plain_rename(patch)
    patch.setattr(os, "rename", losing(os.rename, errno.ENOENT))


WAYS = (no_links, no_links_plain_rename, no_rename, no_locks, lost_link, lost_rename)


@pytest.mark.parametrize("simulate", WAYS)
def test_a_run_is_kept_whole(simulate: Simulate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch)
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(3):
        run.write(from_columns(step, [0, 0], reward=[1.0, 2.0]), 0, {})
    run.close_rank(attempt, 0, {"seen": 3})
    assert [file.step for file in run.files(0)] == [0, 1, 2] and run.conflicts(0) == []
    assert pack(run) == 3 and verify(run) == []
    names = [path.name for path in (run.path / "rollouts" / "0").rglob(".*")]
    assert names == [], "no dot file stays"


@pytest.mark.parametrize("simulate", WAYS)
def test_a_name_is_given_once(simulate: Simulate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate(monkeypatch)
    publish(tmp_path / "one", [b"first"])
    with pytest.raises(FileExistsError):
        publish(tmp_path / "one", [b"second"])
    assert (tmp_path / "one").read_bytes() == b"first"


def test_where_nothing_names_a_file_the_run_is_refused_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory.create(tmp_path / "run")
    no_links(monkeypatch)
    no_rename(monkeypatch)
    with pytest.raises(AttachError, match="can neither link nor rename files: choose a directory on another one"):
        run.open_attempt(launch="x", ranks=1, resume_step=None)
    with pytest.raises(AttachError, match="can neither link nor rename"):
        open_run(tmp_path / "new", monitor=False)


def test_a_file_system_that_replaces_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(dot: str, name: str, folder: int) -> None:
        os.rename(dot, name, src_dir_fd=folder, dst_dir_fd=folder)

    monkeypatch.setattr(atomic_write, "_link", replace)
    assert "replaces files" in storage_problem(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_attempt_whose_folder_was_made_though_the_reply_was_lost_leaves_a_gap_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory.create(tmp_path / "run")
    real, calls = os.mkdir, []

    def mkdir(*arguments: Any, **options: Any) -> None:
        real(*arguments, **options)
        calls.append(arguments)
        if len(calls) == 1:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "mkdir", mkdir)
    assert run.open_attempt(launch="x", ranks=1, resume_step=None) == 1


def test_a_claim_of_a_writer_that_was_killed_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_links_plain_rename(monkeypatch)
    monkeypatch.setattr(atomic_write, "CLAIM_SECONDS", 0.05)
    (tmp_path / ".one.claim").touch()
    publish(tmp_path / "one", [b"first"])
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


# -- object stores that are mounted -----------------------------------------------------------------------------------

MOUNTINFO = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:50 / {place}/bucket rw,nosuid,nodev shared:9 - fuse.{kind} {kind} rw,user_id=0
41 40 0:51 / {place}/bucket/fast rw - tmpfs tmpfs rw
42 22 0:52 / {place}/with\\040space rw - fuse.{kind} x rw
"""


@pytest.mark.parametrize("kind", ["s3fs", "gcsfuse", "rclone"])
def test_an_object_store_that_is_mounted_is_refused_and_its_address_advised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTINFO.format(place=tmp_path, kind=kind))
    for name in ("bucket/run", "bucket/fast/run", "buckets/run", "with space/run"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(atomic_write, "MOUNTS", mounts)
    names = ("bucket", "buckets", "with space", "bucket/fast")
    refused = {name for name in names if storage_problem(tmp_path / name / "run")}
    assert refused == {"bucket", "with space"}
    with pytest.raises(AttachError, match=f"mounted by {kind}.*s3://"):
        open_run(tmp_path / "bucket" / "new", monitor=False)


def test_other_mounts_by_fuse_are_tried_like_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTINFO.format(place=tmp_path, kind="sshfs"))
    (tmp_path / "bucket").mkdir()
    monkeypatch.setattr(atomic_write, "MOUNTS", mounts)
    assert storage_problem(tmp_path / "bucket") == ""
    monkeypatch.setattr(atomic_write, "MOUNTS", tmp_path / "none")  # where nobody can tell
    assert storage_problem(tmp_path / "bucket") == ""
