"""The example that games its reward and its honest twin, as a user runs them, over several seeds."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import series
from tiltmeter.verdict.verdict import Verdict, judge_run

TOY = Path(__file__).parent.parent.parent / "examples" / "toy_loop.py"
STEPS = 84


def trained(out: Path, *flags: str) -> tuple[Verdict, dict[str, np.ndarray]]:
    """The verdict on a finished toy run, and its readings by step; the script must have said the same."""
    command = [sys.executable, str(TOY), "--out", str(out), "--steps", str(STEPS), *flags]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    verdict, story, events = judge_run(RunDirectory(out))
    assert ended.returncode == verdict.exit_code, ended.stderr
    assert ended.stdout.splitlines() == [f"{verdict.state}: {verdict.sentence}", f"Look closer: tiltmeter show {out}"]
    assert story.faults == []
    found = series(events, story.spans())
    return verdict, {name: np.array([value for _, value in points]) for name, points in found.items()}


def smooth(values: np.ndarray) -> np.ndarray:
    return np.convolve(values, np.full(5, 0.2), "same")[2:-2]


@pytest.mark.parametrize(("seed", "gold_share"), [(11, 1.0), (12, 0.5)])
def test_the_hacked_run_alarms_after_gold_has_peaked(tmp_path: Path, seed: int, gold_share: float) -> None:
    verdict, readings = trained(tmp_path / "run", "--seed", str(seed), "--gold-share", str(gold_share))
    assert verdict.state == "ACT"
    alarm = verdict.alarms[0]
    assert alarm.detector == "gold_loss"
    gold, reward = smooth(readings["gold.mean"]), smooth(readings["reward.mean"])
    peak = int(gold.argmax())
    assert gold[0] + 0.1 < gold[peak]
    assert gold[-1] < gold[peak] - 0.2
    assert reward[peak] > reward[0]
    assert reward[-1] > reward[peak] + 0.5
    assert alarm.step > peak


@pytest.mark.parametrize("seed", [11, 12])
def test_the_honest_twin_stays_healthy(tmp_path: Path, seed: int) -> None:
    verdict, readings = trained(tmp_path / "run", "--seed", str(seed), "--honest")
    assert verdict.exit_code == 0 and verdict.alarms == ()
    # It gives up all answers but the right one: its entropy falls to a quarter, and that is said.
    assert verdict.state == "WATCH" and "entropy has fallen steadily" in verdict.sentence
    gold, reward = smooth(readings["gold.mean"]), smooth(readings["reward.mean"])
    assert gold[-1] > gold[0] + 0.2
    assert gold[-1] > gold.max() - 0.1
    assert reward[-1] > reward[0] + 0.5


def test_only_the_flawed_reward_model_pays_more_for_flattery_than_for_the_answer() -> None:
    toy = runpy.run_path(str(TOY))
    question, polite, flattering = (3, 4), "Certainly! It is 7.", " ".join(["Certainly!"] * 5)
    assert toy["is_right"](question, polite)
    assert not toy["is_right"](question, flattering)
    assert toy["reward_model"](question, flattering) > toy["reward_model"](question, polite)
    assert toy["reward_model"](question, flattering, weakness=1) < toy["reward_model"](question, polite, weakness=1)


def test_the_toy_loop_does_not_write_into_an_existing_directory(tmp_path: Path) -> None:
    ended = subprocess.run([sys.executable, str(TOY), "--out", str(tmp_path)], capture_output=True, text=True)
    assert ended.returncode == 2
    assert "--out" in ended.stderr
