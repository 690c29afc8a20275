"""Stores and directories from somebody else: what is in them leads nowhere, deletes nothing and fills no memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from tests.rundir.remote.stores import BUCKET, s3_server
from tests.rundir.remote.test_remote import contents, run_of, start

from tiltmeter.errors import StoreError
from tiltmeter.rundir.atomic_write import sweep
from tiltmeter.rundir.gate.file_kinds import file_kind
from tiltmeter.rundir.remote.copy import fetch, fetch_copy
from tiltmeter.rundir.remote.follow_store import StoreFollower, find_runs
from tiltmeter.rundir.remote.mirror import read_mirror, write_mirror
from tiltmeter.rundir.remote.objects import DiskFolder, open_objects
from tiltmeter.rundir.remote.upload_thread import keep_uploaded
from tiltmeter.rundir.run_path import UnsafePathError, run_path, split_key
from tiltmeter.rundir.store import RunDirectory


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with documents in its home folder, and a store beside it."""
    for name in ("home", "state", "cache"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    docs = tmp_path / "home" / "docs" / "thesis"
    docs.mkdir(parents=True)
    (docs / "main.tex").write_text("years of work")
    (docs / "data.jsonl").write_text('{"a": 1}\n')
    return tmp_path


@pytest.fixture
def mirrored(place: Path) -> tuple[RunDirectory, Path]:
    """A run and its mirror in a folder."""
    run = run_of(place / "run")
    start(run, DiskFolder(place / "store")).cycle()
    return run, place / "store"


def documents(place: Path) -> dict[str, bytes]:
    return contents(place / "home")


def test_a_received_directory_does_not_say_where_it_is_mirrored_to(place: Path) -> None:
    run = run_of(place / "received")
    target = place / "home" / "site-packages"
    (run.path / ".mirror.json").write_text(json.dumps({"address": f"file://{target}", "owner": "x"}))
    (run.path / "usercustomize.py").write_text("raise SystemExit")
    before = documents(place)
    assert read_mirror(run.path) is None
    with keep_uploaded(run):
        pass
    assert documents(place) == before and not target.exists()


def test_the_record_of_a_mirror_is_of_one_run_at_one_place(place: Path) -> None:
    run, address = run_of(place / "run"), f"file://{place}/store"
    write_mirror(run.path, address, "here")
    assert (read_mirror(run.path) or pytest.fail("no mirror")).address == address
    run.path.rename(place / "moved")
    assert read_mirror(place / "moved") is None
    other = run_of(place / "run")  # another run where the first one was
    with pytest.raises(StoreError, match="not the run that was mirrored"):
        read_mirror(other.path)


def test_files_that_no_run_has_are_not_uploaded(mirrored: tuple[RunDirectory, Path]) -> None:
    run, store = mirrored
    (run.path / "usercustomize.py").write_text("")
    (run.path / "gold").mkdir()
    (run.path / "gold" / "notes.txt").write_text("")
    start(run, DiskFolder(store)).cycle()
    assert not list(store.rglob("*customize*")) and not list(store.rglob("notes.txt"))


@pytest.mark.parametrize("name", ["inbox", "events", "rollouts", "gold"])
def test_a_link_in_a_shared_folder_leads_nowhere(name: str, mirrored: tuple[RunDirectory, Path], place: Path) -> None:
    run, store = mirrored
    if (store / name).exists():
        (store / name).rename(place / f"old-{name}")
    (store / name).symlink_to(place / "home" / "docs")
    before = documents(place)
    folder = DiskFolder(store)
    assert not [one.key for one in folder.list() if one.key.startswith(name)]
    for use in (folder.read, folder.delete):
        with pytest.raises(UnsafePathError):
            use(f"{name}/thesis/main.tex")
    with suppress(StoreError, OSError):  # of a journal or rollouts that lead elsewhere
        start(run, folder).cycle()
        fetch(folder, place / "copy")
    assert documents(place) == before
    if name == "inbox":
        assert any("inbox is not read" in why for why in run.troubles(0).values())


def forge_head(store: Path, change: Callable[[dict[str, object]], object]) -> None:
    head = json.loads((store / "head.json").read_bytes())
    change(head)
    (store / "head.json").write_text(json.dumps(head))


@pytest.mark.parametrize("span", [{"bytes": 0, "crc": 0}, {"bytes": 10**15, "crc": 1}])
@pytest.mark.parametrize("name", ["{home}/docs/thesis/data", "../../home/docs/thesis/data", "0/../../x", "0\n", ""])
def test_a_head_names_no_file_of_the_reader(
    name: str, span: dict[str, int], mirrored: tuple[RunDirectory, Path], place: Path
) -> None:
    _, store = mirrored
    before = documents(place)
    forge_head(store, lambda head: head["journal"].update({name.format(home=place / "home"): span}))  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match=r"head\.json cannot be read"):
        fetch_copy(f"file://{store}")
    assert documents(place) == before


