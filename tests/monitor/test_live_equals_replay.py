"""Live watching with rewinds, two ranks, late files and a monitor killed at any byte gives what replay gives."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sizes import size

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.detectors.limit import Limit
from tiltmeter.monitor import restart_snapshot
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir import journal
from tiltmeter.rundir.maintenance import pack, verify
from tiltmeter.rundir.store import RunDirectory


class KilledError(BaseException):
    """The monitor's process is gone."""


@dataclass(frozen=True)
class Attempt:
    first: int
    steps: int
    ranks: int
    shared: bool
    closes: bool


attempts = st.builds(Attempt, st.integers(0, 6), st.integers(1, 7), st.integers(1, 2), st.booleans(), st.booleans())


def eager() -> Config:
    """Detectors that speak often, so that a few steps exercise their life cycle; promises are tested elsewhere.

    The gold-loss test lays little on its first steps: only an alpha above one, which promises nothing, makes it
    speak by then.
    """
    standard = Config.standard()
    detectors = (
        lambda: GoldLossTest(alpha=1.2),
        lambda: Limit("reward.dead_share", 0.3, alpha=0.9, block=2),
        lambda: Limit("length.truncated_share", 0.2, alpha=0.9, block=2),
    )
    return Config(standard.instruments, standard.derived, detectors)


def batch(attempt: int, step: int, rank: int, seed: int) -> RolloutBatch:
    """Deterministic in (step, rank, seed), so that a rewind that replays the same steps sees the same rollouts."""
    rng = np.random.default_rng([step, rank, seed])
    rows = int(rng.integers(0, 9))
    kind = rng.integers(0, 4)
    reward = rng.integers(0, 2, rows) if kind else np.ones(rows)
    gold = 1.0 - reward if kind == 1 else rng.random(rows)
    columns: dict[str, Any] = {"gold": gold} if kind != 2 else {}
    if kind != 3:  # some steps say which environment a rollout is of
        columns["env"] = [("a", "b.c", None)[int(k)] for k in rng.integers(0, 3, rows)]
    return from_columns(
        step, rng.integers(0, 3, rows), attempt=attempt, reward=reward, rewards={"a": reward},
        length=rng.integers(0, 9, rows), truncated=rng.random(rows) < 0.5,
        logprob=[[-1.0]] * rows, ref_logprob=[[-1.0 - 0.1 * step]] * rows,
        fingerprint="one" if step < 5 else "two", **columns,
    )  # fmt: skip


class Session:
    """A trainer and a monitor over one directory; the monitor is restarted whenever it is killed."""

    def __init__(self, run: RunDirectory, seed: int, kill_every: int, snapshots: bool) -> None:
        self.snapshots = snapshots  # whether there is one after every commit
        self.run, self.config = run, eager()
        self.rng = np.random.default_rng(seed)
        self.kill_every = kill_every
        self.watch: MonitorLoop | None = None

    def poll(self) -> None:
        while True:
            try:
                self.watch = self.watch or self.started()
                self.watch.poll()
                return
            except KilledError:
                self.watch = None

    def started(self) -> MonitorLoop:
        watch = MonitorLoop(self.run, self.config, strict=True, snapshots=self.snapshots)
        if not self.kill_every:
            return watch
        fatal = int(self.rng.integers(1, self.kill_every + 1))
        commit = watch.journal.commit

        def counted(events: Iterable[journal.Event]) -> None:
            nonlocal fatal
            events = list(events)
            fatal -= 1
            if fatal <= 0:
                # Die while writing: some first part of the line is on disk.
                line = journal.encode_commit(events, watch.journal.seq)
                os.write(watch.journal._open(events[0].attempt), line[: int(self.rng.integers(0, len(line)))])
                watch.close()
                raise KilledError
            commit(events)

        watch.journal.commit = counted  # type: ignore[method-assign]
        return watch


