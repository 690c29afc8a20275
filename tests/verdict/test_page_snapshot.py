"""What a page reads of a long run's cache is what it would read of the journal; what cannot be trusted is not read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import to_builtins

from tiltmeter.data.batches import from_columns
from tiltmeter.data.object_graph import encode_graph
from tiltmeter.errors import StoreError
from tiltmeter.monitor.list_entry_writer import ListEntryWriter
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict import page_snapshot, reading_blocks
from tiltmeter.verdict.page_snapshot import read_page_snapshot
from tiltmeter.view.screens.history import RunHistory, build_history
from tiltmeter.view.screens.run_reader import RunReader
from tiltmeter.view.screens.samples import all_measured_steps
from tiltmeter.view.screens.summary import summary


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_snapshot, "LEAST_EVENTS", 8)
        patch.setattr(reading_blocks, "RECORDS", 7)
        yield


def write_steps(run: RunDirectory, attempt: int, steps: range) -> None:
    rng = np.random.default_rng(steps.start)
    for step in steps:
        columns: dict[str, Any] = {
            "reward": rng.random(8),
            "completion": [f"{x} words" for x in rng.integers(9, size=8)],
        }
        if step % 3:
            columns["gold"] = rng.random(8)
        batch = from_columns(step, np.arange(8) // 4, attempt=attempt, **columns)
        run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}, "time": 1000.0 + step})


def watch(run: RunDirectory) -> None:
    """As the monitor does."""
    loop = MonitorLoop(run, Config.standard(), durable=False)
    loop.poll()
    loop.close()
    ListEntryWriter(run).update(over=True)


@pytest.fixture(scope="module")
def original(small: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run that was rewound and evaluated, with a snapshot in its middle."""
    folder = tmp_path_factory.mktemp("long")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        make_run(folder / "run")
        yield folder


@pytest.fixture
def run(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    shutil.copytree(original, tmp_path / "long")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "long" / "state"))
    return RunDirectory(tmp_path / "long" / "run")


def make_run(path: Path) -> None:
    run = RunDirectory.create(path)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    write_steps(run, 0, range(12))
    watch(run)
    run.open_attempt(launch="y", ranks=1, resume_step=9)
    write_steps(run, 1, range(9, 20))
    write_evaluation(run, Evaluation(1, 12, "held_out", 0.5, 40))
    watch(run)
    assert (run.path / "cache" / "page_snapshot").exists()
    write_steps(run, 1, range(20, 23))
    loop = MonitorLoop(run, Config.standard(), durable=False)
    loop.poll()
    loop.close()


def contents(run: RunDirectory) -> dict[str, Any]:
    """Everything that a reader knows."""
    reader = RunReader(run)
    verdict = reader.refresh(force=True)
    page = to_builtins(summary(reader))
    for name in ("now", "age_s", "checks", "health"):  # these change with the time of day
        page.pop(name)
    names = reader.columns.all_names()
    state = reader.run_facts
    state.advice = state.agreement_and_gain_read = None
    return {
        "first": reader.events.first,
        "verdict": (verdict.state, verdict.sentence),
        "page": page,
        "state": encode_graph(state),
        "names": sorted(names),
        "lineage": {name: [part.tobytes() for part in reader.columns.lineage_series(name)] for name in sorted(names)},
        "branch": {name: [part.tobytes() for part in reader.columns.branch_series(0, name)] for name in sorted(names)},
        "steps": all_measured_steps(reader),
        "events": list(reader.events),
        "history": to_builtins(reader.get_fold("history", RunHistory).entries),
    }


def without(first: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in first.items() if name != "first"}


def test_a_snapshot_says_what_the_journal_says(run: RunDirectory) -> None:
    by_snapshot = contents(run)
    assert by_snapshot["first"] > 20, "most events were not read"
    shutil.rmtree(run.path / "cache")
    by_journal = contents(run)
    assert by_journal["first"] == 0
    for name, value in without(by_journal).items():
        assert by_snapshot[name] == value, name
    assert by_snapshot["history"] == to_builtins(build_history(by_journal["events"]).entries)