def test_names_that_lead_elsewhere_are_no_names_of_a_run() -> None:
    bad = (
        *("../x", "a/../../x", "/etc/passwd", "", "a//b", ".ssh/x", "rollouts/.x", "a\x00b", "x\\..\\y", "notes/run"),
        *("run.json/x", "rollouts/0/000001-0.parquet\n", "rollouts/\u0661/000001-0.parquet", ".mirror.json", ".copy"),
        *("sitecustomize.py", "gold/functions/x.py", "head.json", "inbox/notes/run/1.json", "a" * 2000),
    )
    assert not [key for key in bad if file_kind(key) is not None]
    assert not any(kind.is_mirrored for key in ("events/0.jsonl", "cache/restart_snapshot") if (kind := file_kind(key)))
    assert file_kind("gold/labels/0-000001/all.json") and file_kind("run.json")
    for key in ("../x", "/etc/passwd", "a//b", "a/.b", "a\x00", "a/" + "b" * 300):
        with pytest.raises(UnsafePathError):
            split_key(key)
    with pytest.raises(UnsafePathError):
        run_path("/runs") / "/etc/passwd"


def test_an_object_that_is_too_large_costs_a_reader_no_memory(mirrored: tuple[RunDirectory, Path], place: Path) -> None:
    """One that a list calls large, and one that grows after it was listed; sparse, so that they cost no disk."""
    _, store = mirrored
    (store / "notes" / "run").mkdir(parents=True)
    with (store / "notes" / "run" / "1794994918793-00000000.json").open("wb") as large:
        large.truncate(700 << 20)
    with (store / "run.json").open("ab") as grown:
        grown.truncate(700 << 20)
    code = f"""if True:
        import tiltmeter.rundir.remote.objects as objects
        from tiltmeter.rundir.remote.copy import fetch_copy
        def peak():  # of this program: `getrusage` counts what started it as well
            with open("/proc/self/status") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
        before = peak()
        facts = objects.ObjectFacts
        objects.ObjectFacts = lambda key, size, at: facts(key, 100 if key == "run.json" else size, at)
        try:
            fetch_copy("file://{store}")
        except Exception as error:
            print(type(error).__name__, error)
        print(peak() - before)
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    error, grown_kb = done.stdout.splitlines()
    assert "run.json has" in error and int(grown_kb) < 100_000, done.stdout
    assert sum(path.stat().st_size for path in (place / "cache").rglob("*")) < 10 << 20


def test_a_reader_fetches_no_more_than_it_allows(
    mirrored: tuple[RunDirectory, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILTMETER_COPY_GB", "0.000001")
    with pytest.raises(StoreError, match="TILTMETER_COPY_GB"):
        fetch_copy(f"file://{mirrored[1]}")


def test_what_a_head_claims_of_journals_counts_as_well(mirrored: tuple[RunDirectory, Path], place: Path) -> None:
    _, store = mirrored
    forge_head(store, lambda head: head["journal"].update({str(n): {"bytes": 4 << 30, "crc": 1} for n in range(99)}))  # type: ignore[attr-defined]
    with pytest.raises(StoreError, match="GB are to be fetched"):
        fetch_copy(f"file://{store}")
    assert not [one for one in (place / "cache").rglob("*.jsonl") if one.stat().st_size]


def test_a_bucket_cannot_name_places_outside_of_a_copy(place: Path) -> None:
    import boto3  # type: ignore[import-untyped]

    with s3_server() as endpoint:
        address = f"s3://{BUCKET}/runs/a"
        start(run_of(place / "run"), open_objects(address)).cycle()
        client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        for key in ("runs/a/../../ESC", "runs/a/notes//ESC", "runs/a/.ssh/ESC", "runs/a/.mirror.json", "runs/a/x\\ESC",
                    "runs/a/run.json/ESC", "runs/../head.json", "runs/.x/head.json"):  # fmt: skip
            client.put_object(Bucket=BUCKET, Key=key, Body=b"evil")
        for key in ("runs/a/../../ESC", "runs/a/notes//ESC"):  # obstore lists nothing beside such a name
            with pytest.raises(StoreError, match="cannot be read"):
                fetch_copy(address)
            client.delete_object(Bucket=BUCKET, Key=key)
        path = fetch_copy(address)
        assert contents(path) == contents(place / "run")
        with pytest.raises(OSError, match="InvalidPathError"):
            list(find_runs(f"s3://{BUCKET}/runs"))
        client.delete_object(Bucket=BUCKET, Key="runs/../head.json")
        assert list(find_runs(f"s3://{BUCKET}/runs")) == [address]
        StoreFollower([f"s3://{BUCKET}/runs"]).look()
    assert not [one for one in place.rglob("*") if one.name in ("ESC", ".mirror.json", "page_snapshot")]
    assert sorted(one.name for one in (place / "cache" / "tiltmeter" / "remote").iterdir()) == [path.parent.name]


def test_a_sweep_removes_only_what_this_program_left(tmp_path: Path) -> None:
    for name in (".gitkeep", ".nfs0000000001", ".DS_Store", ".x.parquet.0123abcd", ".0.json.claim", ".probe-0123abcd"):
        (tmp_path / name).touch()
    assert sweep(tmp_path) == 3
    assert sorted(os.listdir(tmp_path)) == [".DS_Store", ".gitkeep", ".nfs0000000001"]  # noqa: PTH208
