"""The trial of a column that nobody named: the first labels of the run decide, and the journal says so again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.adapters.arguments import Options
from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.answer_column import chance_of_so_few, follow_trial
from tiltmeter.verdict.message import message
from tiltmeter.verdict.verdict import judge_run

AUTO = "answers:answer,as=number,trial=yes"
SOURCE = "the dataset's answers in 'answer', compared with the final answer of a completion, on trial"


def watch(
    folder: Path, gold: str, *, wrong_column: bool, steps: int = 20, better: float = 0.5, restart: bool = False
) -> tuple[Any, Any, RunDirectory]:
    """A policy that gets better at sums, paid for right ones. In a wrong column stands a number that is often said."""
    rng = random.Random(3)
    with open_run(folder, monitor=False, options=Options(on_full="wait")) as run:
        for step in range(steps):
            rows: dict[str, Any] = {name: [] for name in ("group", "reward", "prompt", "completion", "facts")}
            for group in range(4):
                k = step * 4 + group
                for _ in range(8):
                    right = rng.random() < 0.3 + better * step / steps
                    said = k + 2 if right else k + rng.choice((1, 3))
                    values = (group, float(right), f"What is {k} + 2?", f"It is {said}.",
                              {"answer": k + 1 if wrong_column else k + 2})  # fmt: skip
                    for name, value in zip(rows, values, strict=True):
                        rows[name].append(value)
            run.observe(step=step, **rows)
            if restart and step % 3 == 0:
                poll(RunDirectory(folder), gold)
    directory = RunDirectory(folder)
    poll(directory, gold)
    verdict, run_facts, _ = judge_run(directory)
    return verdict, run_facts, directory


def poll(directory: RunDirectory, gold: str) -> None:
    loop = MonitorLoop(directory, Config.standard(gold=gold, gold_share=1.0))
    loop.poll()
    loop.close()


@pytest.mark.parametrize("restart", [False, True])
def test_a_column_that_the_reward_contradicts_is_blind_and_never_an_alarm(tmp_path: Path, restart: bool) -> None:
    verdict, run_facts, directory = watch(tmp_path / "run", AUTO, wrong_column=True, restart=restart)
    assert verdict.state == "BLIND" and verdict.alarms == ()
    assert verdict.sentence.startswith("found 'answer', did not take it because the reward contradicts it")
    assert "gold='answers:answer'" in verdict.sentence
    assert run_facts.trial.state == "refused"
    shown = message(verdict, run_facts, place="run")
    assert "did not pass its trial" in shown.state and "gold='answers:answer'" in shown.what_to_do
    assert replay(directory, Config.standard()).difference is None


def test_who_names_the_column_is_believed(tmp_path: Path) -> None:
    verdict, run_facts, directory = watch(tmp_path / "run", "answers:answer", wrong_column=True)
    assert verdict.state == "ACT" and run_facts.trial is None
    assert replay(directory, Config.standard()).difference is None


def test_a_column_refused_once_judges_when_it_is_named_later(tmp_path: Path) -> None:
    _, _, directory = watch(tmp_path / "run", AUTO, wrong_column=True, steps=5)
    poll(directory, "answers:answer")
    _, run_facts, _ = judge_run(directory)
    assert run_facts.trial is not None and run_facts.trial.state == "refused" and run_facts.open_trial is None


def test_a_right_column_is_taken_and_judges(tmp_path: Path) -> None:
    verdict, run_facts, directory = watch(tmp_path / "run", AUTO, wrong_column=False, steps=45)
    assert run_facts.trial.state == "taken"
    assert verdict.state == "OK", verdict.sentence
    assert replay(directory, Config.standard()).difference is None


def readings(us: list[float], means: list[float]) -> dict[str, list[Any]]:
    return {"gold.slope": [0.0, len(us), None, us], "gold.prompts": [0.0, len(means), None, means]}


@pytest.mark.parametrize(
    ("us", "means", "state"),
    [
        ([-0.5] * 8, [0.5] * 8, "refused"),
        ([-0.5] * 8, [0.6] * 8, "taken"),  # no policy is so often right by a wrong column
        ([-0.5] * 7 + [0.5], [0.5] * 8, "taken"),  # chance may do it
        ([0.5] * 8, [0.5] * 8, "taken"),
        ([0.0] * 8, [0.5] * 8, "taken"),  # the reward is the same for all
        ([0.0] * 8, [0.0] * 8, "open"),  # gold never differs
        ([-0.5] * 3 + [0.0] * 5, [0.1] * 3 + [0.0] * 5, "open"),  # too few to tell, and against it
        ([0.5] + [0.0] * 7, [0.1] + [0.0] * 7, "open"),
    ],
)
def test_how_the_first_labels_decide(us: list[float], means: list[float], state: str) -> None:
    assert follow_trial(None, SOURCE, 64, readings(us, means)).state == state
    early = follow_trial(None, SOURCE, 32, readings(us, means))
    assert early.state == "open"
    assert follow_trial(early, SOURCE, 32, readings([], [])).state == state


def test_a_column_of_which_the_reward_knows_nothing_is_refused_by_chance_in_one_of_a_hundred() -> None:
    """Exact: over all numbers of prompts, at most `ALPHA` of fair signs are refused."""
    for n in range(7, 40):
        refused = [k for k in range(n + 1) if chance_of_so_few(k, n) <= 0.01]
        assert not refused or chance_of_so_few(max(refused), n) <= 0.01
    rng = random.Random(0)
    refused_runs = 0
    for _ in range(2000):
        trial = None
        for _ in range(20):
            us = [rng.choice((-0.3, 0.3)) if rng.random() < 0.4 else 0.0 for _ in range(4)]
            trial = follow_trial(trial, SOURCE, 32, readings(us, [0.5 if u else 0.0 for u in us]))
        refused_runs += trial is not None and trial.state == "refused"
    assert refused_runs <= 20
