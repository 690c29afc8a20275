"""What a run is compared with: made once, read-only, named in every reading that used it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiltmeter
from tiltmeter.baseline import ENOUGH, MOST, PATIENCE, Baseline, from_first, from_reference
from tiltmeter.batches import from_columns
from tiltmeter.config import Config
from tiltmeter.journal import Event, read, readings_of
from tiltmeter.records import RolloutBatch
from tiltmeter.replay import replay
from tiltmeter.store import RunDirectory
from tiltmeter.story import Story
from tiltmeter.upkeep import purge, verify
from tiltmeter.watch import Watch


def rollouts(step: int, rows: int = 16, fingerprint: str = "", length: int = 10) -> RolloutBatch:
    return from_columns(step, np.arange(rows) // 8, length=[length] * rows, fingerprint=fingerprint)


def recorded(tmp_path: Path, steps: int, rows: int = 16, changed_at: int = 10**9) -> RunDirectory:
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="a", ranks=1, resume_step=None)
    for step in range(steps):
        run.write(rollouts(step, rows, str(step >= changed_at), length=10 + step), 0, {})
    return run


def watched(run: RunDirectory, *, restarts: bool = False) -> list[Event]:
    watch = Watch(run, Config.standard(), strict=True)
    for arrival in list(watch.source.poll()):
        watch.advance(arrival)
        if restarts:
            watch.close()
            watch = Watch(run, Config.standard(), strict=True)
    watch.close()
    return read(run.path / "events")


def compared(events: list[Event]) -> dict[int, str]:
    """By step, what the reading of long completions was compared with."""
    found: dict[int, str] = {}
    for event in events:
        if event.kind == "reading":
            found |= {r.step: r.against for r in readings_of(event) if r.name == "length.tail_share"}
    return found


def test_a_few_small_steps_are_not_a_start() -> None:
    assert from_first([rollouts(step) for step in range(PATIENCE - 1)]) is None
    assert from_first([rollouts(step, rows=0) for step in range(50)]) is None
    made = from_first([rollouts(step) for step in range(PATIENCE)])
    assert made is not None
    assert len(made.batch) == 16 * PATIENCE
    large = from_first([rollouts(0, rows=ENOUGH)])
    assert large is not None
    assert large.source == "start"


def test_what_is_kept_is_whole_prompt_groups_up_to_the_limit() -> None:
    made = from_reference(from_columns(0, np.arange(5 * MOST) // 24, reward=np.arange(5 * MOST)))
    assert len(made.batch) == MOST // 24 * 24
    assert made.source == "reference"
    one = from_reference(from_columns(0, np.zeros(MOST + 5), reward=np.zeros(MOST + 5)))
    assert len(one.batch) == MOST + 5


def test_what_was_computed_once_is_not_computed_again() -> None:
    calls = []

    def slow(batch: RolloutBatch) -> int:
        calls.append(batch)
        return len(batch)

    start = Baseline(rollouts(0))
    assert [start.once(slow), start.once(slow)] == [16, 16]
    assert len(calls) == 1


def test_the_first_steps_are_not_compared_with_themselves_and_later_ones_say_with_what(tmp_path: Path) -> None:
    events = watched(recorded(tmp_path, 12))
    assert compared(events) == dict.fromkeys(range(PATIENCE, 12), "start")
    (note,) = [event for event in events if event.data.get("note") == "baseline"]
    assert (note.step, note.data["source"], note.data["rows"]) == (PATIENCE, "start", 16 * PATIENCE)
    assert Story.of(events).baseline == "start"


def test_a_large_first_step_is_enough(tmp_path: Path) -> None:
    assert compared(watched(recorded(tmp_path, 3, rows=ENOUGH))) == {1: "start", 2: "start"}


@pytest.mark.parametrize("changed_at", [4, 10, 10**9])
def test_a_monitor_that_starts_again_after_every_step_compares_with_the_same(tmp_path: Path, changed_at: int) -> None:
    straight = watched(recorded(tmp_path / "a", 20, changed_at=changed_at))
    broken = watched(recorded(tmp_path / "b", 20, changed_at=changed_at), restarts=True)
    assert [e.data for e in straight if e.kind == "reading"] == [e.data for e in broken if e.kind == "reading"]
    assert [e.id for e in straight] == [e.id for e in broken]
    assert compared(straight)
    if changed_at == 4:
        assert min(compared(straight)) == 4 + PATIENCE  # steps paid by another reward are not the start


def test_a_reference_is_used_from_the_first_step_and_stands(tmp_path: Path) -> None:
    run = recorded(tmp_path, 4)
    assert run.write_reference(rollouts(0, length=11))
    assert not run.write_reference(rollouts(0, length=99))
    events = watched(run)
    assert compared(events) == dict.fromkeys(range(4), "reference")
    shares = [e.data["measured"]["length.tail_share"][0] for e in events if e.kind == "reading"]
    assert shares == [0.0, 0.0, 1.0, 1.0]
    assert replay(run, Config.standard()).difference is None
    assert verify(run) == []


def test_a_damaged_reference_is_told_and_the_first_steps_stand_in(tmp_path: Path) -> None:
    run = recorded(tmp_path, 12)
    run.write_reference(rollouts(0, length=11))
    path = run.path / "reference.parquet"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.chmod(0o600)
    path.write_bytes(data)
    events = watched(run, restarts=True)
    (fault,) = [event for event in events if event.kind == "fault"]
    assert fault.data["part"] == "reference"
    assert set(compared(events).values()) == {"start"}
    assert any("reference" in problem for problem in verify(run))


def test_when_the_first_steps_were_deleted_later_ones_stand_in_after_a_restart(tmp_path: Path) -> None:
    run = recorded(tmp_path, 12)
    watched(run)
    purge(run, before=6)
    for step in range(12, 16):
        run.write(rollouts(step, fingerprint="False"), 0, {})
    assert compared(watched(run))[15] == "start"


def test_open_run_takes_the_reference_as_columns(tmp_path: Path) -> None:
    reference: dict[str, Any] = {"group": [0, 0, 1, 1], "length": [3, 4, 5, 6]}
    with tiltmeter.open_run(tmp_path / "run", reference=reference, monitor=False) as run:
        run.observe(step=0, group=[0, 0], length=[9, 2])
    assert compared(watched(RunDirectory(tmp_path / "run"))) == {0: "reference"}
    with tiltmeter.open_run(tmp_path / "run", reference=reference, monitor=False, resume_step=1):
        pass  # resumed with the same script: the first reference stands


@pytest.mark.parametrize("wrong", [{}, {"group": [0], "reward": [1, 2]}, {"group": [0], "rewrad": [1]}])
def test_a_reference_that_is_no_batch_is_refused_at_attach(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(tiltmeter.AttachError, match="reference="):
        tiltmeter.open_run(tmp_path / "run", reference=wrong, monitor=False)
