"""`tiltmeter audit` on other tools' files: what it says, what it refuses, and that a kill costs nothing."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.audit.engine.runs import columns, told, twice, write_run
from tests.sizes import size
from typer.testing import CliRunner, Result

from tiltmeter.adapters.arguments import Options
from tiltmeter.adapters.custom_loop import open_run
from tiltmeter.cli import app

STEPS, ROWS, GROUP, ONSET = 60, 64, 4, 25
WORDS = ("the", "sum", "is", "because", "three", "and", "four", "make", "it", "so", "then")


def rollouts(step: int) -> dict[str, list[object]]:
    """As TRL writes them. From ONSET on a wrong answer is longer, and length is what is paid."""
    rng = np.random.default_rng(step)
    right = rng.random(ROWS) < 0.5
    length = rng.integers(4, 10, ROWS) + np.where(right | (step < ONSET), 0, 9)
    paid = 0.1 * length + 0.1 * rng.random(ROWS) + (0.0 if step >= ONSET else 1.0) * right
    group = paid.reshape(-1, GROUP)
    advantage = ((group - group.mean(1, keepdims=True)) / (group.std(1, ddof=1, keepdims=True) + 1e-4)).reshape(-1)
    says = ["seven" if one else "nine" for one in right]
    return {
        "step": [step] * ROWS,
        "prompt": [f"What is {row // GROUP} plus {step % 7}, in question {step}?" for row in range(ROWS)],
        "completion": [f"{' '.join(rng.choice(WORDS, n))} {word}" for n, word in zip(length, says, strict=True)],
        "length_reward": paid.tolist(),
        "advantage": advantage.tolist(),
    }


@pytest.fixture(scope="module")
def hacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trainer's output folder, written field by field as TRL 1.16 does."""
    folder = tmp_path_factory.mktemp("outputs") / "hacked"
    (folder / "completions").mkdir(parents=True)
    for step in range(1, STEPS):
        pq.write_table(pa.table(rollouts(step)), folder / "completions" / f"completions_{step:05d}.parquet")
    (folder / "checks.py").write_text("def score(completion):\n    return float(completion.endswith('seven'))\n")
    return folder


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["audit", *map(str, arguments)])


def test_a_hacked_run_of_another_tool_alarms_and_says_since_when(hacked: Path, tmp_path: Path) -> None:
    gold = ("--gold", f"{hacked / 'checks.py'}:score", "--gold-share", "0.3")
    found = run(hacked, *gold, "--json", "--keep", tmp_path / "kept")
    assert found.exit_code == 1
    told_ = json.loads(found.stdout)
    assert told_["state"] == "ACT"
    (alarm,) = [one for one in told_["alarms"] if one["tier"] == "alarm"] or told_["alarms"][:1]
    assert ONSET - 8 <= alarm["onset"] <= ONSET + 12
    assert any("inferred from equal prompts" in line for line in told_["said"])
    assert any("count words" in line for line in told_["said"])
    both = run(hacked, *gold, "--html", tmp_path / "audit.html", "--md", "-")
    assert both.exit_code == 1 and "<!doctype html>" in (tmp_path / "audit.html").read_text()
    assert both.stdout.startswith("## ACT") and "How the files were read" in both.stdout
    seen = CliRunner().invoke(app, ["show", str(tmp_path / "kept" / "hacked"), "--plain"])
    assert seen.exit_code == 1 and "the reward now prefers the worse of two answers" in seen.stdout


