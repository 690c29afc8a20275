"""Bought gold, with rewinds, late or slow answers and a monitor killed at any line, gives what replay gives."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.sizes import size

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.detectors.limit import Limit
from tiltmeter.gold import LATER, CompletionToLabel, GoldAnswer, label_queue, level_sampler
from tiltmeter.gold.label_files import read_labels, read_request
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir import atomic_write, journal
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.stats import level_drop

SHARE = 0.9


class KilledError(BaseException):
    """The monitor's process is gone."""


@dataclass
class Fate:
    """When the monitor dies next: counted in lines and files that it makes durable."""

    rng: np.random.Generator
    every: int
    left: int = 0

    def born(self) -> None:
        self.left = int(self.rng.integers(1, self.every + 1)) if self.every else 0

    def strikes(self) -> bool:
        self.left -= 1
        return self.every > 0 and self.left == 0


@dataclass
class Source:
    """Answers at once, or `late` of the time later; some never come. `slow`: a call takes as long as steps do."""

    rng: np.random.Generator
    late: float
    name: str = "source"
    identity: str = "a source of the tests"
    judged: bool = False
    timeout: float = 1e9
    patient: bool = False
    slow: bool = False
    answered: list[str] = field(default_factory=list)

    def label(self, requests: Sequence[CompletionToLabel]) -> Sequence[GoldAnswer]:
        told: list[GoldAnswer] = []
        if self.slow and not self.patient:
            time.sleep(0.01 * self.rng.random())
        for request in requests:
            if not self.patient and self.rng.random() < self.late:
                told.append(LATER)
                continue
            number = int(request.completion.split()[-1])
            told.append(None if number % 13 == 0 else (number % 7) / 6)
        return told


def eager(source: Source) -> Config:
    """Detectors that speak often; promises are tested elsewhere."""
    standard = Config.standard()
    parts = tuple(part for part in standard.instruments if part.name in ("reward.mean", "reward.dead_share"))
    detectors = (lambda: GoldLossTest(alpha=0.9), lambda: Limit("reward.dead_share", 0.3, alpha=0.9, block=2))
    return Config(parts, standard.derived, detectors).with_gold(source, SHARE)


def batch(attempt: int, step: int, rank: int, seed: int) -> RolloutBatch:
    rng = np.random.default_rng([step, rank, seed])
    rows = int(rng.integers(0, 24))
    group = rng.integers(0, 4, rows)
    columns: dict[str, Any] = {"completion": [f"answer {rng.integers(0, 10**6)}" for _ in range(rows)]}
    if rng.random() < 0.1:
        columns = {}
    reward = rng.integers(0, 3, rows).astype(float)
    return from_columns(step, group, attempt=attempt, reward=reward, prompt=[f"p{k}" for k in group], **columns)


@dataclass
class Session:
    """A monitor over one directory, started again whenever it is killed."""

    run: RunDirectory
    source: Source
    fate: Fate
    watch: MonitorLoop | None = None

    def poll(self) -> None:
        with mock.patch("tiltmeter.gold.label_files.publish", self._publish):
            while True:
                try:
                    self.watch = self.watch or self._started()
                    self.watch.poll()
                    return
                except KilledError:
                    self.watch = None

    def _publish(self, path: Path, pieces: Sequence[bytes]) -> bool:
        struck = self.fate.strikes()
        if struck and self.fate.rng.random() < 0.5:
            raise KilledError  # before the file is there
        done = atomic_write.publish(path, pieces)
        if struck:
            raise KilledError  # after it
        return done

    def _started(self) -> MonitorLoop:
        watch = MonitorLoop(self.run, eager(self.source), strict=True)
        assert watch.label_queue is not None
        watch.label_queue.in_hurry = self.source.slow
        self.fate.born()
        commit = watch.journal.commit

        def counted(events: Iterable[journal.Event]) -> None:
            events = list(events)
            if self.fate.strikes():
                line = journal.encode_commit(events, watch.journal.seq)
                os.write(watch.journal._open(events[0].attempt), line[: int(self.fate.rng.integers(0, len(line)))])
                watch.close()
                raise KilledError
            commit(events)

        watch.journal.commit = counted  # type: ignore[method-assign]
        return watch


@dataclass(frozen=True)
class Attempt:
    first: int
    steps: int
    ranks: int
    shared: bool
    closes: bool


attempts = st.builds(Attempt, st.integers(0, 6), st.integers(1, 8), st.integers(1, 2), st.booleans(), st.booleans())


def live(
    path: Path,
    plan: list[Attempt],
    seed: int,
    kill_every: int,
    late: float,
    identity: str = "a source of the tests",
    slow: bool = False,
) -> RunDirectory:
    """The same run, whatever happens to its monitor: `kill_every` and `late` have randomness of their own."""
    rng = np.random.default_rng(seed)
    run = RunDirectory.create(path, {"id": "one run"})
    source = Source(np.random.default_rng([seed, 1]), late, identity=identity, slow=slow)
    session = Session(run, source, Fate(np.random.default_rng([seed, 2]), kill_every))
    for part in plan:
        attempt = run.open_attempt(launch="x", ranks=part.ranks, resume_step=None)
        for step in range(part.first, part.first + part.steps):
            for rank in range(part.ranks):
                facts = {"groups": "shared" if part.shared else "rank", "counters": {"seen": 9}}
                run.write(batch(attempt, step, rank, seed), rank, facts)
            if step % 3 == 0:
                write_evaluation(run, Evaluation(attempt, step, "eval", rng.random(), 20))
            if rng.random() < 0.5:
                session.poll()
        if part.closes:
            for rank in range(part.ranks):
                run.close_rank(attempt, rank, {"seen": 9})
    session.poll()
    source.patient = True
    session.poll()
    assert session.watch is not None
    while slow and session.watch.waiting:
        session.poll()
    assert not session.watch.waiting
    session.watch.close()
    return run


