"""Runs on object storage: one contract over three stores, one writer, nothing lost, torn or twice, and outages."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.command_line import tiltmeter as command
from tests.rundir.remote.stores import BUCKET, FaultyFolder, disk, memory, s3_server
from tests.sizes import size

import tiltmeter
from tiltmeter.data.batches import from_columns
from tiltmeter.errors import AttachError, StoreError
from tiltmeter.rundir.gate.file_kinds import file_kind
from tiltmeter.rundir.journal import Event, Journal, read_events
from tiltmeter.rundir.remote import upload_thread
from tiltmeter.rundir.remote.address import parse_address, spool_path
from tiltmeter.rundir.remote.copy import fetch, fetch_copy
from tiltmeter.rundir.remote.follow_store import StoreFollower, find_runs
from tiltmeter.rundir.remote.mirror import read_mirror, write_mirror
from tiltmeter.rundir.remote.objects import DiskFolder, ObjectFolder, conditional_problem, open_objects
from tiltmeter.rundir.remote.segments import Segment
from tiltmeter.rundir.remote.upload import Uploader, local_crc
from tiltmeter.rundir.remote.upload_thread import keep_uploaded
from tiltmeter.rundir.remote.writer_lease import JournalSpan, LeaseLostError, WriterLease, read_head
from tiltmeter.rundir.run_path import make_folder
from tiltmeter.rundir.store import RunDirectory


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server() as address:
        yield address


@pytest.fixture(params=["disk", "memory", "s3"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectFolder:
    if request.param == "s3":
        request.getfixturevalue("endpoint")
        return open_objects(f"s3://{BUCKET}/{tmp_path.name}")
    return {"disk": disk, "memory": memory}[request.param](tmp_path)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of its own, with a store beside it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def run_of(path: Path, steps: int = 3) -> RunDirectory:
    run = RunDirectory.create(path)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    book = Journal(run.path / "events")
    facts: dict[str, Any] = {"state": "open", "facts": {"parent": None}, "config": "c", "detectors": [], "gold": None}
    book.commit([Event("attempt", 0, -1, facts, "attempt|0|open")])
    book.close()
    for step in range(steps):
        add_step(run, step)
    return run


def add_step(run: RunDirectory, step: int, attempt: int = 0) -> None:
    batch = from_columns(step, [0, 0], reward=[float(step), 0.0], completion=["a" * 100, "b"])
    run.write(replace(batch, attempt=attempt), 0, {})
    done = {"ranks": [[0, 0]], "sha256": "", "missing": [], "unreadable": [], "rows": 2, "seen": 1, "lost": {}}
    book = Journal(run.path / "events", len(read_events(run.path / "events")))
    book.commit([Event("step_done", attempt, step, done, f"step_done|{attempt}|{step}")])
    book.close()


def contents(path: Path) -> dict[str, bytes]:
    """Everything of a run that a mirror must have."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file() and not file.name.startswith(".") and "cache" not in file.relative_to(path).parts
    }


def start(run: RunDirectory, folder: ObjectFolder, owner: str = "one") -> Uploader:
    lease = WriterLease(folder, owner)
    lease.take(patience=0.0)
    uploader = Uploader(run, folder, lease)
    uploader.note_journal()
    return uploader


# -- the contract of a store ------------------------------------------------------------------------------------------


def test_an_object_is_made_once_and_a_second_try_of_the_same_is_no_error(folder: ObjectFolder) -> None:
    assert folder.read("a/b") is None
    assert folder.create("a/b", b"one") and folder.create("a/b", b"one")
    assert not folder.create("a/b", b"two")
    assert folder.read("a/b") is not None and (folder.read("a/b") or (b"", ""))[0] == b"one"


def test_an_object_is_replaced_only_while_it_is_the_one_that_was_read(folder: ObjectFolder) -> None:
    first = folder.swap("head", b"1", None)
    assert first is not None and folder.swap("head", b"2", None) is None
    second = folder.swap("head", b"2", first)
    assert second is not None and second != first
    assert folder.swap("head", b"3", first) is None
    assert folder.swap("head", b"2", first) in (None, second)  # the reply to this was lost
    assert (folder.read("head") or (b"", ""))[0] == b"2"


