"""`tiltmeter onset`: a curve, an interval and a checkpoint, from what a run knows or from labels bought now."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tiltmeter.cli import app
from tiltmeter.data.batches import from_columns
from tiltmeter.errors import StoreError
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run

CHECKS = "def score(completion):\n    return float(completion.endswith('right'))\n"
PEAK, STEPS = 30, 80


def truth(step: int, fall: bool) -> float:
    return float(np.interp(step, [0, PEAK, STEPS], [0.3, 0.8, 0.2 if fall else 0.8]))


def stored(path: Path, *, gold: bool, fall: bool = True) -> Path:
    run = RunDirectory.create(path, {"id": "onset"})
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(STEPS):
        right = np.random.default_rng(step).random(32) < truth(step, fall)
        columns: dict[str, Any] = {
            "reward": 0.01 * step + np.linspace(0, 0.1, 32),
            "completion": [f"\x1b[31manswer {row} is {'right' if one else 'wrong'}" for row, one in enumerate(right)],
            "scalars": {"checkpoint": float(step)} if step % 10 == 0 else {},
        }
        columns |= {"gold": right.astype(float)} if gold else {}
        run.write(from_columns(step, np.repeat(np.arange(4), 8), **columns), 0, {"counters": {"seen": STEPS}})
    run.close_rank(0, 0, {"seen": STEPS})
    standard = Config.standard()
    parts = [part for part in standard.instruments if part.name in ("reward.mean", "gold.mean", "training")]
    loop = MonitorLoop(run, Config(tuple(parts), (), standard.detectors), strict=True)
    loop.poll()
    loop.close()
    return path


def test_labels_bought_now_name_the_peak_and_change_nothing(tmp_path: Path) -> None:
    (tmp_path / "checks.py").write_text(CHECKS)
    run = stored(tmp_path / "run", gold=False)
    files = sorted(path for path in run.rglob("*") if path.is_file())
    options = ["onset", str(run), "--gold", str(tmp_path / "checks.py:score")]
    result = CliRunner().invoke(app, [*options, "--json"])
    assert result.exit_code == 1, result.output
    facts = json.loads(result.stdout)
    assert facts["labels"] == 200
    assert facts["low"] <= PEAK <= facts["high"]
    assert truth(facts["checkpoint"], True) >= 0.65
    assert sorted(path for path in run.rglob("*") if path.is_file()) == files
    shown = CliRunner().invoke(app, options)
    assert shown.exit_code == 1
    assert f"Gold was highest around step {facts['peak']}" in shown.stdout
    assert f"Go back to the checkpoint of step {facts['checkpoint']}." in shown.stdout
    assert "\x1b[31m" not in shown.stdout


@pytest.mark.parametrize("fall", [True, False])
def test_gold_of_every_step_needs_no_labels(tmp_path: Path, fall: bool) -> None:
    result = CliRunner().invoke(app, ["onset", str(stored(tmp_path / "run", gold=True, fall=fall)), "--json"])
    assert result.exit_code == int(fall)
    facts = json.loads(result.stdout)
    assert facts["has_fallen"] is fall
    assert facts["high"] >= PEAK - 2


def test_without_gold_it_says_what_to_name(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["onset", str(stored(tmp_path / "run", gold=False))])
    assert isinstance(result.exception, StoreError)  # exit code 2, as every error that names its fix
    assert "--gold checks.py:score" in str(result.exception)


def test_beside_an_alarm_it_says_the_turn_and_the_checkpoint_of_the_verdict(
    tmp_path: Path, copy_demo_run: Callable[[str, Path], RunDirectory]
) -> None:
    run = copy_demo_run("hacked", tmp_path / "run")
    verdict = judge_run(run)[0]
    assert verdict.gold is not None and verdict.gold.turn is not None
    assert verdict.advice is not None
    result = CliRunner().invoke(app, ["onset", str(run.path), "--json"])
    facts = json.loads(result.stdout)
    assert result.exit_code == 1 and facts["has_fallen"]
    first = min(verdict.alarms, key=lambda alarm: alarm.onset)
    assert (facts["peak"], facts["low"], facts["high"]) == (first.onset, first.onset_low, first.onset_high)
    assert facts["checkpoint"] == (verdict.advice.best and verdict.advice.best.step)