@contextmanager
def windows_open_soon() -> Iterator[None]:
    """Runs of a few steps: the level of gold is compared with the first of them, whatever it looks like."""
    with (
        mock.patch.object(level_drop, "WINDOW", 2),
        mock.patch.multiple(level_sampler, LEAST_OPENING=2, GAP=-1.0, SURE=-9.0, RECENT=2),
    ):
        yield


def test_runs_of_these_tests_open_windows() -> None:
    """The check can fail: the tests below are about windows only if there are any."""
    with tempfile.TemporaryDirectory(dir=_fast()) as folder, windows_open_soon():
        run = live(
            Path(folder) / "run", [Attempt(0, 8, 1, True, True)], 3, 0, 0.0, identity="the function of the tests"
        )
        names = [name for event in read_events(run.path / "events") for name in event.data.get("measured", {})]
        assert {"gold.answers", "gold.reference", "gold.change"} <= set(names)


@settings(max_examples=size(4, 100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    plan=st.lists(attempts, min_size=1, max_size=3),
    seed=st.integers(0, 2**20),
    kill_every=st.sampled_from([0, 5, 11, 31]),
    late=st.sampled_from([0.0, 0.0, 0.4, 0.9]),
    identity=st.sampled_from(["a source of the tests", "the function of the tests"]),
)
def test_bought_gold_live_equals_replay(
    plan: list[Attempt], seed: int, kill_every: int, late: float, identity: str
) -> None:
    with tempfile.TemporaryDirectory(dir=_fast()) as folder, windows_open_soon():
        run = live(Path(folder) / "run", plan, seed, kill_every, late, identity)
        again = replay(run, eager(Source(np.random.default_rng(0), 0.0, identity=identity)), strict=True)
        assert again.difference is None
        ids = [event.id for event in again.recorded]
        assert len(ids) == len(set(ids))
        closed = [(e.attempt, e.step) for e in again.recorded if e.kind == "labels_closed"]
        drawn = [(e.attempt, e.step) for e in again.recorded if e.kind == "step_done" and "requests" in e.data]
        assert closed == drawn, "steps close in the order in which they were drawn, and all of them do"
        for key in drawn:
            asked = read_request(run, *key)
            assert asked is not None
            assert None not in read_labels(run, asked)


@settings(max_examples=size(3, 100), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    plan=st.lists(attempts, min_size=1, max_size=3),
    seed=st.integers(0, 2**20),
    kill_every=st.sampled_from([0, 5, 11, 31]),
    most=st.sampled_from([1, 3]),
    share=st.sampled_from([0.9, 1.0]),
)
def test_labels_that_nobody_waits_for_live_equals_replay(
    plan: list[Attempt], seed: int, kill_every: int, most: int, share: float
) -> None:
    """Steps overtake their labels, and while too many are open nothing is asked about further ones."""
    with (
        tempfile.TemporaryDirectory(dir=_fast()) as folder,
        windows_open_soon(),
        mock.patch.multiple(label_queue, STEP_SECONDS=0.002, MAX_OPEN_STEPS=most),
        mock.patch(f"{__name__}.SHARE", share),
    ):
        run = live(Path(folder) / "run", plan, seed, kill_every, 0.0, identity="the function of the tests", slow=True)
        again = replay(run, eager(Source(np.random.default_rng(0), 0.0, identity="the function of the tests")))
        assert again.difference is None
        closed = [(e.attempt, e.step) for e in again.recorded if e.kind == "labels_closed"]
        drawn = [(e.attempt, e.step) for e in again.recorded if e.kind == "step_done" and "requests" in e.data]
        assert closed == drawn


def test_steps_of_these_tests_overtake_their_labels() -> None:
    """The check can fail: the test above is about steps that are not asked about only if there are any."""
    with (
        tempfile.TemporaryDirectory(dir=_fast()) as folder,
        mock.patch.multiple(label_queue, STEP_SECONDS=0.002, MAX_OPEN_STEPS=1),
    ):
        run = live(Path(folder) / "run", [Attempt(0, 60, 1, True, True)], 3, 0, 0.0, slow=True)
        behind = [event.step for event in read_events(run.path / "events") if event.data.get("behind")]
        assert len(behind) > 1


@settings(max_examples=size(2, 8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    plan=st.lists(attempts, min_size=1, max_size=2),
    seed=st.integers(0, 2**20),
    kill_every=st.sampled_from([4, 9, 23]),
    identity=st.sampled_from(["a source of the tests", "the function of the tests"]),
)
def test_a_monitor_that_is_killed_asks_what_one_that_lives_asks(
    plan: list[Attempt], seed: int, kill_every: int, identity: str
) -> None:
    with tempfile.TemporaryDirectory(dir=_fast()) as folder, windows_open_soon():
        one, two = (
            live(Path(folder) / str(every), plan, seed, every, 0.0, identity=identity) for every in (0, kill_every)
        )
        names = sorted(path.name for path in (one.path / "gold" / "requests").iterdir())
        assert names == sorted(path.name for path in (two.path / "gold" / "requests").iterdir())
        for name in names:
            attempt, step = map(int, name.removesuffix(".jsonl").split("-"))
            asked, again = read_request(one, attempt, step), read_request(two, attempt, step)
            assert asked is not None
            assert again is not None
            assert asked.digest == again.digest
            assert read_labels(one, asked) == read_labels(two, again)


def _fast() -> str | None:
    """A memory file system where there is one: these tests are about logic, and fsync has tests of its own."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