@settings(max_examples=size(8, 400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    plan=st.lists(attempts, min_size=1, max_size=3),
    seed=st.integers(0, 2**20),
    kill_every=st.sampled_from([0, 3, 9]),
    gaps=st.booleans(),
    packed=st.booleans(),
    snapshots=st.booleans(),
)
def test_live_equals_replay(
    plan: list[Attempt], seed: int, kill_every: int, gaps: bool, packed: bool, snapshots: bool
) -> None:
    rng = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(dir=_fast()) as folder:
        run = RunDirectory.create(Path(folder) / "run")
        patch.setattr(restart_snapshot, "FIRST_SECONDS", 0.0)
        patch.setattr(restart_snapshot, "SHARE", float("inf"))
        session = Session(run, seed, kill_every, snapshots)
        for part in plan:
            attempt = run.open_attempt(launch="x", ranks=part.ranks, resume_step=None)
            todo = [(step, rank) for step in range(part.first, part.first + part.steps) for rank in range(part.ranks)]
            if gaps:
                todo = [key for key in todo if rng.random() > 0.15]
            # Arrival in almost any order: some files overtake others by a few places.
            order = np.argsort(np.arange(len(todo)) + rng.uniform(0, 4 if gaps else 1.5, len(todo)))
            for position in order:
                step, rank = todo[position]
                facts = {"groups": "shared" if part.shared else "rank", "counters": {"seen": 9, "dropped": step // 4}}
                run.write(batch(attempt, step, rank, seed), rank, facts)
                if rng.random() < 0.3:
                    session.poll()
            if part.closes:
                for rank in range(part.ranks):
                    run.close_rank(attempt, rank, {"seen": 9, "dropped": 2, "thinned": 1})
        session.poll()
        session.poll()
        assert session.watch is not None
        session.watch.close()
        if packed:
            pack(run)
        again = replay(run, eager(), strict=True)
        assert again.difference is None
        ids = [event.id for event in again.recorded]
        assert len(ids) == len(set(ids))
        assert not [problem for problem in verify(run) if "torn" not in problem]


@settings(max_examples=size(3, 40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(rewinds=st.lists(st.integers(0, 30), min_size=1, max_size=4), seed=st.integers(0, 2**20))
def test_a_rewind_gives_the_readings_and_warnings_of_a_straight_run(rewinds: list[int], seed: int) -> None:
    """The final lineage reads as if nothing had happened; alarms are compared with replay, above."""
    steps = 32
    with tempfile.TemporaryDirectory(dir=_fast()) as folder:
        straight = _run(Path(folder) / "straight", [(0, steps)], seed)
        parts, at = [], 0
        for rewind in rewinds:
            stop = min(steps, max(at, rewind) + 1)
            parts.append((at, stop))
            at = min(rewind, stop)
        rewound = _run(Path(folder) / "rewound", [*parts, (at, steps)], seed)
        assert rewound == straight


def _run(path: Path, parts: list[tuple[int, int]], seed: int) -> tuple[object, object]:
    """Readings by step and open warnings of the final lineage."""
    from tiltmeter.verdict.run_facts import RunFacts

    run = RunDirectory.create(path)
    for first, stop in parts:
        attempt = run.open_attempt(launch="x", ranks=1, resume_step=first)
        for step in range(first, stop):
            run.write(batch(attempt, step, 0, seed), 0, {})
        run.close_rank(attempt, 0, {"seen": 1})
        watch = MonitorLoop(run, eager(), strict=True)
        watch.poll()
        watch.close()
    events = journal.read_events(run.path / "events")
    story = RunFacts.from_events(events)
    spans = story.spans()
    kept = [event for event in events if event.step < spans.get(event.attempt, -1)]
    readings = {event.step: event.data for event in kept if event.kind == "reading"}
    warnings = [
        (event.step, event.data["name"], event.data["step"], event.data["onset"], event.data["resolved"])
        for event in kept
        if event.kind == "alarm" and event.data["tier"] == "warning"
    ]
    return readings, warnings


def _fast() -> str | None:
    """A memory file system where there is one: these tests are about logic, and fsync has tests of its own."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
