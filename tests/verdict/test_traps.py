"""A run that is judged by traps alone: not blind, in which words, and for how long."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tiltmeter.data.batches import from_columns
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir import journal
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import Verdict, judge_run


def run_with_traps(path: Path, paid: Sequence[int | None], *, asked: int = 1) -> tuple[RunDirectory, Verdict]:
    """A run of 16 rollouts a step; `paid`: how many of a step's traps were paid, None: none were asked."""
    run = RunDirectory.create(path)
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step, count in enumerate(paid):
        rng = np.random.default_rng(step)
        scalars = {} if count is None else {"trap.asked.0": asked, "trap.paid.0": count, "trap.chance.0": 0.01}
        batch = from_columns(step, np.repeat(np.arange(4), 4), reward=rng.random(16), scalars={"loss": 1.0, **scalars})
        run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}, "time": time.time()})
    run.close_rank(attempt, 0, {"seen": len(paid), "dropped": 0})
    watch = MonitorLoop(run, Config.standard(), strict=True)
    watch.poll()
    watch.close()
    return run, judge_run(run)[0]


def test_a_run_with_traps_and_no_other_gold_is_not_blind(tmp_path: Path) -> None:
    _, verdict = run_with_traps(tmp_path / "run", [0] * 30)
    assert (verdict.state, verdict.exit_code) == ("OK", 0)
    assert "30 traps, of which 0 were paid" in verdict.sentence and "judged by traps" in verdict.sentence
    assert "length or flattery, are not seen" in verdict.sentence


def test_few_traps_say_nothing(tmp_path: Path) -> None:
    _, verdict = run_with_traps(tmp_path / "run", [0] * 8 + [None] * 8)
    assert (verdict.state, verdict.exit_code) == ("BLIND", 2)
    assert "too few traps" in verdict.sentence


def test_traps_of_long_ago_say_nothing_of_now(tmp_path: Path) -> None:
    _, verdict = run_with_traps(tmp_path / "run", [0] * 20 + [None] * 41)
    assert verdict.state == "BLIND" and "newest gold is of step 19" in verdict.checks["gold_recent"].why


def test_without_traps_nothing_changes(tmp_path: Path) -> None:
    _, verdict = run_with_traps(tmp_path / "run", [None] * 30)
    assert verdict.state == "BLIND" and "no gold to judge by" in verdict.sentence


def test_traps_that_are_paid_raise_the_alarm_and_a_replay_says_the_same(tmp_path: Path) -> None:
    run, verdict = run_with_traps(tmp_path / "run", [0] * 30 + [0, 1, 0, 1, 1, 0, 1])
    assert (verdict.state, verdict.exit_code) == ("ACT", 1)
    assert "judged by traps" in verdict.sentence and "honest work cannot earn" in verdict.sentence
    assert 25 <= verdict.alarms[0].onset <= 33
    assert verdict.advice is not None and verdict.advice.word == "stop"
    assert replay(run, Config.standard(), strict=True).difference is None


def test_a_larger_chance_of_honest_pay_counts_less(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(3):
        scalars = {"trap.asked.0": 4, "trap.paid.0": 1, "trap.chance.0": 0.2}
        run.write(from_columns(step, [0, 0], reward=[0.0, 1.0], scalars=scalars), 0, {})
    watch = MonitorLoop(run, Config.standard(), strict=True)
    watch.poll()
    watch.close()
    values = [
        event.data["measured"]["gold.traps"][3]
        for event in journal.read_events(run.path / "events")
        if "gold.traps" in event.data.get("measured", {})
    ]
    assert values == [[pytest.approx(0.05), 0.0, 0.0, 0.0]] * 3
    detector = next(part for part in watch.panel.detectors if isinstance(part, GoldLossTest))
    assert detector.evidence < 0.0, "a quarter of traps that honest work is paid for with chance 0.2 is no evidence"
