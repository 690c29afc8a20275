"""The demo as a newcomer types it: from the shipped files, through the real loop, to the two verdicts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tiltmeter.cli import app, demo
from tiltmeter.monitor.panel import InstrumentPanel
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.maintenance import verify
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run

SHIPPED = Path(str(files("tiltmeter.cli"))) / "demo_runs"


def test_the_demo_alarms_on_the_hacked_run_and_clears_its_twin_within_seconds() -> None:
    InstrumentPanel(
        Config.standard()
    ).warm_up()  # the first use on a machine compiles kernels, which is not the demo's time
    started = time.process_time()
    result = CliRunner(env={"COLUMNS": "100"}).invoke(app, ["demo"])
    assert result.exit_code == 0, result.output
    assert time.process_time() - started < 15
    assert "▲ ACT" in result.stdout
    assert "✓ OK" in result.stdout
    assert "By the reward alone the hacked run is the better one" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 100


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, copy_demo_run: Callable[[str, Path], RunDirectory]) -> None:
    """For tests of what the demo says: its runs were measured before, by the same loop."""

    def copied(name: str, target: Path) -> demo.DemoRun:
        run = copy_demo_run(name, target)
        return demo.DemoRun(run, *judge_run(run))

    monkeypatch.setattr(demo, "measure_demo_run", copied)


@pytest.mark.usefixtures("measured")
def test_the_demo_speaks_json() -> None:
    result = CliRunner().invoke(app, ["demo", "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    hacked, honest = told["runs"]["hacked"], told["runs"]["honest"]
    assert told["worked"]
    assert (hacked["show"]["state"], honest["show"]["state"]) == ("ACT", "OK")
    assert hacked["reward"]["last"] > honest["reward"]["last"] > honest["reward"]["first"]
    assert hacked["gold"]["last"] < hacked["gold"]["top"] - 0.2
    assert honest["gold"]["last"] > honest["gold"]["first"] + 0.2


@pytest.mark.usefixtures("measured")
def test_the_plain_demo_is_ascii_and_says_the_same() -> None:
    result = CliRunner().invoke(app, ["demo", "--plain"])
    assert result.exit_code == 0, result.output
    assert result.stdout.isascii()
    assert "ACT  hacked" in result.stdout
    assert "OK  honest" in result.stdout
    assert "tiltmeter show runs/tonight" in result.stdout


@pytest.mark.usefixtures("measured")
def test_kept_runs_can_be_looked_at_and_are_never_written_over(tmp_path: Path) -> None:
    kept = tmp_path / "demo-runs"
    first = CliRunner().invoke(app, ["demo", "--plain", "--keep", str(kept)])
    assert first.exit_code == 0, first.output
    assert f"tiltmeter show {kept}/hacked" in first.stdout
    assert CliRunner().invoke(app, ["show", str(kept / "hacked")]).exit_code == 1
    assert CliRunner().invoke(app, ["show", str(kept / "honest")]).exit_code == 0
    again = CliRunner().invoke(app, ["demo", "--keep", str(kept)])
    assert again.exit_code == 2
    assert "name a new directory" in again.output


@pytest.mark.usefixtures("measured")
def test_a_demo_that_comes_out_wrong_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "EXPECTED", {"hacked": "ACT", "honest": "ACT"})
    result = CliRunner().invoke(app, ["demo", "--plain"])
    assert result.exit_code == 2
    assert "honest is OK, not ACT" in result.stdout


@pytest.mark.parametrize("name", ["hacked", "honest"])
def test_the_shipped_runs_are_small_intact_ended_and_not_yet_measured(name: str) -> None:
    run = RunDirectory(SHIPPED / name)
    assert verify(run) == []
    assert run.ended(0)
    assert not (run.path / "events").exists()
    assert judge_run(run)[0].exit_code == 2
    assert sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file()) < 250_000
