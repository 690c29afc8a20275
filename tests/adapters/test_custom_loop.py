"""The way in for a hand-written loop, with the real monitor in its own process."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests import command_line

import tiltmeter
from tiltmeter.adapters.custom_loop import Run
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.process import monitor_lock
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir import journal
from tiltmeter.rundir.store import RunDirectory

GROUP = np.repeat(np.arange(4), 4)


def columns(step: int, harm: bool = False) -> dict[str, Any]:
    """A step whose reward agrees with gold, or contradicts it."""
    rng = np.random.default_rng(step)
    reward = rng.normal(size=16)
    gold = (reward < 0 if harm else reward > 0).astype(float)
    return {
        "step": step,
        "group": GROUP,
        "reward": reward,
        "gold": gold,
        "completion": [f"{step} {i}" for i in range(16)],
    }


def events(path: Path) -> list[journal.Event]:
    return journal.read_events(path / "events")


def test_a_run_is_recorded_measured_and_judged(tmp_path: Path) -> None:
    with tiltmeter.open_run(tmp_path / "run") as run:
        for step in range(100):
            run.observe(**columns(step))
    verdict = run.verdict()
    assert (verdict.state, verdict.exit_code) == ("OK", 0)
    assert run.counters["seen"] == run.counters["written"] == 100
    assert replay(RunDirectory(tmp_path / "run"), Config.standard()).difference is None


def test_a_reward_that_turns_on_gold_raises_the_alarm(tmp_path: Path) -> None:
    with tiltmeter.open_run(tmp_path / "run") as run:
        for step in range(60):
            run.observe(**columns(step, harm=step >= 30))
    verdict = run.verdict()
    assert (verdict.state, verdict.exit_code) == ("ACT", 1)
    assert 28 <= verdict.alarms[0].onset <= 32


def test_without_gold_a_run_is_blind(tmp_path: Path) -> None:
    with tiltmeter.open_run(tmp_path / "run") as run:
        for step in range(30):
            run.observe(**{**columns(step), "gold": None})
    verdict = run.verdict()
    assert (verdict.state, verdict.exit_code) == ("BLIND", 2)


@pytest.mark.parametrize("gold", ["one row per group", "the reward itself", "a scale of its own"])
def test_gold_that_cannot_raise_the_alarm_is_never_green(tmp_path: Path, gold: str) -> None:
    """A hacked run whose gold the alarm cannot bet on must not look healthy."""
    with tiltmeter.open_run(tmp_path / "run") as run:
        for step in range(40):
            told = columns(step, harm=True)
            if gold == "one row per group":
                told["gold"] = [value if row % 4 == 0 else None for row, value in enumerate(told["gold"])]
            elif gold == "the reward itself":
                told["reward"] = (told["reward"] > 0).astype(float)
                told["gold"] = told["reward"]
            else:
                told["gold"] = told["gold"] * 100 + 1
            run.observe(**told)
    verdict = run.verdict()
    assert (verdict.state, verdict.exit_code) == ("BLIND", 2)


def test_other_settings_in_mid_run_are_on_record(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "import numpy as np\n"
        "class Rows:\n"
        "    name, grain, needs, bounds = 'batch.rows', 'batch', ('group',), (0.0, None)\n"
        "    def measure(self, batch, baseline):\n"
        "        return np.array([float(len(batch))])\n"
    )
    for plugins in ([], [f"{plugin}:Rows"]):
        with tiltmeter.open_run(tmp_path / "run", options=tiltmeter.Options(plugins=plugins)) as run:
            run.observe(**columns(0))
        run.verdict()
    notes = [event.data for event in events(tmp_path / "run") if event.kind == "note"]
    assert [note["note"] for note in notes].count("config") == 1
    done = command_line.tiltmeter("replay", tmp_path / "run")
    assert "other settings" in done.stderr


def test_a_killed_monitor_is_started_again_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    run = tiltmeter.open_run(tmp_path / "run")
    assert run._monitor is not None
    for step in range(40):
        run.observe(**columns(step))
        if step in (10, 25):
            time.sleep(0.5)
            run._monitor.process.send_signal(signal.SIGKILL)
            run._monitor.process.wait()
        time.sleep(0.01)
    run.close()
    run.verdict()
    found = events(tmp_path / "run")
    assert [event.step for event in found if event.kind == "step_done"] == list(range(40))
    assert replay(RunDirectory(tmp_path / "run"), Config.standard()).difference is None


def test_a_run_recorded_without_a_monitor_is_caught_up_later(tmp_path: Path) -> None:
    with tiltmeter.open_run(tmp_path / "run", monitor=False) as run:
        for step in range(20):
            run.observe(**columns(step))
    assert run.verdict(timeout=0).exit_code == 2
    done = command_line.tiltmeter("watch", tmp_path / "run", "--json")
    assert done.returncode == 0, done.stderr
    assert run.verdict().state == "OK"


def test_a_resume_is_a_new_attempt_and_a_second_monitor_is_refused(tmp_path: Path) -> None:
    for first in (0, 12):
        with tiltmeter.open_run(tmp_path / "run", resume_step=first) as run:
            for step in range(first, 20):
                run.observe(**columns(step))
        run.verdict()
    directory = RunDirectory(tmp_path / "run")
    assert directory.attempts() == [0, 1]
    assert directory.attempt(1)["parent"] == 0
    assert directory.attempt(1)["resume_step"] == 12
    with (
        monitor_lock(directory, lambda: True),  # the trainer's may take a moment to let it go
        pytest.raises(tiltmeter.AttachError, match="already has a monitor"),
        monitor_lock(directory),
    ):
        pass


def test_a_changed_reward_opens_a_segment(tmp_path: Path) -> None:
    def first(completion: str) -> float:
        return 1.0

    def second(completion: str) -> float:
        return 2.0

    for function in (first, second):
        with tiltmeter.open_run(tmp_path / "run", rewards=[function]) as run:
            for step in range(5):
                run.observe(**columns(step))
        run.verdict()
    notes = [event.data for event in events(tmp_path / "run") if event.kind == "note"]
    assert [note["segment"] for note in notes if note["note"] == "segment"] == [1]


def test_disabled_does_nothing_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTMETER_DISABLED", "1")
    with tiltmeter.open_run(tmp_path / "run") as run:
        run.observe(step=0, nonsense=object())
    assert run.directory is None
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(tiltmeter.AttachError, match="TILTMETER_DISABLED"):
        run.verdict()


def test_the_environment_moves_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILTMETER_DIR", str(tmp_path / "elsewhere"))
    with tiltmeter.open_run(tmp_path / "here" / "night", monitor=False) as run:
        pass
    assert run.directory == tmp_path / "elsewhere" / "night"


def test_what_is_handed_over_is_the_value_at_that_moment(tmp_path: Path) -> None:
    run = tiltmeter.open_run(tmp_path / "run", monitor=False)
    reward, tokens = np.ones(4), [np.array([1, 2]) for _ in range(4)]
    run.observe(step=0, group=[0, 0, 1, 1], reward=reward, tokens=tokens)
    reward[:] = -1.0
    tokens[0][:] = -1
    run.close()
    directory = RunDirectory(tmp_path / "run")
    batch, _, _ = directory.read(directory.files(0)[0])
    assert batch.reward is not None
    assert batch.reward.tolist() == [1.0] * 4
    assert batch.tokens is not None
    assert batch.tokens.values.tolist() == [1, 2] * 4


@pytest.mark.parametrize(
    "wrong",
    [
        {"reward": [1.0]},
        {"reward": [1.0, 2.0, 3.0]},
        {"step": 1, "group": [0, 0], "reward": [1.0]},
        {"step": 1, "group": [0, 0], "colour": ["red", "blue"]},
        {"step": 1, "group": [0, 0], "tokens": np.zeros((2, 3))},
        {"step": "x", "group": [0]},
        {"step": 1, "group": object()},
    ],
)
def test_a_wrong_batch_never_raises_and_is_counted(
    tmp_path: Path, wrong: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "tiltmeter"), tiltmeter.open_run(tmp_path / "run", monitor=False) as run:
        run.observe(**wrong)
        run.observe(**columns(5))
    assert run.counters["dropped"] == 1
    assert run.counters["written"] == 1
    assert len(caplog.records) == 1
    strict = tiltmeter.open_run(tmp_path / "run", monitor=False, options=tiltmeter.Options(strict=True))
    with pytest.raises((TypeError, ValueError)):
        strict.observe(**wrong)
    strict.close()


def test_a_column_of_the_facts_names_the_slice_of_a_row(tmp_path: Path) -> None:
    facts = [{"language": ("C", "Go")[row // 8], "level": row} if row else {} for row in range(16)]
    with tiltmeter.open_run(tmp_path / "run", monitor=False, slices="language") as run:
        run.observe(**columns(0), facts=facts)
        run.observe(**columns(1), facts=[{"level": 3}] * 16, env=["shell"] * 16)
        run.observe(**columns(2))
        run.evaluate(2, 0.5, 100, "honest", env="C.11")
    store = RunDirectory(tmp_path / "run")
    named, passed, without = (store.read(store.find(0, step)[0])[0] for step in range(3))
    assert named.env == (None, *["C"] * 7, *["Go"] * 8)
    assert passed.env == ("shell",) * 16 and without.env is None
    assert (tmp_path / "run/evals/0-000002-honest.C_11.json").exists()


def test_nothing_is_printed_in_the_trainers_process(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with tiltmeter.open_run(tmp_path / "run") as run:
        run.observe(**columns(0))
        run.observe(step=1)
    run.verdict()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"options": {"plugins": ["nowhere.py:Thing"]}}, "there is no file"),
        ({"options": {"plugins": ["json"]}}, r"file\.py:ClassName"),
        ({"options": {"logprobs": "bf16"}}, "fp32"),
        ({"launch": {"rank": 3, "ranks": 2}}, "ranks count from 0"),
        ({"launch": {"rank": 0, "ranks": 2}}, "launch="),
        ({"launch": {"groups": "mixed"}}, "shared"),
    ],
)
def test_attach_is_loud_and_names_the_fix(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(tiltmeter.AttachError, match=message):
        tiltmeter.open_run(tmp_path / "run", **arguments)


def test_a_place_that_cannot_hold_a_run_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(tiltmeter.AttachError, match="TILTMETER_DISABLED"):
        tiltmeter.open_run(tmp_path / "file")


RANK = """
import pathlib, sys, time, numpy as np, tiltmeter
run = tiltmeter.open_run(sys.argv[1], launch=tiltmeter.Launch(groups="shared"), monitor=sys.argv[2] == "1")
rank = run.rank
for step in range(100):
    if step % 8 == 0:  # ranks of one optimiser step wait for each other
        pathlib.Path(sys.argv[1], f"at-{step}-{rank}").touch()
        while not pathlib.Path(sys.argv[1], f"at-{step}-{1 - rank}").exists():
            time.sleep(0.005)
    rng = np.random.default_rng([step, rank])
    reward = rng.normal(size=8)
    run.observe(step=step, group=np.repeat([0, 1], 4), reward=reward, gold=(reward > 0).astype(float))
