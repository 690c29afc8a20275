"""Slices in a watched run: the alarm names one, live and in a replay; who has no slices pays nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import RolloutBatch
from tiltmeter.gold.function import FunctionSource
from tiltmeter.gold.label_files import read_request
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.panel import run_instruments
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation
from tiltmeter.rundir.journal import Event, read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import RunFacts

NAMES = ("plain", "odd name \x1b[31m", "bad.one", "late", "other")
SAFE = ["bad_one", "late", "odd_name___31m.ce45", "other", "plain"]
TURN = 20


def batch(step: int, *, attempt: int = 0, bad: bool = True, env: bool = True) -> RolloutBatch:
    """Ten groups of four in five environments; from `TURN` on one of them pays for what gold does not want."""
    rng = np.random.default_rng([attempt, step])
    names = [NAMES[group // 2] if step >= 5 or group // 2 != 3 else "plain" for group in range(10) for _ in range(4)]
    gold = rng.random(40) < 0.5
    hacked = np.array([bad and step >= TURN and name == "bad.one" for name in names])
    reward = np.where(hacked, 1.0 - gold, gold) + 0.3 * rng.random(40)
    return from_columns(
        step, np.repeat(np.arange(10), 4), attempt=attempt, reward=reward, gold=gold.astype(float),
        prompt=[f"{name} {row // 4} {step}" for row, name in enumerate(names)],
        completion=["right" if good else "wrong" for good in gold],
        **({"env": names} if env else {}),
    )  # fmt: skip


def right(prompt: str, completion: str) -> float:
    return float(completion == "right")


def watch(run: RunDirectory, config: Config) -> list[Event]:
    loop = MonitorLoop(run, config, strict=True)
    while loop.poll():
        pass
    loop.close()
    return list(read_events(run.path / "events"))


def settings(labelled: bool) -> Config:
    config = Config.standard()
    names = ("reward.mean", "gold.mean", "gold.slope", "gold.prompts")
    few = tuple(part for part in config.instruments if part.name in names)
    config = Config(few, (), config.detectors[:1])
    return config.with_gold(FunctionSource("right", right), 0.9) if labelled else config


def alarms(events: list[Event]) -> list[Event]:
    return [event for event in events if event.kind == "alarm"]


def test_the_alarm_names_the_slice_and_a_replay_says_the_same(tmp_path: Path) -> None:
    run, config = RunDirectory.create(tmp_path / "run"), settings(labelled=False)
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(60):
        run.write(batch(step), 0, {})
        if step == 30:
            watch(run, config)  # it ends, and the next one restores what it knew
    run.close_rank(attempt, 0, {"seen": 60, "dropped": 0})
    events = watch(run, config)
    (raised,) = alarms(events)
    assert raised.data["name"] == "env.bad_one.gold.slope"
    assert raised.data["summary"].startswith("in environment bad_one the reward pushes gold down since about step ")
    assert TURN - 4 <= raised.data["onset_low"] <= raised.data["onset"] <= TURN + 6
    measured = next(event.data["measured"] for event in events if event.kind == "reading" and event.step == 40)
    assert [name for name, _ in measured["slices.gold.slope"][6]] == SAFE
    assert measured["slices.reward.mean"][5] == [8] * 5 and "env.late.gold.slope" in measured
    assert replay(run, config, strict=True).difference is None


def test_pairs_that_are_labelled_carry_their_slice_from_the_request_on(tmp_path: Path) -> None:
    run, config = RunDirectory.create(tmp_path / "run"), settings(labelled=True)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(12):
        run.write(batch(step), 0, {})
    events = watch(run, config)
    request = read_request(run, 0, 11)
    assert request is not None and {bet.slice for bet in request.bets if bet.purpose == "slope"} <= set(SAFE)
    closed = [event.data["measured"] for event in events if event.kind == "labels_closed"]
    sliced = [one["slices.gold.slope"] for one in closed if "slices.gold.slope" in one]
    assert sum(len(one[3]) for one in sliced) > 4 and {name for one in sliced for name, _ in one[6]} <= set(SAFE)
    bets = [one[name][3] for one in closed for name in ("gold.slope", "gold.duel") if name in one]
    assert RunFacts.from_events(events).bets == sum(map(len, bets))  # bets by slice are no further bets
    assert replay(run, config, strict=True).difference is None


def test_a_rollback_closes_the_alarm_of_a_slice(tmp_path: Path) -> None:
    run, config = RunDirectory.create(tmp_path / "run"), settings(labelled=False)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(70):
        run.write(batch(step), 0, {})
    (raised,) = alarms(watch(run, config))
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=raised.data["onset"])
    for step in range(raised.data["onset"], 70):
        run.write(batch(step, attempt=attempt, bad=False), 0, {})
    first, resolved = alarms(watch(run, config))
    assert (first.data["resolved"], resolved.data["resolved"]) == (None, raised.data["onset"])
    assert resolved.data["name"] == raised.data["name"]
    assert replay(run, config, strict=True).difference is None


def test_an_evaluation_of_one_environment_goes_to_its_slice(tmp_path: Path) -> None:
    run, config = RunDirectory.create(tmp_path / "run"), settings(labelled=False)
    attempt = run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(10):
        run.write(batch(step, env=False), 0, {})
        for env, value in (("a", 0.7), ("b", 0.7 if step < 5 else 0.3)):
            write_evaluation(run, Evaluation(attempt, step, "held_out", value, 400, env))
    run.close_rank(attempt, 0, {"seen": 10, "dropped": 0})
    events = watch(run, config)
    (raised,) = alarms(events)
    assert (raised.data["name"], raised.data["onset"]) == ("env.b.eval.held_out", 5)
    notes = [event.data for event in events if event.data.get("note") == "evaluation"]
    assert {tuple(note["measured"]) for note in notes} == {
        ("slices.eval.held_out", f"env.{env}.eval.held_out") for env in "ab"
    }
    assert len(RunFacts.from_events(events).evaluations) == 10  # occasions, not environments
    assert replay(run, config, strict=True).difference is None


def test_without_environments_nothing_is_added(tmp_path: Path) -> None:
    config = settings(labelled=False)
    plain = [one for part in run_instruments(config.instruments, batch(30, env=False), None) for one in part.readings]
    sliced = [one for part in run_instruments(config.instruments, batch(30), None) for one in part.readings]
    assert not [one for one in plain if one.slices or one.name.startswith(("slices.", "env."))]
    assert [one for one in sliced if not one.name.startswith(("slices.", "env."))] == plain