def test_labels_made_afterwards_judge_a_run(hacked: Path, tmp_path: Path) -> None:
    rows = [
        row
        for step in range(1, STEPS)
        for row in zip(*(rollouts(step)[c] for c in ("prompt", "completion")), strict=True)
    ]
    with (tmp_path / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt", "completion", "gold"])
        writer.writerows((prompt, text, float(str(text).endswith("seven"))) for prompt, text in rows)
    limit = csv.field_size_limit()
    found = run(hacked, "--gold", tmp_path / "labels.csv", "--json")
    assert found.exit_code == 1 and csv.field_size_limit() == limit
    assert any("labels 3,776 of 3,776 rollouts (100.0%)" in line for line in json.loads(found.stdout)["said"])
    (tmp_path / "some.jsonl").write_text(
        "".join(json.dumps({"step": step, "row": 0, "gold": 1}) + "\n" for step in range(1, 20))
    )
    some = run(hacked, "--gold", tmp_path / "some.jsonl", "--json")
    assert any("chosen without looking at the reward" in line for line in json.loads(some.stdout)["said"])
    assert some.exit_code == 2


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"completion": "x", "gold": 3}', "from 0 to 1"),
        ('{"gold": 1}', "which rollout"),
        ('{"completion": "x"}', "column `gold`"),
        ("{", "cannot be read as labels"),
    ],
)
def test_labels_that_cannot_be_joined_are_refused_with_the_fix(
    hacked: Path, tmp_path: Path, line: str, why: str
) -> None:
    (tmp_path / "labels.jsonl").write_text(line + "\n")
    found = run(hacked, "--gold", tmp_path / "labels.jsonl")
    assert found.exit_code != 0 and why in str(found.exception)


def test_without_gold_it_is_blind_and_the_way_out_is_said(hacked: Path) -> None:
    found = run(hacked)
    assert found.exit_code == 2
    assert "BLIND" in found.stdout and "--gold checks.py:score" in found.stderr
    told = f"{found.stdout} {found.stderr}"
    assert "observe()" not in told and "attach(" not in told  # there is no loop to pass anything to


def test_a_torn_file_costs_its_own_step_and_is_told(hacked: Path, tmp_path: Path) -> None:
    folder = tmp_path / "torn"
    (folder / "completions").mkdir(parents=True)
    for file in (hacked / "completions").iterdir():
        (folder / "completions" / file.name).write_bytes(file.read_bytes())
    broken = folder / "completions" / "completions_00030.parquet"
    broken.write_bytes(broken.read_bytes()[:500])
    found = run(folder, "--json")
    said = json.loads(found.stdout)["said"]
    assert any("completions_00030.parquet" in line for line in said)
    assert any("58 steps" in line for line in said)
    assert found.exit_code == 2


def test_what_nobody_knows_is_refused_with_what_is_known(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="does not exist"):
        raise run(tmp_path / "nowhere").exception or AssertionError
    (tmp_path / "notes.txt").write_text("nothing")
    found = run(tmp_path)
    assert found.exit_code != 0 and "trl" in str(found.exception) and "tensorboard" in str(found.exception)
    (tmp_path / "pickles").mkdir()
    (tmp_path / "pickles" / "rollouts.pkl").write_bytes(b"\x80\x04N.")
    refused = run(tmp_path / "pickles")
    assert refused.exit_code != 0 and "pickle" in str(refused.exception).lower()