def test_objects_are_listed_with_size_and_time_and_can_be_replaced(folder: ObjectFolder) -> None:
    for key in ("run.json", "rollouts/0/000001-0.parquet"):
        folder.create(key, b"123")
    folder.replace("run.json", b"12345")
    listed = {one.key: one for one in folder.list()}
    assert {key: one.size for key, one in listed.items()} == {"run.json": 5, "rollouts/0/000001-0.parquet": 3}
    assert all(abs(one.time - time.time()) < 300 for one in listed.values())


def test_objects_below_a_prefix_are_listed_and_one_can_be_deleted_twice(folder: ObjectFolder) -> None:
    for key in ("inbox/a/1.json", "inbox/b.json", "inboxes/c.json"):
        folder.create(key, b"{}")
    assert [one.key for one in folder.list("inbox/")] == ["inbox/a/1.json", "inbox/b.json"]
    for _ in range(2):
        folder.delete("inbox/b.json")
    assert [one.key for one in folder.list("inbox/")] == ["inbox/a/1.json"]
    assert list(folder.list("nothing/")) == []


def test_a_run_is_mirrored_and_its_copy_is_the_same_to_the_byte(folder: ObjectFolder, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    uploader = start(run, folder)
    uploader.cycle()
    add_step(run, 3)
    uploader.cycle()
    fetch(folder, tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(run.path)
    add_step(run, 4)
    uploader.cycle()
    fetch(folder, tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(run.path)
    assert uploader.waiting == 0


def test_a_store_that_ignores_conditions_is_refused(folder: ObjectFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    assert conditional_problem(folder) == "" == conditional_problem(folder)
    kind = type(folder)
    with monkeypatch.context() as patch:
        patch.setattr(kind, "create", lambda self, key, data: self.replace(key, data) is None)
        assert "If-None-Match" in conditional_problem(folder)
    folder.replace("probe", b"first")
    monkeypatch.setattr(kind, "swap", lambda self, key, data, tag: self.replace(key, data) or "new")
    assert "If-Match" in conditional_problem(folder)
    assert file_kind("probe") is None


def test_of_a_large_run_a_reader_may_fetch_the_newest_rollouts_only(tmp_path: Path) -> None:
    run, folder = run_of(tmp_path / "run", 9), disk(tmp_path)
    start(run, folder).cycle()
    for steps, expected in ((0, 0), (3, 3), (99, 9), (None, 9)):
        target = tmp_path / f"copy-{steps}"
        fetch(folder, target, steps=steps)
        assert len(list(target.rglob("*.parquet"))) == expected
        assert (target / "events" / "0.jsonl").read_bytes() == (run.path / "events" / "0.jsonl").read_bytes()
    fetch(folder, tmp_path / "copy-3")  # another verb needs the rest
    assert contents(tmp_path / "copy-3") == contents(run.path)


# -- one writer -------------------------------------------------------------------------------------------------------


def test_of_two_writers_the_one_that_was_overtaken_commits_nothing(folder: ObjectFolder) -> None:
    old, new = WriterLease(folder, "old"), WriterLease(folder, "new")
    assert old.take().fence == 1
    old.commit({"0": JournalSpan(10, 1)})
    assert new.take(wait=lambda _: None, patience=0.0).fence == 2  # the old one stood still
    changes: list[Callable[[], None]] = [lambda: old.commit({"0": JournalSpan(20, 2)}), old.renew, old.release]
    for change in changes:
        old._renewed_at = -1e9
        with pytest.raises(LeaseLostError):
            change()
    new.commit({"0": JournalSpan(15, 3)})
    assert read_head(folder)[0].journal == {"0": JournalSpan(15, 3)}


def test_a_writer_that_is_alive_keeps_others_out_and_a_released_lease_is_free_at_once(tmp_path: Path) -> None:
    folder = disk(tmp_path)
    holder = WriterLease(folder, "holder")
    holder.take()

    def alive(_: float) -> None:
        holder._renewed_at = -1e9
        holder.renew()

    with pytest.raises(AttachError, match="another machine is writing"):
        WriterLease(folder, "other").take(wait=alive, patience=60.0)
    holder.release()
    began = time.monotonic()
    WriterLease(folder, "other").take()
    assert time.monotonic() - began < 1.0


def test_what_an_overtaken_writer_still_uploads_is_never_part_of_the_journal(tmp_path: Path) -> None:
    folder, old_run = disk(tmp_path), run_of(tmp_path / "old", 2)
    old = start(old_run, folder, "old")
    old.cycle()
    head = fetch(folder, tmp_path / "new")
    add_step(old_run, 2)  # measured, and then this machine stands still
    new_run = RunDirectory(tmp_path / "new")
    new = start(new_run, folder, "new")
    with pytest.raises(LeaseLostError):
        old.cycle()
    stray = Segment("0", head.journal["0"].bytes, old._lease.head.fence)
    assert folder.read(stray.key) is not None  # the segment was there before the head refused it
    new_run.open_attempt(launch="y", ranks=1, resume_step=2)
    add_step(new_run, 2)
    new.cycle()
    fetch(folder, tmp_path / "copy")
    assert (tmp_path / "copy" / "events" / "0.jsonl").read_bytes() == (new_run.path / "events" / "0.jsonl").read_bytes()
    events = read_events(tmp_path / "copy" / "events")
    assert len({event.id for event in events}) == len(events)


# -- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["before", "after"])
def test_whichever_call_fails_or_loses_its_reply_nothing_is_lost_torn_or_twice(way: str, tmp_path: Path) -> None:
    def rounds(folder: FaultyFolder, path: Path) -> None:
        """Three rounds of steps and uploads; after a failure a new uploader goes on, as after a kill."""
        run, uploader = run_of(path), None
        for step in range(3, 6):
            add_step(run, step)
            for _ in range(4):
                try:
                    uploader = uploader or start(run, folder)
                    uploader.cycle()
                    break
                except OSError:
                    uploader = None if step % 2 else uploader  # killed, or an outage that it lives through
        fetch(folder.inner, path.with_name(f"{path.name}-copy"))
        assert contents(path.with_name(f"{path.name}-copy")) == contents(path)

    whole = FaultyFolder(memory(tmp_path))
    rounds(whole, tmp_path / "whole")
    calls = whole.calls
    for number in range(1, calls, size(4, 1)):
        faulty = FaultyFolder(memory(tmp_path))
        faulty.fails = lambda call, number=number: way if call == number else ""  # type: ignore[misc]
        rounds(faulty, tmp_path / f"{way}-{number}")
        assert faulty.calls >= calls
    assert calls > 15


def test_a_copy_refuses_a_journal_with_a_gap_or_with_other_bytes(tmp_path: Path) -> None:
    folder = DiskFolder(tmp_path / "store")
    uploader = start(run_of(tmp_path / "run"), folder)
    uploader.cycle()
    (segment,) = (tmp_path / "store" / "events" / "0").iterdir()
    good = segment.read_bytes()
    segment.write_bytes(good.replace(b"step_done", b"step_dine"))
    with pytest.raises(StoreError, match="not what the head says"):
        fetch(folder, tmp_path / "copy")
    segment.unlink()
    with pytest.raises(StoreError, match="gap"):
        fetch(folder, tmp_path / "copy2")


def test_through_an_outage_all_waits_and_beyond_the_bound_measured_rollouts_go_and_are_counted(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", 4)
    folder = FaultyFolder(disk(tmp_path))
    uploader = start(run, folder)
    uploader.cycle()
    folder.fails = lambda _: "before"
    for step in range(4, 10):
        add_step(run, step)
        uploader._lease._renewed_at = -1e9
        with pytest.raises(OSError, match="503"):
            uploader.cycle()
    assert uploader.waiting == 6 and uploader.lost == 0
    uploader._note_steps((run.path / "events" / "0.jsonl").read_bytes())
    uploader.bound = 3 * max(file.stat().st_size for file in run.path.rglob("*-0.parquet"))
    with pytest.raises(OSError, match="503"):
        uploader.cycle()
    left = sorted(file.name for file in run.path.rglob("*-0.parquet"))
    assert left[-1] == "000009-0.parquet" and len(left) <= 3 and uploader.lost >= 3
    assert any("spool is full" in why for why in run.troubles(0).values())
    folder.fails = lambda _: ""
    uploader.cycle()
    assert read_head(folder)[0].lost_files == uploader.lost
    fetch(folder, tmp_path / "copy")
    copied = RunDirectory(tmp_path / "copy")
    assert [file.step for file in copied.files(0)] == [0, 1, 2, 3, *(int(name[:6]) for name in left)]
    assert read_events(copied.path / "events")[-1].step == 9


def test_an_unmeasured_step_is_never_removed(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", 2)
    uploader = start(run, disk(tmp_path))
    uploader.bound = 0
    run.write(from_columns(2, [0], reward=[1.0]), 0, {})
    uploader.cycle()
    uploader.cycle()
    assert {file.name for file in run.path.rglob("*-0.parquet")} == {"000001-0.parquet", "000002-0.parquet"}
    assert uploader.lost == 0


# -- attach, resume, read ---------------------------------------------------------------------------------------------


def test_open_run_writes_a_spool_that_the_monitors_thread_mirrors(place: Path, unmeasured: None) -> None:
    address = f"file://{place}/store/tonight"
    with tiltmeter.open_run(address) as run:
        for step in range(3):
            run.observe(step=step, group=[0, 0], reward=[0, 1], completion=["a", "b"])
    assert run.directory == spool_path(address) and read_mirror(spool_path(address)) is not None
    spool = RunDirectory(spool_path(address))
    with keep_uploaded(spool):
        pass
    tables = tiltmeter.read(address)
    assert tables.name == "tonight" and len(tables.rollouts()) == 6
    assert read_head(open_objects(address))[0].owner == ""


def test_another_machine_goes_on_with_the_run_and_the_first_one_sets_its_spool_aside(
    place: Path, unmeasured: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"file://{place}/store/tonight"

    def train(machine: str, step: int) -> RunDirectory:
        monkeypatch.setenv("XDG_STATE_HOME", str(place / machine))
        with tiltmeter.open_run(address) as run:
            run.observe(step=step, group=[0], reward=[1])
        spool = RunDirectory(spool_path(address))
        add_step(spool, step + 100, attempt=run.attempt)
        with keep_uploaded(spool):
            pass
        return spool

    first, second = train("one", 0), train("two", 1)
    assert second.attempts() == [0, 1] and first.attempts() == [0]
    third = train("one", 2)
    assert third.attempts() == [0, 1, 2]
    assert [path.name[:14] for path in third.path.parent.iterdir() if "-aside-" in path.name] == ["tonight-aside-"]
    assert len(tiltmeter.read(address).rollouts()) == 3 + 6


def test_verbs_take_an_address_and_nothing_is_written_into_a_copy(place: Path) -> None:
    address = f"file://{place}/store/tonight"
    uploader = start(run_of(place / "run"), open_objects(address))
    uploader.cycle()
    here, there = (command("show", where, "--json") for where in (place / "run", address))
    assert here.returncode == there.returncode == 2
    assert json.loads(here.stdout)["state"] == json.loads(there.stdout)["state"]
    copy = RunDirectory(fetch_copy(address))
    with pytest.raises(OSError, match="only read"):
        make_folder(copy.path, "control")
    watched = command("watch", address, "--once")
    assert watched.returncode == 2 and "only read" in watched.stderr
    nothing = command("show", f"file://{place}/store/none")
    assert nothing.returncode == 2 and "no run" in nothing.stderr


def test_upload_sends_what_is_left_and_says_what_is_not(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"file://{place}/store/tonight"
    run = run_of(spool_path(address))
    refused = command("upload", run.path)
    assert refused.returncode == 2 and "has no mirror" in refused.stderr
    write_mirror(run.path, address, "here")
    monkeypatch.setattr("tiltmeter.rundir.remote.upload_thread.LAST_PAUSE", 0.01)
    monkeypatch.setattr(DiskFolder, "create", FaultyFolder(DiskFolder(place)).create)
    monkeypatch.setattr(FaultyFolder, "_do", _refuse)
    away = command("upload", address, "--minutes", "0")
    assert away.returncode == 2 and "not there yet" in away.stdout, away
    monkeypatch.undo()
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))
    sent = command("upload", address)
    assert sent.returncode == 0 and "all is there" in sent.stdout
    assert contents(fetch_copy(address)) == contents(run.path)


def test_a_store_that_loses_objects_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = DiskFolder.create
    lossy = lambda self, key, data: True if key.endswith("000001-0.parquet") else real(self, key, data)  # noqa: E731
    monkeypatch.setattr(DiskFolder, "create", lossy)
    run = run_of(tmp_path / "run")
    start(run, disk(tmp_path)).cycle()
    fetch(disk(tmp_path), tmp_path / "copy")
    assert contents(tmp_path / "copy") != contents(run.path)


def _refuse(*_: Any) -> None:
    raise OSError("503 slow down")


def test_the_thread_of_the_monitor_says_when_it_is_overtaken(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_thread, "CYCLE_SECONDS", 0.05)
    address = f"file://{place}/store/tonight"
    run = run_of(place / "run")
    write_mirror(run.path, address, "here")
    with keep_uploaded(run):
        _until(lambda: read_head(open_objects(address))[0].journal)
        WriterLease(open_objects(address), "there").take(wait=lambda _: None, patience=0.0)
        add_step(run, 3)
        _until(lambda: run.troubles(0))
    assert any("another writer has taken over" in why for why in run.troubles(0).values())


def test_a_trainer_that_starts_again_on_the_same_machine_does_not_end_the_mirror(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_thread, "CYCLE_SECONDS", 0.05)
    address = f"file://{place}/store/tonight"
    run = run_of(place / "run")
    write_mirror(run.path, address, "here")
    with keep_uploaded(run):
        _until(lambda: read_head(open_objects(address))[0].journal)
        WriterLease(open_objects(address), "here").take()
        add_step(run, 3)
    assert contents(fetch_copy(address)) == contents(run.path) and not run.troubles(0)


def test_a_damaged_record_of_the_mirror_keeps_nobody_from_measuring(place: Path) -> None:
    run = run_of(place / "run")
    write_mirror(run.path, f"file://{place}/store", "here")
    (record,) = (place / "state" / "tiltmeter" / "mirrors").iterdir()
    record.write_text("{")
    with keep_uploaded(run):
        pass
    assert any("not mirrored" in why for why in run.troubles(0).values())


def test_addresses_and_captured_runs(place: Path) -> None:
    assert parse_address("C/s3/x") is None and parse_address("s3://b/x/") == parse_address(Path("s3://b/x"))
    with pytest.raises(AttachError, match="captured runs"):
        tiltmeter.capture.open("s3://bucket/x")
    assert local_crc(place, "0", 0) == 0


def _until(ready: Any, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# -- many runs below an address ---------------------------------------------------------------------------------------


def test_runs_below_an_address_are_copied_and_their_rollouts_once_somebody_looks(
    folder: ObjectFolder, place: Path, request: pytest.FixtureRequest
) -> None:
    """By the disk and by S3: a store in memory has no address."""
    if "memory" in request.node.name:
        assert folder.names_below("") == ([], [])
        return
    root = f"s3://{BUCKET}/{place.name}" if "s3" in request.node.name else f"file://{place}/bucket"
    for name in ("a", "project/b"):
        run = run_of(place / "machine" / name)
        start(run, open_objects(f"{root}/{name}")).cycle()
    assert sorted(find_runs(root)) == [f"{root}/a", f"{root}/project/b"]
    follower = StoreFollower([root])
    follower.look()
    assert sorted(follower.copies.values()) == [f"{root}/a", f"{root}/project/b"]
    path = next(path for path, address in follower.copies.items() if address.endswith("/a"))
    assert not list(path.rglob("*.parquet")) and read_events(path / "events")
    follower.complete(path)
    assert contents(path) == contents(place / "machine" / "a")
    others = [one for one in follower.copies if one != path]
    assert not list(others[0].rglob("*.parquet"))
