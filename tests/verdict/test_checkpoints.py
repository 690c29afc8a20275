"""A run without rollouts whose checkpoints were asked the same prompts: its verdict, its words, and its replay."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from tests.sizes import size

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Reading
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.stats.checkpoint_falls import CheckpointFallTest
from tiltmeter.stats.intervals import upper_bound
from tiltmeter.verdict.verdict import Verdict, judge_run

NAME = "checkpoint_gold"


def offline_run(
    path: Path, means: Sequence[float], *, prompts: int = 120, unknown: int = 0, missed: int = 0
) -> tuple[RunDirectory, Verdict]:
    """A run that logs its loss at every step and saves every ten; `means`: gold of each checkpoint."""
    run = RunDirectory.create(path)
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None, settings={"checkpoint_gold": "checks.py:score"})
    rng, steps = np.random.default_rng(7), 10 * (len(means) - 1)
    ease = rng.uniform(-0.2, 0.2, prompts)
    for step in range(1, steps + 1):
        batch = from_columns(step, np.zeros(0, np.int64), scalars={"loss": 1.0})
        run.write(batch, 0, {"counters": {"seen": step, "written": step}, "time": time.time()})
    for at, mean in enumerate(means):
        gold = rng.binomial(4, np.clip(mean + ease, 0.0, 1.0)) / 4
        values = [None if prompt < unknown else float(value) for prompt, value in enumerate(gold)]
        there = [value for value in values if value is not None]
        gone = missed if at == 2 else 0
        level = sum(there) / len(there)
        write_evaluation(
            run, Evaluation(attempt, 10 * at, NAME, level, len(there), "", tuple(values), "the judge", gone)
        )
    run.close_rank(attempt, 0, {"seen": steps, "dropped": 0})
    watch = MonitorLoop(run, Config.standard(), strict=True)
    while watch.poll():
        pass
    watch.close()
    return run, judge_run(run)[0]


def test_a_healthy_offline_run_is_ok_and_says_what_is_excluded(tmp_path: Path) -> None:
    run, verdict = offline_run(tmp_path / "run", [0.4, 0.5, 0.6, 0.6], missed=2)
    assert (verdict.state, verdict.exit_code) == ("OK", 0), verdict.sentence
    assert "4 checkpoints asked the same 120 questions (2 more were gone before" in verdict.sentence
    assert "judged by the judge" in verdict.sentence and "or more is excluded" in verdict.sentence
    assert verdict.advice is not None and verdict.advice.word == "continue" and verdict.advice.best is not None
    assert replay(run, Config.standard(), strict=True).difference is None


def test_a_fall_behind_the_peak_is_an_alarm_with_an_onset(tmp_path: Path) -> None:
    run, verdict = offline_run(tmp_path / "run", [0.4, 0.6, 0.8, 0.6, 0.4])
    assert (verdict.state, verdict.exit_code) == ("ACT", 1)
    [alarm] = verdict.alarms
    assert alarm.name == f"eval.{NAME}" and 20 < alarm.onset <= 40
    assert "gold of checkpoints has fallen" in verdict.sentence and "judged by the judge" in verdict.sentence
    assert verdict.advice is not None and verdict.advice.word == "stop"
    assert verdict.advice.best is not None and verdict.advice.best.step == 20
    assert replay(run, Config.standard(), strict=True).difference is None


def test_one_checkpoint_few_prompts_or_gold_that_is_missing_is_blind_with_the_reason(tmp_path: Path) -> None:
    for folder, means, options, why in (
        ("none", [], {}, "no step has been measured"),
        ("one", [0.5], {}, "no step has been measured"),
        ("few", [0.5, 0.5], {"prompts": 6}, "no fall of gold is excluded"),
        ("missing", [0.5, 0.5, 0.5], {"unknown": 30}, "have no gold for the checkpoint at step 20"),
    ):
        _, verdict = offline_run(tmp_path / folder, means, **options)
        assert verdict.state in ("BLIND", "STALE") and verdict.exit_code == 2, folder
        reasons = [check.why for check in verdict.checks.values() if not check.ok]
        assert any(why in reason for reason in reasons), (folder, reasons)


def test_the_running_test_keeps_its_bound_over_all_looks_and_one_that_pays_nothing_for_looks_does_not() -> None:
    """The control: best of many looks, without the weights."""
    rng, runs, crossed, greedy = np.random.default_rng(1), size(250, 4_000), 0, 0
    for _ in range(runs):
        chance = rng.uniform(0.1, 0.9, 40)
        test, bets = CheckpointFallTest(tolerance=0.0), []
        for step in range(12):
            test.place(step, rng.binomial(2, chance) / 2)
            bets.append(test.evidence)
        crossed += max(bets) >= np.log(10.0)
        greedy += _sum_without_weights(test) >= np.log(10.0)
    assert crossed / runs <= 0.1 and upper_bound(crossed, runs) <= 0.1
    assert greedy > crossed


def _sum_without_weights(test: CheckpointFallTest) -> float:
    return float(np.logaddexp.reduce([bet + np.log(t * (t + 1.0)) for t, bet in enumerate(test._bets, 1)]))


def test_prompts_of_another_number_are_refused_and_a_rewind_begins_anew() -> None:
    gold_test = GoldLossTest()
    gold_test.update(Reading(0, 10, f"eval.{NAME}", 0.5, 4, None, (0.5,) * 4))
    try:
        gold_test.update(Reading(0, 20, f"eval.{NAME}", 0.5, 3, None, (0.5,) * 3))
    except ValueError as error:
        assert "3 prompts, and the checkpoint before was asked 4" in str(error)
    else:
        raise AssertionError("two sets of prompts were compared")
    gold_test.rewind(1, 5)
    gold_test.update(Reading(1, 10, f"eval.{NAME}", 0.5, 3, None, (0.5,) * 3))
    assert np.isfinite(gold_test.evidence)
