"""What a run is compared with: made once, read-only, named in every reading that used it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiltmeter
from tiltmeter.cli.terminal.run_screen import asides
from tiltmeter.data.baseline import MAX_ROLLOUTS, MAX_STEPS, MIN_ROLLOUTS, Baseline, from_first, from_reference
from tiltmeter.data.batches import from_columns, thin
from tiltmeter.data.records import RolloutBatch
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.panel import missing_columns, readings
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.journal import Event, read_events, readings_of
from tiltmeter.rundir.maintenance import purge, verify
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import RunFacts
from tiltmeter.verdict.verdict import judge_run


def rollouts(step: int, rows: int = 16, fingerprint: str = "", length: int = 10) -> RolloutBatch:
    return from_columns(step, np.arange(rows) // 8, length=[length] * rows, fingerprint=fingerprint)


def recorded(
    tmp_path: Path, steps: int, rows: int = 16, changed_at: int = 10**9, reference: RolloutBatch | None = None
) -> RunDirectory:
    run = RunDirectory.create(tmp_path / "run")
    if reference is not None:
        run.write_reference(reference)
    run.open_attempt(launch="a", ranks=1, resume_step=None)
    for step in range(steps):
        run.write(rollouts(step, rows, str(step >= changed_at), length=10 + step), 0, {})
    return run


def watched(run: RunDirectory, *, restarts: bool = False) -> list[Event]:
    watch = MonitorLoop(run, Config.standard(), strict=True)
    while (arrival := next(watch.source.poll(), None)) is not None:  # each is handled before the next is requested
        watch.advance(arrival)
        if restarts:
            watch.close()
            watch = MonitorLoop(run, Config.standard(), strict=True)
    watch.close()
    return read_events(run.path / "events")


def compared(events: list[Event]) -> dict[int, str]:
    """By step, what the reading of long completions was compared with."""
    found: dict[int, str] = {}
    for event in events:
        if event.kind == "reading":
            found |= {r.step: r.against for r in readings_of(event) if r.name == "length.tail_share"}
    return found


def shown(run: RunDirectory) -> list[str]:
    verdict, story, events = judge_run(run)
    return asides(verdict, story, events)


def test_a_few_small_steps_are_not_a_start() -> None:
    assert from_first([rollouts(step) for step in range(MAX_STEPS - 1)]) is None
    assert from_first([rollouts(step, rows=0) for step in range(50)]) is None
    made = from_first([rollouts(step) for step in range(MAX_STEPS)])
    assert made is not None
    assert len(made.batch) == 16 * MAX_STEPS
    large = from_first([rollouts(0, rows=MIN_ROLLOUTS)])
    assert large is not None
    assert large.source == "start"


def test_what_is_kept_are_prompt_groups_from_all_over_up_to_the_limit() -> None:
    made = from_reference(from_columns(0, np.arange(5 * MAX_ROLLOUTS) // 24, reward=np.arange(5 * MAX_ROLLOUTS)))
    assert MAX_ROLLOUTS - 48 <= len(made.batch) <= MAX_ROLLOUTS
    assert (np.diff(made.batch.starts) == 24)[:-1].all()
    assert made.batch.reward is not None
    assert made.batch.reward.max() > 4 * MAX_ROLLOUTS  # not only the first ones
    assert made.source == "reference"
    few = from_reference(
        from_columns(0, np.arange(8 * MAX_ROLLOUTS) // (2 * MAX_ROLLOUTS), reward=np.zeros(8 * MAX_ROLLOUTS))
    )
    assert len(few.batch) == MAX_ROLLOUTS
    assert len(few.batch.starts) - 1 == 4  # of very large groups a part, so that there is more than one prompt


def test_a_step_that_lost_its_text_does_not_take_it_from_the_start() -> None:
    whole = [from_columns(step, np.arange(64) // 8, completion=["a"] * 64, tokens=[[1]] * 64) for step in range(5)]
    made = from_first([whole[0], thin(whole[1]), *whole[2:]])
    assert made is not None
    assert made.batch.completion is not None
    assert len(made.batch) == 4 * 64


def test_two_functions_of_one_name_are_two() -> None:
    def one(batch: RolloutBatch) -> int:
        return 1

    first = one

    def one(batch: RolloutBatch) -> int:  # type: ignore[no-redef]  # as in two plug-in files of one name
        return 2

    start = Baseline(rollouts(0))
    assert (start.once(first), start.once(one)) == (1, 2)


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
    assert compared(events) == dict.fromkeys(range(MAX_STEPS, 12), "start")
    (note,) = [event for event in events if event.data.get("note") == "baseline"]
    assert (note.step, note.data["source"], note.data["rows"]) == (MAX_STEPS, "start", 16 * MAX_STEPS)
    assert RunFacts.from_events(events).baseline == "start"


def test_a_large_first_step_is_enough(tmp_path: Path) -> None:
    assert compared(watched(recorded(tmp_path, 3, rows=MIN_ROLLOUTS))) == {1: "start", 2: "start"}


@pytest.mark.parametrize("changed_at", [4, 10, 10**9])
def test_a_monitor_that_starts_again_after_every_step_compares_with_the_same(tmp_path: Path, changed_at: int) -> None:
    straight = watched(recorded(tmp_path / "a", 20, changed_at=changed_at))
    broken = watched(recorded(tmp_path / "b", 20, changed_at=changed_at), restarts=True)
    assert [e.data for e in straight if e.kind == "reading"] == [e.data for e in broken if e.kind == "reading"]
    assert [e.id for e in straight] == [e.id for e in broken]
    assert compared(straight)
    if changed_at == 4:
        assert min(compared(straight)) == 4 + MAX_STEPS  # steps paid by another reward are not the start


def test_a_reference_is_used_from_the_first_step_and_stands(tmp_path: Path) -> None:
    run = recorded(tmp_path, 4, reference=rollouts(0, length=11))
    assert not run.write_reference(rollouts(0, length=11))  # the same script, resumed
    with pytest.raises(tiltmeter.AttachError, match="another reference"):
        run.write_reference(rollouts(0, length=99))
    events = watched(run)
    assert compared(events) == dict.fromkeys(range(4), "reference")
    shares = [e.data["measured"]["length.tail_share"][0] for e in events if e.kind == "reading"]
    assert shares == [0.0, 0.0, 1.0, 1.0]
    assert replay(run, Config.standard()).difference is None
    assert verify(run) == []


def test_a_damaged_reference_is_told_and_the_first_steps_stand_in(tmp_path: Path) -> None:
    run = recorded(tmp_path, 12, reference=rollouts(0, length=11))
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
    events = watched(run)
    assert [compared(events)[step] for step in (11, 14, 15)] == ["start", "later", "later"]
    notes = [event.data["source"] for event in events if event.data.get("note") == "baseline"]
    assert notes == ["start", "later"]


def test_a_reference_that_comes_after_the_first_step_is_refused(tmp_path: Path) -> None:
    run = recorded(tmp_path, 1)
    with pytest.raises(tiltmeter.AttachError, match="start a new run"):
        run.write_reference(rollouts(0))


def test_what_a_reference_has_no_columns_for_is_said(tmp_path: Path) -> None:
    run = recorded(tmp_path, 2, reference=from_columns(0, [0, 0], reward=[1.0, 2.0]))
    (note,) = [event for event in watched(run) if event.data.get("note") == "baseline"]
    assert note.data["absent"]["length.tail_share"] == "length"
    assert "reward.win_share" not in note.data["absent"]
    assert "Not compared, because the reference has no" in "\n".join(shown(run))


def test_after_a_change_of_reward_nothing_claims_to_have_compared_rewards(tmp_path: Path) -> None:
    reference = from_columns(0, [0, 0], reward=[1.0, 2.0], fingerprint="then")
    now = from_columns(0, [0, 0, 1, 1], reward=[5.0, 5.0, 1.0, 2.0], fingerprint="now")
    found = [
        reading
        for part in Config.standard().instruments
        if not missing_columns(part, now)
        for reading in readings(part, now, Baseline(reference, "reference"))
    ]
    names = {reading.name for reading in found}
    assert {"reward.dead.high_share", "reward.saturated_share"} <= names
    assert "reward.win_share" not in names
    assert {reading.against for reading in found} == {""}


def test_purging_everything_takes_the_reference_too(tmp_path: Path) -> None:
    run = recorded(tmp_path, 2, reference=rollouts(0))
    purge(run, before=1)
    assert run.reference() is not None
    purge(run)
    assert run.reference() is None


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
