"""F9, F14, F15: many processes on one directory, and ranks that come late, twice or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.sizes import size

from tiltmeter.data.batches import from_columns
from tiltmeter.monitor import live_arrivals
from tiltmeter.monitor.live_arrivals import COMPLETE_LATER_STEPS
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.atomic_write import open_dot, publish, sweep
from tiltmeter.rundir.journal import Event, read_events
from tiltmeter.rundir.maintenance import verify
from tiltmeter.rundir.rank_summary import expand_ranges
from tiltmeter.rundir.run_path import FolderNames, open_folder
from tiltmeter.rundir.store import RunDirectory

RANKS, STEPS = 8, 25
RACERS, RACE_STEPS = 4, 4


def processes(mode: str, *directories: Path) -> list[list[dict[str, Any]]]:
    program = Path(__file__).with_name("processes.py")
    done = subprocess.run(
        [sys.executable, str(program), mode, *map(str, directories)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return answers


def watched(run: RunDirectory, events: Path) -> list[Event]:
    """Everything one look at the directory makes the monitor say, into a journal of its own."""
    watch = MonitorLoop(run, Config.standard(), events_folder=events, strict=True)
    watch.poll()
    watch.close()
    return read_events(events)


def steps_done(events: list[Event]) -> list[tuple[int, list[int], int]]:
    """Step, missing ranks and rows of each step that was measured, in order."""
    return [(e.step, list(expand_ranges(e.data["missing"])), e.data["rows"]) for e in events if e.kind == "step_done"]


def store_faults(events: list[Event]) -> list[str]:
    return [e.data["error"] for e in events if e.kind == "fault" and e.data["part"] == "store"]


def write(run: RunDirectory, attempt: int, step: int, rank: int, reward: float = 0.0) -> None:
    batch = from_columns(step, [0, 0], attempt=attempt, reward=[reward, 1.0], completion=["a", f"{rank}/{step}"])
    run.write(batch, rank, {"groups": "rank"})


# -- many processes ---------------------------------------------------------------------------------------------------


def test_eight_ranks_that_start_and_write_at_once_lose_nothing(tmp_path: Path) -> None:
    (answers,) = processes("ranks", tmp_path / "run")
    assert [answer.get("error") for answer in answers] == [None] * RANKS
    assert {answer["attempt"] for answer in answers} == {0}
    run = RunDirectory(tmp_path / "run")
    stored = {}
    for file in run.files(0):
        batch, _, _ = run.read(file)
        stored[file.step, file.rank] = (batch.reward, batch.completion)
    assert len(stored) == RANKS * STEPS
    for (step, rank), (reward, completion) in stored.items():
        assert reward is not None and reward.tolist() == [step, rank, 0.5]
        assert completion == (f"{rank}/{step}",) * 3
    assert run.ended(0)
    events = watched(run, tmp_path / "events")
    assert steps_done(events) == [(step, [], 3 * RANKS) for step in range(STEPS)]
    assert not store_faults(events)
    assert verify(run) == []


def mixed(run: RunDirectory) -> list[str]:
    """Attempts in which more than one process wrote, by the content of what they wrote."""
    found = []
    for attempt in run.attempts():
        writers = Counter(str((run.read(file)[0].completion or "")[0]).split("/")[0] for file in run.files(attempt))
        if len(writers) > 1:
            found.append(f"attempt {attempt}: {dict(writers)}")
    return found


def test_start_races_never_mix_two_attempts(tmp_path: Path) -> None:
    directories = [tmp_path / str(race) for race in range(size(6, 40))]
    for directory, answers in zip(directories, processes("races", *directories), strict=True):
        assert [answer.get("error") for answer in answers] == [None] * RACERS
        places = {(answer["directory"], answer["attempt"]) for answer in answers}
        assert len(places) == RACERS, "an attempt has one owner"
        assert {Path(place) for place, _ in places} <= {directory, *(Path(f"{directory}-{n}") for n in range(2, 5))}
        for answer in answers:
            run = RunDirectory(answer["directory"])
            assert mixed(run) == []
            # A start beside a living run must not take its half-written files away: nothing is thinned or dropped.
            assert answer["counters"]["written"] == answer["counters"]["seen"] == RACE_STEPS
            files = run.files(answer["attempt"])
            assert [file.step for file in files] == list(range(RACE_STEPS))
            for file in files:
                assert run.read(file)[0].completion == (f"{answer['racer']}/{file.step}",) * 2
            assert run.conflicts(answer["attempt"]) == []
            dots = [path for path in Path(answer["directory"]).rglob(".*") if path.is_file()]
            assert not dots, "a dot file was left behind"


def test_the_race_check_sees_two_writers_in_one_attempt(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step, racer in enumerate("01"):
        run.write(from_columns(step, [0], attempt=attempt, completion=[f"{racer}/{step}"]), 0, {})
    assert len(mixed(run)) == 1


def test_a_sweep_takes_the_dead_and_leaves_the_living(tmp_path: Path) -> None:
    dead = tmp_path / ".000003-0.parquet.0badc0de"
    dead.write_bytes(b"half a file")
    linked = tmp_path / ".000004-0.parquet.0badc0de"
    linked.symlink_to(tmp_path / "elsewhere")
    with open_folder(tmp_path) as folder:
        dot, handle = open_dot("000005-0.parquet", folder)
    alive = tmp_path / dot
    try:
        assert sweep(tmp_path) == 1
        assert not dead.exists() and alive.exists() and linked.is_symlink()
    finally:
        os.close(handle)
    assert sweep(tmp_path) == 1, "once its writer is gone the lock is, too"
    assert not alive.exists()


def test_a_file_that_a_sweep_took_before_it_was_locked_is_begun_again(tmp_path: Path, monkeypatch: Any) -> None:
    taken: list[int] = []

    def flock(handle: int, how: int) -> None:
        if not taken:  # between the writer's open and its lock, another process sweeps
            taken.append(sweep_by_another(tmp_path))
        fcntl_flock(handle, how)

    fcntl_flock = fcntl.flock
    monkeypatch.setattr("tiltmeter.rundir.atomic_write.fcntl.flock", flock)
    assert publish(tmp_path / "whole", [b"content"])
    assert taken == [1]
    assert (tmp_path / "whole").read_bytes() == b"content"
    assert [path.name for path in tmp_path.iterdir()] == ["whole"]


def sweep_by_another(folder: Path) -> int:
    """What a sweep does, in one stroke: the files it would lock are removed."""
    dots = [path for path in folder.iterdir() if path.name.startswith(".")]
    for dot in dots:
        dot.unlink()
    return len(dots)


def test_ranks_of_two_launches_each_find_their_own_attempt(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    first = run.open_attempt(launch="monday", ranks=2, resume_step=None)
    second = run.open_attempt(launch="tuesday", ranks=2, resume_step=None)
    assert run.join_attempt(launch="monday", rank=1, timeout=0) == first
    assert run.join_attempt(launch="tuesday", rank=1, timeout=0) == second


# -- late, twice, missing: as arrivals.py says ------------------------------------------------------------------------


def two_ranks(tmp_path: Path) -> tuple[RunDirectory, int]:
    run = RunDirectory.create(tmp_path / "run")
    return run, run.open_attempt(launch="x", ranks=2, resume_step=None)


def test_a_step_waits_for_its_missing_rank_until_three_later_steps_are_complete(tmp_path: Path) -> None:
    run, attempt = two_ranks(tmp_path)
    write(run, attempt, 0, 0)
    for step in range(1, COMPLETE_LATER_STEPS):
        write(run, attempt, step, 0)
        write(run, attempt, step, 1)
    assert steps_done(watched(run, tmp_path / "events")) == [], "measured too early: rank 1 may still come"
    write(run, attempt, COMPLETE_LATER_STEPS, 0)
    assert steps_done(watched(run, tmp_path / "events")) == []
    write(run, attempt, COMPLETE_LATER_STEPS, 1)
    done = steps_done(watched(run, tmp_path / "events"))
    assert done == [(0, [1], 2), *((step, [], 4) for step in range(1, COMPLETE_LATER_STEPS + 1))]


def test_a_rank_file_that_comes_in_time_is_measured_with_its_step(tmp_path: Path) -> None:
    run, attempt = two_ranks(tmp_path)
    write(run, attempt, 0, 0)
    assert steps_done(watched(run, tmp_path / "events")) == []
    write(run, attempt, 1, 1)
    write(run, attempt, 1, 0)
    write(run, attempt, 0, 1)
    assert steps_done(watched(run, tmp_path / "events")) == [(0, [], 4), (1, [], 4)]


def test_a_late_rank_file_is_kept_and_reported_once_and_changes_nothing(tmp_path: Path) -> None:
    run, attempt = two_ranks(tmp_path)
    write(run, attempt, 0, 0)
    for step in range(1, COMPLETE_LATER_STEPS + 1):
        write(run, attempt, step, 0)
        write(run, attempt, step, 1)
    before = watched(run, tmp_path / "events")
    write(run, attempt, 0, 1)
    after = watched(run, tmp_path / "events")
    assert after[: len(before)] == before
    assert [e.kind for e in after[len(before) :]] == ["fault"]
    assert "000000-1.parquet: arrived after its step was measured" in store_faults(after)[0]
    assert watched(run, tmp_path / "events") == after, "told once"
    assert (0, 1) in {(file.step, file.rank) for file in run.files(attempt)}, "kept"


class PassingOver(RunDirectory):
    """Its first listing passes over files that are there, as `readdir` may while later ones are added."""

    passed: set[tuple[int, int]]

    def names(self, attempt: int) -> FolderNames:
        names, passed = super().names(attempt), {f"{step:06d}-{rank}.parquet" for step, rank in self.passed}
        self.passed = set()
        return FolderNames([name for name in names.plain if name not in passed], names.others)


def test_a_step_that_one_listing_passes_over_is_measured_in_its_place(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(6):
        write(run, attempt, step, 0)
    hasty = PassingOver(run.path)
    hasty.passed = {(0, 0), (3, 0)}
    assert steps_done(watched(hasty, tmp_path / "events")) == [(step, [], 2) for step in range(6)]
    for step in (6, 8, 11):  # a loop may leave steps out
        write(run, attempt, step, 0)
    hasty.passed = {(8, 0)}
    events = watched(hasty, tmp_path / "events")
    assert [step for step, _, _ in steps_done(events)][-3:] == [6, 8, 11]
    assert store_faults(events) == []


def test_a_rank_that_one_listing_passes_over_is_measured_with_its_step(tmp_path: Path) -> None:
    run, attempt = two_ranks(tmp_path)
    for step in range(COMPLETE_LATER_STEPS + 1):
        write(run, attempt, step, 0)
        write(run, attempt, step, 1)
    hasty = PassingOver(run.path)
    hasty.passed = {(0, 1)}
    assert steps_done(watched(hasty, tmp_path / "events"))[0] == (0, [], 4)


class CountedListings(RunDirectory):
    """Counts how often it is listed."""

    listings = 0

    def names(self, attempt: int) -> FolderNames:
        self.listings += 1
        return super().names(attempt)


def test_a_long_folder_is_not_listed_for_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_arrivals, "FEW_NAMES", 4)
    monkeypatch.setattr(live_arrivals, "SECONDS_A_NAME", 1000.0)  # but for the pause, which is cut off
    monkeypatch.setattr(live_arrivals, "MOST_SECONDS", 1000.0)
    run, attempt = two_ranks(tmp_path)
    counted = CountedListings(run.path)
    loop = MonitorLoop(counted, Config.standard(), events_folder=tmp_path / "events", durable=False)
    for step in range(20):
        for rank in (0, 1):
            write(run, attempt, step, rank)
            loop.poll()
    assert len(steps_done(read_events(tmp_path / "events"))) == 20
    assert counted.listings < 6, "at first, while there are few names"
    write(run, attempt, 25, 0)
    write(run, attempt, 25, 1)
    write(run, attempt, 21, 0)
    loop.poll()
    assert len(steps_done(read_events(tmp_path / "events"))) == 20, "a hole waits for the next listing"
    for rank in (0, 1):
        run.close_rank(attempt, rank, {"seen": 22, "written": 22})
    loop.poll()
    loop.close()
    assert steps_done(read_events(tmp_path / "events"))[20:] == [(21, [1], 2), (25, [], 4)]


@pytest.mark.parametrize("extra", [None, 11, 14])
def test_steps_at_even_distances_are_looked_up_and_none_between_is_passed_over(
    tmp_path: Path, extra: int | None
) -> None:
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    loop = MonitorLoop(run, Config.standard(), events_folder=tmp_path / "events", durable=False)
    for step in (0, 5, 10):
        write(run, attempt, step, 0)
        loop.poll()
    rest = sorted([15, 20, *([] if extra is None else [extra])])
    for step in rest:
        write(run, attempt, step, 0)
    loop.poll()
    loop.close()
    events = read_events(tmp_path / "events")
    assert [step for step, _, _ in steps_done(events)] == [0, 5, 10, *rest]
    assert store_faults(events) == []


@pytest.mark.parametrize("tick", [0.0, 5.0])
def test_a_folder_that_says_it_has_not_changed_is_listed_again_if_its_clock_is_coarse(
    tick: float,
) -> None:
    clock = [100.0]
    look = live_arrivals._Look(lambda: clock[0])
    assert look.is_due(7, over=False)
    clock[0] += tick
    look.note(100_000, over=False)
    clock[0] += 20.0
    assert look.is_due(7, over=False) is (tick == 0.0), "listed within a tick of its change, or long after it"
    assert look.is_due(7, over=True), "once more when the attempt is over"
    assert look.is_due(8, over=False)
    clock[0] += 60.0
    assert look.is_due(7, over=False), "some file systems do not say"


def test_a_step_written_twice_by_one_rank_keeps_the_first_and_reports_the_second_once(tmp_path: Path) -> None:
    run, attempt = two_ranks(tmp_path)
    write(run, attempt, 0, 0, reward=3.0)
    write(run, attempt, 0, 0, reward=9.0)
    write(run, attempt, 0, 1)
    events = watched(run, tmp_path / "events")
    assert steps_done(events) == [(0, [], 4)]
    (fault,) = store_faults(events)
    assert "written twice" in fault
    reward = run.read(run.files(attempt)[0])[0].reward
    assert reward is not None and reward.tolist() == [3.0, 1.0]
    assert watched(run, tmp_path / "events") == events
    assert len(run.conflicts(attempt)) == 1, "the second is kept beside it"


def test_a_rank_that_never_comes_is_missing_once_the_attempt_is_over(tmp_path: Path) -> None:
    run, attempt = two_ranks(tmp_path)
    write(run, attempt, 0, 1)
    write(run, attempt, 1, 1)
    assert steps_done(watched(run, tmp_path / "events")) == []
    run.open_attempt(launch="y", ranks=2, resume_step=None)
    assert steps_done(watched(run, tmp_path / "events")) == [(0, [0], 2), (1, [0], 2)]


def test_the_closing_counters_of_every_rank_end_an_attempt(tmp_path: Path) -> None:
    run, attempt = two_ranks(tmp_path)
    write(run, attempt, 0, 0)
    run.close_rank(attempt, 0, {"seen": 1, "written": 1})
    assert not run.ended(attempt)
    assert steps_done(watched(run, tmp_path / "events")) == []
    run.close_rank(attempt, 1, {"seen": 1, "dropped": 1})
    events = watched(run, tmp_path / "events")
    assert steps_done(events) == [(0, [1], 2)]
    assert [e.data["state"] for e in events if e.kind == "attempt"] == ["open", "end"]
    (lost,) = [e.data["error"] for e in events if e.kind == "fault" and e.data["part"] == "writer"]
    assert lost.startswith("rank 1: 1 dropped")