def test_a_monitor_that_starts_again_goes_on_with_the_blocks(run: RunDirectory) -> None:
    folder = run.path / "cache" / "readings"
    before = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    write_steps(run, 1, range(23, 40))
    watch(run)
    after = {file.name: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert {name: after[name] for name in before} == before and len(after) > len(before)
    snapshot = read_page_snapshot(run)
    assert snapshot is not None and snapshot.events == len(read_events(run.path / "events"))
    by_snapshot = contents(run)
    shutil.rmtree(run.path / "cache")
    assert without(contents(run)) == without(by_snapshot)


def test_a_snapshot_whose_blocks_are_gone_is_made_again(run: RunDirectory) -> None:
    remove_block(run)
    watch(run)
    assert contents(run)["first"] == len(read_events(run.path / "events"))


def test_numbers_of_events_mean_the_same_with_a_snapshot(run: RunDirectory) -> None:
    reader, events = RunReader(run), read_events(run.path / "events")
    reader.refresh()
    log = reader.events
    assert len(log) == len(events) and 0 < log.first < len(events) - 3
    assert log[0] == events[0] and log[-1] == events[-1] and log[log.first] == events[log.first]
    assert list(reversed(log)) == events[::-1]
    for part in (
        slice(None, 3),
        slice(log.first - 2, log.first + 2),
        slice(-2, None),
        slice(5, 2),
        slice(None, None, 2),
    ):
        assert log[part] == events[part], part
    with pytest.raises(IndexError):
        log[len(events)]


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


def damage_snapshot(run: RunDirectory) -> None:
    flip(run.path / "cache" / "page_snapshot")


def remove_block(run: RunDirectory) -> None:
    (run.path / "cache" / "readings" / "0").unlink()


def damage_contents(run: RunDirectory) -> None:
    path = run.path / "cache" / "readings" / "0"
    content = bytearray(path.read_bytes())
    content[60] ^= 4
    path.write_bytes(content)


def swap_blocks(run: RunDirectory) -> None:
    folder = run.path / "cache" / "readings"
    shutil.copy(folder / "7", folder / "0")


def shorten_journal(run: RunDirectory) -> None:
    path = run.path / "events" / "1.jsonl"
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))


def other_journal(run: RunDirectory) -> None:
    """A line changed in the middle of what the snapshot has is not seen: one near its end is."""
    snapshot = read_page_snapshot(run)
    assert snapshot is not None
    path, offset = run.path / "events" / "1.jsonl", snapshot._stored.offsets["1.jsonl"]
    content = bytearray(path.read_bytes())
    content[offset - 30] ^= 1
    path.write_bytes(content)


def lose_key(run: RunDirectory) -> None:
    for path in (run.path.parent / "state" / "tiltmeter").glob("*.snapshot-key"):
        path.write_bytes(b"0" * 64)


@pytest.mark.parametrize(
    "harm", [damage_snapshot, remove_block, damage_contents, swap_blocks, shorten_journal, other_journal, lose_key]
)
def test_a_cache_that_is_damaged_or_of_somebody_else_is_not_used(
    run: RunDirectory, harm: Callable[[RunDirectory], None]
) -> None:
    harm(run)
    by_journal = contents(run)
    assert by_journal["first"] == 0
    shutil.rmtree(run.path / "cache")
    assert contents(run) == by_journal


def test_a_column_that_changed_on_disk_is_refused_and_the_journal_read_again(run: RunDirectory) -> None:
    whole, reader = contents(run), RunReader(run)
    reader.refresh()
    for path in (run.path / "cache" / "readings").iterdir():
        content = bytearray(path.read_bytes())
        content[-40:] = bytes(40)
        path.write_bytes(content)
    name = list(reader.columns._blocks_by_name)[-1]
    with pytest.raises(StoreError, match="has changed since the monitor wrote it"):
        reader.columns.lineage_series(name)
    reader.refresh()
    assert reader.events.first == 0, "it does not use this cache again"
    assert [part.tobytes() for part in reader.columns.lineage_series(name)] == whole["lineage"][name]
