"""A step that monitors die of is set aside by the third, said so, and measuring goes on with the next."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.adapters.arguments import Options
from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.monitor.arrivals import StepReady
from tiltmeter.monitor.loop import SET_ASIDE, MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.monitor.step_mark import StepMark
from tiltmeter.rundir.gate.untrusted import strange_files
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run
from tiltmeter.view.screens.wording import remarks

DEADLY = """
import os

import numpy as np


class Deadly:
    name, grain, needs = "test.deadly", "rollout", ("reward",)

    def measure(self, batch, baseline):
        if batch.step == 2 and "DEADLY" in os.environ:
            os._exit(9)
        return np.ones(len(batch))
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    opened = open_run(tmp_path / "run", monitor=False, options=Options(on_full="wait"))
    for step in range(5):
        opened.observe(step=step, group=[0, 0, 1, 1], reward=[0.0, 1.0, 0.5, step / 5])
    opened.close()
    return RunDirectory(tmp_path / "run")


def test_a_step_that_kills_the_monitor_twice_is_set_aside(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY)
    plugin = f"{tmp_path / 'deadly.py'}:Deadly"
    command = [sys.executable, "-m", "tiltmeter.monitor", str(run.path), "--attached", str(os.getpid())]
    ends = [
        subprocess.run([*command, "--plugin", plugin], env={**os.environ, "DEADLY": "1"}, check=False).returncode
        for _ in range(3)
    ]
    assert ends == [9, 9, 0]
    verdict, run_facts, events = judge_run(run)
    done = {event.step: event.data for event in events if event.kind == "step_done"}
    assert list(done) == [0, 1, 2, 3, 4] and [data["rows"] for data in done.values()] == [4, 4, 0, 4, 4]
    assert run_facts.lost == (1, 5)  # a batch that was not measured
    assert verdict.checks["ranks"].why == "files of step 2 were not read: nothing is known of them"
    lines = remarks(verdict, run_facts, lambda name: (np.array([], np.int64), np.array([])))
    assert any(line.startswith("Not measured: 1, the last: ") and line.endswith(SET_ASIDE) for line in lines)
    assert replay(run, Config.standard([plugin])).difference is None
    assert strange_files(run) == []


def test_a_monitor_that_was_asked_to_end_does_not_count(run: RunDirectory) -> None:
    for _ in range(5):
        mark = StepMark(run)
        assert mark.begin(0, 3)
        mark.take_back()
        mark.close()


def test_only_monitors_that_ended_in_the_same_step_count(run: RunDirectory) -> None:
    for step in (3, 4, 3, 3):
        mark = StepMark(run)
        assert mark.begin(0, step) and mark.begin(0, step)  # a loop made again in the same process
        mark.close()
    third = StepMark(run)
    assert not third.begin(0, 3) and not third.begin(0, 3) and third.begin(0, 4)
    third.close()


def test_a_torn_mark_is_none(run: RunDirectory) -> None:
    mark = StepMark(run)
    mark.begin(0, 3)
    mark.close()
    for content in (b"", b'{"attempt":0,', b" " * 5000, b'{"attempt":0,"step":-3,"begun":1}'):
        (run.path / "cache" / "measuring.json").write_bytes(content)
        again = StepMark(run)
        assert again.begin(0, 3)
        again.close()
    assert read_events(run.path / "events") == []


def test_steps_are_not_given_up_while_the_run_directory_is_away(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = MonitorLoop(run, Config.standard())
    real = loop.measurer.step

    def moved(arrival: StepReady, *rest: Any) -> Any:
        if arrival.step == 3:
            run.path.rename(tmp_path / "away")
        return real(arrival, *rest)

    monkeypatch.setattr(loop.measurer, "step", moved)
    with pytest.raises(FileNotFoundError, match="not there"):
        loop.poll()
    loop.close()
    (tmp_path / "away").rename(run.path)
    again = MonitorLoop(run, Config.standard())
    again.poll()
    again.close()
    rows = [event.data["rows"] for event in read_events(run.path / "events") if event.kind == "step_done"]
    assert rows == [4] * 5