run.close()
"""


def test_two_ranks_write_at_once_and_their_groups_are_joined(tmp_path: Path) -> None:
    environment = {**os.environ, "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "night", "TORCHELASTIC_RESTART_COUNT": "0"}
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, tmp_path / "run", "1"], env={**environment, "RANK": str(rank)})
        for rank in (1, 0)
    ]
    assert [process.wait(60) for process in ranks] == [0, 0]
    directory = RunDirectory(tmp_path / "run")
    run = Run(directory, attempt=0)
    verdict = run.verdict()
    assert verdict.state == "OK", verdict
    sizes = [event.data["measured"]["group.size"] for event in events(tmp_path / "run") if event.kind == "reading"]
    assert [size[:2] for size in sizes] == [[8.0, 2]] * 100


def test_a_plugin_measures_beside_the_built_ins(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "import numpy as np\n"
        "class Shouting:\n"
        "    name, grain, needs, bounds = 'text.shouting_share', 'rollout', ('completion',), (0.0, 1.0)\n"
        "    def measure(self, batch, baseline):\n"
        "        return np.array([float((text or '').isupper()) for text in batch.completion])\n"
    )
    with tiltmeter.open_run(tmp_path / "run", options=tiltmeter.Options(plugins=[f"{plugin}:Shouting"])) as run:
        run.observe(step=0, group=[0, 0], completion=["LOUD", "quiet"])
    run.verdict()
    readings = [event.data["measured"] for event in events(tmp_path / "run") if event.kind == "reading"]
    assert readings[0]["text.shouting_share"][0] == 0.5


def test_a_trainers_process_never_loads_numba(tmp_path: Path) -> None:
    code = """
import sys, tiltmeter
reference, options = {"group": [0], "length": [3]}, tiltmeter.Options(plugins=[sys.argv[2]])
run = tiltmeter.open_run(sys.argv[1], reference=reference, options=options, monitor=False)
run.observe(step=0, group=[0, 0], reward=[0, 1], completion=["a", "b"], tokens=[[1, 2], [3]])
run.close()
assert run.counters["written"] == 1
print(sorted({"numba", "torch", "duckdb"} & set(sys.modules)))
"""
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from tiltmeter.instruments.length_mean import LengthMean\nclass Mine(LengthMean): name = 'my.own'\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "run"), f"{plugin}:Mine"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_run_opened_in_a_child_of_multiprocessing_is_closed_when_it_ends(tmp_path: Path) -> None:
    """Such a child leaves without the interpreter's own exit."""

    def train() -> None:
        run = tiltmeter.open_run(tmp_path / "run", monitor=False)
        for step in range(5):
            run.observe(**columns(step))

    child = multiprocessing.get_context("fork").Process(target=train)
    child.start()
    child.join(60)
    run = RunDirectory(tmp_path / "run")
    assert len(run.files(0)) == 5 and run.ended(0)
