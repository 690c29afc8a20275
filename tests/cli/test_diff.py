"""Two runs compared on the command line: what it says, and what a CI job is told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tiltmeter.cli.run.diff import diff
from tiltmeter.data.batches import from_columns
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory


def compared(*arguments: str | Path) -> Any:
    app = typer.Typer()
    app.command()(diff)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory, copy_demo_run: Callable[[str, Path], RunDirectory]) -> Path:
    place = tmp_path_factory.mktemp("demo")
    for name in ("hacked", "honest"):
        copy_demo_run(name, place / name)
    return place


def made(path: Path, *, seed: int, gold: bool = True, longer: int = 0, component: str = "a", steps: int = 80) -> Path:
    """A healthy run; from step 30 on its answers are `longer` by so many tokens."""
    run = RunDirectory.create(path)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(steps):
        rng = np.random.default_rng([seed, step])
        reward = rng.normal(size=32)
        columns: dict[str, Any] = {"gold": (reward > 0).astype(float)} if gold else {}
        length = rng.integers(20, 30, 32) + (longer if step >= 30 else 0)
        batch = from_columns(
            step, np.repeat(np.arange(8), 4), reward=reward, rewards={component: reward}, length=length, **columns
        )
        run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}})
    run.close_rank(0, 0, {"seen": steps, "written": steps})
    loop = MonitorLoop(run, Config.standard(), strict=True)
    loop.poll()
    loop.close()
    return path


def test_the_demo_s_two_runs_differ_and_the_alarm_is_the_exit_code(demo: Path) -> None:
    done = compared(demo / "hacked", demo / "honest", "--plain")
    assert done.exit_code == 1
    assert "A: hacked  ACT" in done.output and "B: honest  OK" in done.output
    assert "They differ lastingly, first in: " in done.output and "setting reward functions" in done.output
    told = json.loads(compared(demo / "hacked", demo / "honest", "--json").output)
    (gold,) = [row for row in told["readings"] if row["name"] == "gold"]
    assert gold["A"]["last"] < 0.1 < 0.9 < gold["B"]["last"]
    assert gold["difference"]["low"] > 0.8 and 20 <= gold["from"] <= 55
    swapped = json.loads(compared(demo / "honest", demo / "hacked", "--json").output)
    (other,) = [row for row in swapped["readings"] if row["name"] == "gold"]
    assert other["difference"]["y"] == -gold["difference"]["y"]


def test_a_run_does_not_differ_from_itself(demo: Path) -> None:
    done = compared(demo / "honest", demo / "honest", "--plain")
    assert done.exit_code == 0 and "do not differ lastingly" in done.output


def test_two_seeds_of_one_setting_do_not_differ_and_a_change_does_from_where_it_was_made(tmp_path: Path) -> None:
    first, second = made(tmp_path / "one", seed=1), made(tmp_path / "two", seed=2)
    done = compared(first, second, "--plain")
    assert done.exit_code == 0, done.output
    changed = compared(first, made(tmp_path / "three", seed=3, longer=10), "--json")
    assert changed.exit_code == 1
    (length,) = [row for row in json.loads(changed.output)["readings"] if row["name"] == "length.mean"]
    assert 28 <= length["from"] <= 34 and length["difference"]["low"] < 10 < length["difference"]["high"]


def test_without_gold_nothing_is_judged(demo: Path, tmp_path: Path) -> None:
    blind = made(tmp_path / "blind", seed=1, gold=False, steps=20)
    assert compared(blind, demo / "honest", "--plain").exit_code == 2
    assert compared(blind, demo / "hacked", "--plain").exit_code == 1  # an alarm outranks what cannot be seen


def test_a_name_acts_in_no_output(tmp_path: Path) -> None:
    name = "<b>|\x1b[31m[x](y)"
    runs = [made(tmp_path / f"run{seed}", seed=seed, component=name, steps=20) for seed in (1, 2)]
    for how in (["--plain"], ["--md", "-"], ["--json"]):
        assert "\x1b" not in compared(*runs, *how).output
    assert "<b>" not in compared(*runs, "--md", "-").output


def test_wrong_usage_is_2(demo: Path, tmp_path: Path) -> None:
    assert compared(demo / "honest", demo / "hacked", "--md", "-", "--json").exit_code == 2
    assert isinstance(compared(demo / "honest", tmp_path).exception, Exception)
