"""A monitor killed with SIGKILL while it buys labels: nothing asked is lost, nothing answered is asked again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from tiltmeter.data.batches import from_columns
from tiltmeter.gold.label_files import read_labels, read_request
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.replay import replay
from tiltmeter.rundir.store import RunDirectory

STEPS = 12

#: Kills the monitor, whose child calls it, while it answers or, by a timer, while its answers are stored.
SCORE = """
import os, signal, threading, time
from pathlib import Path

HERE = Path(__file__).parent

def die():
    stored = sorted(str(p) for p in HERE.glob("run/gold/labels/*/*.json"))
    with open(HERE / "stored.log", "a") as file:
        file.write(" ".join(stored) + "\\n")
    os.kill(os.getppid(), signal.SIGKILL)
    time.sleep(60)

def score(prompt, completion):
    with open(HERE / "calls.log", "a") as file:
        file.write(completion + "\\n")
    calls = len((HERE / "calls.log").read_text().splitlines())
    if calls in KILLS:
        die()
    if calls in TIMED:
        threading.Timer(0.004, die).start()
    return float(completion.split()[-1])

KILLS, TIMED = {}, {}
"""


def made(folder: Path, kills: set[int], timed: set[int]) -> tuple[RunDirectory, int]:
    """A stored run, watched until its monitor survives; and how often it was killed."""
    run = RunDirectory.create(folder / "run", {"id": "the same run"})
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(STEPS):
        rng = np.random.default_rng(step)
        gold = rng.integers(0, 2, 64)
        group = np.repeat(np.arange(8), 8)
        texts = [f"{step}/{row} {gold[row]}" for row in range(64)]
        prompts = [f"prompt {k}" for k in group]
        run.write(from_columns(step, group, reward=rng.normal(size=64), completion=texts, prompt=prompts), 0, {})
    run.close_rank(0, 0, {"seen": STEPS})
    (folder / "score.py").write_text(SCORE.replace("KILLS, TIMED = {}, {}", f"KILLS, TIMED = {kills}, {timed}"))
    killed = 0
    command = [sys.executable, "-m", "tiltmeter", "watch", str(run.path), "--plain"]
    command += ["--gold", str(folder / "score.py:score"), "--gold-share", "0.5"]
    while True:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode >= 0:
            assert done.returncode in (0, 1, 2), done.stderr
            assert "Traceback" not in done.stderr, done.stderr
            return run, killed
        killed += 1
        assert killed <= len(kills) + len(timed)


def test_labels_survive_kills_and_are_not_asked_for_twice(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    whole, _ = made(tmp_path / "whole", {0}, {0})
    run, killed = made(tmp_path / "killed", {5, 31}, {20, 47})
    assert killed >= 3
    asked_about = 0
    for step in range(STEPS):
        one, two = read_request(whole, 0, step), read_request(run, 0, step)
        assert one is not None
        assert two is not None
        assert one.digest == two.digest, "the choice depends on the kill"
        assert None not in read_labels(run, two)
        assert read_labels(run, two) == read_labels(whole, one)
        asked_about += len(two.rows)
    assert asked_about > 47
    calls = (tmp_path / "killed" / "calls.log").read_text().splitlines()
    stored = [line.split() for line in (tmp_path / "killed" / "stored.log").read_text().splitlines()]
    assert len(stored) == killed
    # A kill may cost the answers of one step that were on their way; what was stored is never asked for again.
    most = max(len(asked.rows) for step in range(STEPS) if (asked := read_request(run, 0, step)) is not None)
    assert asked_about <= len(calls) <= asked_about + killed * most
    for before in stored:
        for path in before:
            assert Path(path).exists()
    assert replay(run, Config.standard()).difference is None
