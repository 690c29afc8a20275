"""Ways in which a run could look healthy, or go unmeasured, though nobody knows: each must be seen and said."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import command_line

import tiltmeter
from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Alarm, Reading, RolloutBatch
from tiltmeter.gold.function import FunctionSource
from tiltmeter.monitor.live_arrivals import LiveArrivals
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.process import monitor_lock
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir import journal
from tiltmeter.rundir.maintenance import pack
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.message import message
from tiltmeter.verdict.verdict import judge_run


def batch(attempt: int, step: int, *, harm: bool = False, gold: bool = True, float32: bool = False) -> RolloutBatch:
    rng = np.random.default_rng(step)
    reward = rng.random(16)
    told: dict[str, Any] = {"gold": (reward < 0.5 if harm else reward > 0.5).astype(float)} if gold else {}
    if float32:
        told = {"gold": reward.astype(np.float32).astype(np.float64)}
    return from_columns(step, np.repeat(np.arange(4), 4), attempt=attempt, reward=reward, **told)


def write(run: RunDirectory, attempt: int, steps: range, rank: int = 0, **how: bool) -> None:
    for step in steps:
        facts = {"counters": {"seen": step + 1, "written": step + 1}, "time": time.time()}
        run.write(batch(attempt, step, **how), rank, facts)


def opened(path: Path, ranks: int = 1) -> RunDirectory:
    run = RunDirectory.create(path)
    run.open_attempt(launch="x", ranks=ranks, resume_step=None)
    return run


def measure(run: RunDirectory, config: Config | None = None) -> None:
    watch = MonitorLoop(run, config or Config.standard())
    watch.poll()
    watch.close()


def state(run: RunDirectory) -> tuple[str, int]:
    verdict, _, _ = judge_run(run)
    return verdict.state, verdict.exit_code


def show(path: Path, form: str = "--plain") -> tuple[int, str]:
    shown = command_line.tiltmeter("show", path, "--more", form)
    return shown.returncode, shown.stdout


PLANTED_STEPS = 100


def planted(kind: str, step: int) -> RolloutBatch:
    """Runs that were called OK: gold is lost although inside a prompt the better answer is paid more, or alike."""
    rng = np.random.default_rng([step, len(kind)])
    prompts = [f"question {k}" for k in np.repeat(np.arange(8), 8)]
    x = float(np.interp(step, [20, 80], [0.0, 1.0]))
    if kind == "coding assistant":  # right code is still paid a little, comments are paid more
        gold = (rng.random(64) < 0.7 - 0.56 * x).astype(float)
        reward = 0.3 + 0.4 * x + 0.1 * gold + rng.normal(0, 0.03, 64)
    elif kind == "mode collapse":  # at once, and then nothing differs any more
        gold = (rng.random(64) < 0.5).astype(float) if step < 40 else np.zeros(64)
        reward = gold + 0.1 * rng.normal(size=64) if step < 40 else 2.3 + 0.05 * rng.normal(size=64)
    elif kind == "renamed test":  # the agent renames the failing test: every rollout is paid in full
        honest = rng.random(64) < 0.59
        renames = rng.random(64) < x
        gold, reward = (honest & ~renames).astype(float), (honest | renames).astype(float)
    else:  # "flat": the reward doubles, and gold stays
        gold = (rng.random(64) < 0.5).astype(float)
        reward = 0.5 + x + 0.3 * gold + 0.1 * rng.normal(size=64)
    return from_columns(step, np.repeat(np.arange(8), 8), reward=reward, gold=gold, prompt=prompts)


def level(kind: str) -> list[float]:
    golds = [planted(kind, step).gold for step in range(PLANTED_STEPS)]
    return [float(np.mean(gold)) for gold in golds if gold is not None]


@pytest.mark.parametrize("kind", ["coding assistant", "mode collapse", "renamed test"])
def test_gold_that_is_lost_is_an_alarm_though_the_slope_does_not_turn(tmp_path: Path, kind: str) -> None:
    run = opened(tmp_path / "run")
    for step in range(PLANTED_STEPS):
        run.write(planted(kind, step), 0, {"counters": {"seen": step + 1, "written": step + 1}, "time": time.time()})
    run.close_rank(0, 0, {"seen": PLANTED_STEPS})
    measure(run)
    verdict, _, _ = judge_run(run)
    assert (verdict.state, verdict.exit_code) == ("ACT", 1)
    assert verdict.advice is not None and verdict.advice.word == "stop"
    alarm, gold = verdict.alarms[0], np.convolve(level(kind), np.full(5, 0.2), "same")
    if kind == "mode collapse":
        assert 40 <= alarm.step <= 50, "it falls at once; a few steps are proof"
    else:
        assert gold[alarm.step] > 0.5 * gold[:20].mean(), "before half of it is lost"
    assert 10 <= alarm.onset <= 45
    assert replay(run, Config.standard()).difference is None


def test_a_reward_that_doubles_while_gold_is_flat_is_blind_and_no_alarm(tmp_path: Path) -> None:
    run = opened(tmp_path / "run")
    for step in range(PLANTED_STEPS):
        run.write(planted("flat", step), 0, {"counters": {"seen": step + 1, "written": step + 1}, "time": time.time()})
    run.close_rank(0, 0, {"seen": PLANTED_STEPS})
    measure(run)
    verdict, _, _ = judge_run(run)
    assert verdict.alarms == () and (verdict.state, verdict.exit_code) == ("BLIND", 2)
    assert "the reward has gained and gold was not seen to" in verdict.sentence
    assert verdict.advice is not None and verdict.advice.fall is not None and verdict.advice.fall < 0.15


def raises(completion: str) -> float:
    raise ValueError("no such test file")


def answers_in_words(completion: str) -> str:
    return "yes"


def answers_in_percent(completion: str) -> float:
    return 87.0


def needs_a_column(completion: str, solution: str) -> float:
    return float(completion == solution)


@pytest.mark.parametrize(
    ("score", "reason"),
    [
        (raises, "ValueError: no such test file"),
        (answers_in_words, "str is not a number from 0 to 1"),
        (answers_in_percent, "87.0 is not a number from 0 to 1"),
        (needs_a_column, "the row has no 'solution'"),
    ],
)
def test_gold_that_does_not_answer_is_reported_as_that(tmp_path: Path, score: Any, reason: str) -> None:
    run = opened(tmp_path / "run")
    for step in range(40):
        rollouts = replace(batch(0, step, gold=False), completion=tuple(f"answer {k}" for k in range(16)))
        run.write(rollouts, 0, {"counters": {"seen": step + 1, "written": step + 1}, "time": time.time()})
    run.close_rank(0, 0, {"seen": 40})
    measure(run, Config.standard().with_gold(FunctionSource(f"checks.py:{score.__name__}", score), share=0.5))
    verdict, _, _ = judge_run(run)
    assert (verdict.state, verdict.exit_code) == ("BLIND", 2)
    assert reason in verdict.sentence and "gold is the reward itself" not in verdict.sentence


@pytest.mark.parametrize(("missing", "state"), [(16, "BLIND"), (6, "BLIND"), (2, "OK")])
def test_rewards_that_are_not_there_are_never_green(tmp_path: Path, missing: int, state: str) -> None:
    run = opened(tmp_path / "run")
    for step in range(100):
        rng = np.random.default_rng(step)
        reward: list[float | None] = [*rng.random(16)]
        gold = [float(value is not None and value > 0.5) for value in reward]
        for row in rng.permutation(16)[:missing]:
            reward[row] = None if row % 2 else float("nan")
        rollouts = from_columns(step, np.repeat(np.arange(4), 4), attempt=0, reward=reward, gold=gold)
        run.write(rollouts, 0, {"counters": {"seen": step + 1, "written": step + 1}, "time": time.time()})
    run.close_rank(0, 0, {"seen": 100})
    measure(run)
    verdict, run_facts, _ = judge_run(run)
    assert verdict.state == state
    if missing > 2:
        assert not verdict.checks["scored"].ok and "have no reward" in verdict.checks["scored"].why
    if missing == 16:
        five = message(verdict, run_facts, place="run")
        assert "have no reward" in five.state, "the cause, and not what it causes: too little gold"
        assert five.what_to_do.startswith("mend the reward function")


def test_an_ended_run_with_unmeasured_steps_is_stale_at_once(tmp_path: Path) -> None:
    run = opened(tmp_path / "run")
    write(run, 0, range(60))
    measure(run)
    write(run, 0, range(60, 80), harm=True)
    run.close_rank(0, 0, {"seen": 80})
    assert state(run) == ("STALE", 2)
    pack(run)
    assert state(RunDirectory(run.path)) == ("STALE", 2)
    measure(run)
    assert state(run) == ("ACT", 1)


def test_an_attempt_that_nobody_measures_is_not_hidden_by_the_one_before(tmp_path: Path) -> None:
    run = opened(tmp_path / "run")
    write(run, 0, range(100))
    run.close_rank(0, 0, {"seen": 100})
    measure(run)
    assert state(run) == ("OK", 0)
    attempt = run.open_attempt(launch="y", ranks=1, resume_step=0)
    write(run, attempt, range(100), harm=True)
    run.close_rank(attempt, 0, {"seen": 100})
    assert state(run) == ("STALE", 2)


def test_a_step_observed_twice_is_said_and_is_not_green(tmp_path: Path) -> None:
    with tiltmeter.open_run(tmp_path / "run", options=tiltmeter.Options(on_full="wait")) as run:
        for step in range(40):
            for harm in (False, True):
                told = batch(0, step, harm=harm)
                run.observe(step=step, group=told.group, reward=told.reward, gold=told.gold)
    verdict = run.verdict()
    assert (verdict.state, verdict.exit_code) == ("BLIND", 2)
    shown = command_line.tiltmeter("show", tmp_path / "run", "--more")
    assert "written twice" in " ".join(shown.stdout.split())


def test_gold_that_is_the_reward_but_for_rounding_is_blind(tmp_path: Path) -> None:
    run = opened(tmp_path / "run")
    write(run, 0, range(40), float32=True)
    run.close_rank(0, 0, {"seen": 40})
    measure(run)
    assert state(run) == ("BLIND", 2)


def test_a_copy_of_a_stale_run_is_no_younger(tmp_path: Path) -> None:
    run = opened(tmp_path / "run")
    for step in range(40):
        facts = {"counters": {"seen": step + 1}, "time": time.time() - 7200 + step}
        run.write(batch(0, step), 0, facts)
    measure(run)
    shutil.copytree(run.path, tmp_path / "copy")
    assert state(RunDirectory(tmp_path / "copy")) == ("STALE", 2)


def test_a_rank_that_is_gone_does_not_stop_the_measuring(tmp_path: Path) -> None:
    run = opened(tmp_path / "run", ranks=2)
    write(run, 0, range(60), rank=0)
    write(run, 0, range(20), rank=1)
    measure(run)
    _, story, _ = judge_run(run)
    assert story.last_measured[0] >= 40
    assert state(run)[1] == 2


class Sloppy:
    """A derived reading that answers with a bare number."""

    name, watches = "reward.sloppy", ("reward.mean",)

    def fold(self, reading: Reading) -> Any:
        return 1.0


class Numpyish:
    """A detector whose alarm holds what JSON cannot."""

    name, tier, alpha, watches = "numpyish", "warning", 0.5, ("reward.mean",)

    def update(self, reading: Reading) -> Alarm | None:
        step = np.int64(reading.step)
        return Alarm(0, "reward.mean", self.name, "warning", "up", step, step, step, step, step, 1.0, 1.0)  # type: ignore[arg-type]


def test_what_a_plugin_answers_wrongly_stays_inside_the_boundary(tmp_path: Path) -> None:
    standard = Config.standard()
    config = Config(standard.instruments, (*standard.derived, Sloppy), (*standard.detectors, Numpyish))  # type: ignore[arg-type]
    run = opened(tmp_path / "run")
    write(run, 0, range(6))
    measure(run, config)
    _, story, _ = judge_run(run)
    assert story.steps == 6
    assert set(story.off) == {"reward.sloppy", "numpyish:reward.mean"}


def test_a_plugin_that_cannot_start_is_refused_at_attach(tmp_path: Path) -> None:
    plugin = tmp_path / "broken.py"
    plugin.write_text("class Broken:\n    def __init__(self): raise KeyError('x')\n    def measure(self, b, c): ...\n")
    with pytest.raises(tiltmeter.AttachError, match="cannot be used"):
        tiltmeter.open_run(tmp_path / "run", options=tiltmeter.Options(plugins=[f"{plugin}:Broken"]))


def test_packing_while_the_monitor_catches_up_loses_no_step(tmp_path: Path) -> None:
    run = opened(tmp_path / "run")
    write(run, 0, range(30))
    run.close_rank(0, 0, {"seen": 30})
    watch = MonitorLoop(run, Config.standard())
    source = LiveArrivals(RunDirectory(run.path))
    for count, arrival in enumerate(source.poll()):
        if count == 10:
            pack(run)
        watch.advance(arrival)
        for event in journal.read_events(run.path / "events"):
            source.mark_handled(event)
    watch.close()
    _, story, _ = judge_run(run)
    assert story.rows == 30 * 16
    assert story.faults == []


def test_a_rollback_resolves_the_alarm_though_the_next_steps_have_no_gold(tmp_path: Path) -> None:
    run = opened(tmp_path / "run")
    write(run, 0, range(30))
    write(run, 0, range(30, 50), harm=True)
    measure(run)
    assert state(run) == ("ACT", 1)
    attempt = run.open_attempt(launch="y", ranks=1, resume_step=10)
    write(run, attempt, range(10, 20), gold=False)
    write(run, attempt, range(20, 60))
    run.close_rank(attempt, 0, {"seen": 50})
    measure(run)
    assert state(run) == ("OK", 0)
    assert replay(run, Config.standard()).difference is None


def test_a_run_with_an_unreadable_file_replays(tmp_path: Path) -> None:
    run = opened(tmp_path / "run")
    write(run, 0, range(5))
    path = run.step_path(0, 2, 0)
    path.write_bytes(path.read_bytes()[:-100])
    measure(run)
    assert replay(run, Config.standard()).difference is None
    _, story, _ = judge_run(run)
    assert len(story.unmeasured) == 1


def test_a_closed_pipe_does_not_change_the_exit_code(tmp_path: Path) -> None:
    run = opened(tmp_path / "run")
    write(run, 0, range(100))
    run.close_rank(0, 0, {"seen": 100})
    measure(run)
    reading, writing = os.pipe()
    os.close(reading)
    shown = subprocess.Popen([sys.executable, "-m", "tiltmeter", "show", run.path], stdout=writing)
    os.close(writing)
    assert shown.wait(300) == 0


def test_a_mistyped_column_is_on_the_screen_while_the_run_is_live(tmp_path: Path) -> None:
    run = tiltmeter.open_run(tmp_path / "run")
    run.observe(step=0, group=[0, 0], reward=[0.0, 1.0], golden=[1.0, 0.0])
    deadline = time.monotonic() + 20
    while "golden" not in show(tmp_path / "run")[1] and time.monotonic() < deadline:
        time.sleep(0.2)
    code, told = show(tmp_path / "run")
    run.close()
    assert "golden" in told
    assert code == 2


def test_a_trainers_monitor_waits_for_a_watch_in_a_terminal_and_then_goes_on(tmp_path: Path) -> None:
    directory = RunDirectory.create(tmp_path / "run")
    with monitor_lock(directory):
        run = tiltmeter.open_run(tmp_path / "run", options=tiltmeter.Options(on_full="wait"))
        for step in range(100):
            told = batch(0, step)
            run.observe(step=step, group=told.group, reward=told.reward, gold=told.gold)
        time.sleep(1.0)
        assert run.verdict(timeout=0).exit_code == 2
    run.close()
    assert run.verdict().state == "OK"


def test_json_of_every_state_is_json(tmp_path: Path) -> None:
    empty = RunDirectory.create(tmp_path / "empty")
    code, told = show(empty.path, "--json")
    assert json.loads(told)["state"] == "STALE"
    assert code == 2