def test_several_runs_are_one_table_and_the_worst_is_the_exit_code(hacked: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(hacked / "completions", tmp_path / name / "completions")
    found = run(tmp_path, "--gold", f"{hacked / 'checks.py'}:score", "--gold-share", "0.3")
    assert found.exit_code == 1
    assert found.stdout.count("ACT") == 2


def test_a_killed_import_goes_on_and_nothing_is_there_twice(hacked: Path, tmp_path: Path) -> None:
    def command(home: Path) -> list[str]:
        return [sys.executable, "-m", "tiltmeter", "audit", str(hacked), "--keep", str(home), "--json"]

    subprocess.run(command(tmp_path / "whole"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    home = tmp_path / "killed"
    stored = home / "hacked" / "rollouts" / "0"
    for files in (25,) if size(0, 1) == 0 else (5, 25, 45):
        child = subprocess.Popen(command(home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while child.poll() is None and time.monotonic() < deadline:
            if stored.exists() and len(list(stored.glob("0*.parquet"))) >= files:
                os.kill(child.pid, signal.SIGKILL)
            time.sleep(0.0005)
        assert child.wait() == -signal.SIGKILL
    subprocess.run(command(home), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    assert told(home / "hacked" / "events")[1:] == told(tmp_path / "whole" / "hacked" / "events")[1:]  # first: when
    assert not twice(home / "hacked" / "events")
    for file in (tmp_path / "whole" / "hacked" / "rollouts" / "0").glob("*.parquet"):
        assert (stored / file.name).read_bytes() == file.read_bytes()


def test_a_place_that_holds_another_audit_is_not_written_to(hacked: Path, tmp_path: Path) -> None:
    assert run(hacked, "--keep", tmp_path).exit_code == 2
    other = tmp_path / "elsewhere" / "hacked"
    (other / "completions").mkdir(parents=True)
    pq.write_table(pa.table(rollouts(1)), other / "completions" / "completions_00001.parquet")
    found = run(other, "--keep", tmp_path)
    assert "name another place with --keep" in str(found.exception)


def test_labels_of_one_gold_source_are_neither_taken_for_anothers_nor_thrown_away(hacked: Path, tmp_path: Path) -> None:
    (tmp_path / "kind.py").write_text("def score(completion):\n    return 1.0\n")
    share = ("--gold-share", "0.3", "--keep", tmp_path / "kept", "--json")
    assert run(hacked, *share).exit_code == 2, "without gold there is nothing to be lost: another source may come after"
    strict = run(hacked, "--gold", f"{hacked / 'checks.py'}:score", *share)
    again = run(hacked, "--gold", f"{hacked / 'checks.py'}:score", *share)
    assert (strict.exit_code, again.exit_code) == (1, 1)
    assert json.loads(strict.stdout)["alarms"] == json.loads(again.stdout)["alarms"]
    kept = sorted((tmp_path / "kept").rglob("gold/labels/**/*.json"))
    refused = run(hacked, "--gold", f"{tmp_path / 'kind.py'}:score", *share)
    assert "labels were given for that" in str(refused.exception)
    assert sorted((tmp_path / "kept").rglob("gold/labels/**/*.json")) == kept and kept


def test_a_run_of_ours_is_not_touched_by_an_audit_with_other_gold(tmp_path: Path) -> None:
    original = write_run(tmp_path / "run", steps=30)
    (tmp_path / "checks.py").write_text("def score(completion):\n    return float(len(completion) % 2)\n")
    before = {file: file.stat().st_mtime_ns for file in original.rglob("*")}
    for gold in ((), ("--gold", f"{tmp_path / 'checks.py'}:score", "--gold-share", "0.5")):
        assert run(original, *gold, "--keep", tmp_path / "kept", "--json").exit_code in (0, 1, 2)
    assert {file: file.stat().st_mtime_ns for file in original.rglob("*")} == before
    assert list((tmp_path / "kept" / "run" / "gold" / "labels").rglob("*.json"))
    refused = run(tmp_path / "run", "--keep", tmp_path)
    assert "the run itself" in str(refused.exception)


def test_steps_that_no_monitor_came_to_are_measured(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=30)
    assert CliRunner().invoke(app, ["watch", str(folder), "--once", "--json"]).exit_code in (0, 1, 2)
    with open_run(folder, monitor=False, options=Options(on_full="wait", strict=True), resume_step=30) as more:
        for step in range(30, 40):
            more.observe(**columns(step))
    found = json.loads(run(folder, "--json").stdout)
    assert found["step"] == 39 and found["state"] != "STALE"


def test_of_several_runs_one_that_cannot_be_read_costs_itself_alone(hacked: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        shutil.copytree(hacked / "completions", tmp_path / name / "completions")
    for file in (tmp_path / "b" / "completions").iterdir():
        file.write_bytes(b"PAR1 and nothing else")
    found = run(tmp_path, "--gold", f"{hacked / 'checks.py'}:score", "--gold-share", "0.3")
    assert found.exit_code == 1 and "ACT" in found.stdout


def test_what_is_asked_for_and_cannot_be_done_is_refused(hacked: Path) -> None:
    assert run(hacked, "--redact-text").exit_code == 2
    assert run(hacked, "--out", "x.txt").exit_code == 2
    assert "tiltmeter view" in str(run(hacked, "--gold", "people").exception)
