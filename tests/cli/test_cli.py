"""The command line as a person and as a CI job meet it: verdicts, exit codes, and text that must not act."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from tests.command_line import tiltmeter
from typer.testing import CliRunner

from tiltmeter import cli
from tiltmeter.cli.terminal.run_screen import choose_readings, short
from tiltmeter.data.batches import from_columns
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.view.screens.readings import change_in_noise

HOSTILE = [
    "\x1b]0;owned\x07 title",
    "\x1b[2J\x1b[H cleared",
    "[/x] [bold]markup[/bold]",
    "\ud800 surrogate",
    "\u202e backwards",
    "\r overwritten",
    "\x9b31m eight-bit",
    "a" * 5000,
]

ONE_BY_ONE = """
import json, sys
from tiltmeter.cli import main
for command in json.loads(sys.argv[1]):
    sys.argv = ["tiltmeter", *command]
    try:
        main()
    except SystemExit:
        print("-" * 20)
"""


def made(
    path: Path, *, harm: bool = False, gold: bool = True, texts: list[str] | None = None, watch: bool = True
) -> Path:
    run = RunDirectory.create(path)
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    for step in range(40):
        rng = np.random.default_rng(step)
        reward = rng.normal(size=16)
        columns: dict[str, Any] = {"gold": (reward < 0 if harm else reward > 0).astype(float)} if gold else {}
        batch = from_columns(
            step, np.repeat(np.arange(4), 4), reward=reward, rewards={"<b>\x1b[31m": reward},
            completion=((texts or HOSTILE) * 16)[:16], **columns,
        )  # fmt: skip
        run.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}})
    run.close_rank(0, 0, {"seen": 40, "written": 40})
    if watch:
        loop = MonitorLoop(run, Config.standard(), strict=True)
        loop.poll()
        loop.close()
    return path


def test_exit_codes_are_healthy_alarm_and_cannot_judge(tmp_path: Path) -> None:
    healthy, hacked, blind = made(tmp_path / "a"), made(tmp_path / "b", harm=True), made(tmp_path / "c", gold=False)
    unwatched = made(tmp_path / "d", watch=False)
    codes = [tiltmeter("show", run).returncode for run in (healthy, hacked, blind, unwatched, tmp_path / "nothing")]
    assert codes == [0, 1, 2, 2, 2]
    assert tiltmeter("show", "--no-such-option").returncode == 2


@pytest.mark.parametrize("verb", ["show", "watch", "replay"])
def test_every_reading_verb_speaks_json_and_plain(tmp_path: Path, verb: str) -> None:
    run = made(tmp_path / "run", harm=True)
    spoken = tiltmeter(*verb.split(), run, "--json")
    told = json.loads(spoken.stdout)
    assert (told["state"], told["exit_code"], spoken.returncode) == ("ACT", 1, 1)
    assert told["alarms"][0]["tier"] == "alarm"
    plain = tiltmeter(*verb.split(), run, "--plain")
    assert plain.returncode == 1
    assert plain.stdout.isascii()
    assert plain.stdout.startswith("ACT")


def test_watching_once_measures_what_is_stored_and_plain_lines_tell_what_happens(tmp_path: Path) -> None:
    run = made(tmp_path / "run", harm=True, watch=False)
    once = tiltmeter("watch", run, "--once", "--json")
    assert (json.loads(once.stdout)["state"], once.returncode) == ("ACT", 1)
    shutil.rmtree(run / "events")
    with patch("tiltmeter.view.screens.run_reader.REFRESH_SECONDS", 60.0):  # all of it happens between two looks
        lines = tiltmeter("watch", run, "--plain").stdout.splitlines()
    raised = [line for line in lines if re.match(r"\d\d:\d\d:\d\d  s\d+  alarm ", line)]
    assert len(raised) == 1
    assert any(re.match(r"\d\d:\d\d:\d\d  s\d+  ACT ", line) for line in lines)
    assert lines.index(raised[0]) < next(k for k, line in enumerate(lines) if line.startswith("ACT"))


def test_replay_says_whether_the_record_reproduces(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    assert "Reproduced" in tiltmeter("replay", run).stderr
    events = run / "events" / "0.jsonl"
    events.write_text(events.read_text().replace('"reward.mean":[', '"reward.mean":[1', 1))
    tampered = tiltmeter("replay", run)
    assert "NOT reproduced" in tampered.stderr
    assert tampered.returncode == 2


def test_verify_pack_and_purge(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    assert tiltmeter("pack", run).returncode == 0
    assert tiltmeter("verify", run).returncode == 0
    [packed] = (run / "rollouts" / "0" / "packed").glob("*.parquet")
    data = bytearray(packed.read_bytes())
    data[len(data) // 3] ^= 1
    packed.write_bytes(data)
    assert tiltmeter("verify", run, "--json").returncode == 1
    assert tiltmeter("purge", run, "--yes").returncode == 0
    assert tiltmeter("verify", run).returncode == 0


def test_doctor_says_what_is_missing_and_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Real imports take seconds: tests/cli/test_spellings.py has those that fail.
    problems = {"ray": "not installed"}
    monkeypatch.setattr("tiltmeter.cli.doctor.version_problems", lambda names: {n: problems.get(n, "") for n in names})
    checked = CliRunner().invoke(cli.app, ["doctor", "--directory", str(tmp_path), "--json"])
    rows = json.loads(checked.stdout)["checks"]
    assert checked.exit_code == 0
    assert all(row["ok"] or row["fix"] for row in rows)
    assert [row["fix"] for row in rows if not row["ok"]] == ["pip install --upgrade 'tiltmeter[ray]'"]
    (tmp_path / "file").write_text("")
    assert CliRunner().invoke(cli.app, ["doctor", "--directory", str(tmp_path / "file" / "below")]).exit_code == 2


def in_a_terminal(*commands: Sequence[object]) -> str:
    """What a real terminal would be sent by these commands, one after the other."""
    controller, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "50"}
    process = subprocess.Popen(
        [sys.executable, "-c", ONE_BY_ONE, json.dumps([list(map(str, command)) for command in commands])],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env=environment,
    )
    os.close(terminal)
    received = b""
    while True:
        try:
            chunk = os.read(controller, 65536)
        except OSError:  # the other end is closed
            break
        if not chunk:
            break
        received += chunk
    process.wait(30)
    os.close(controller)
    return received.decode("utf-8")


def test_hostile_completions_cannot_act_on_a_terminal(tmp_path: Path) -> None:
    runs = [made(tmp_path / str(at), harm=True, texts=[text]) for at, text in enumerate(HOSTILE)]
    sent = in_a_terminal(*([*words, run] for run in runs for words in (["show"], ["show", "--more"])))
    without_colours = re.sub(r"\x1b\[[0-9;]*m", "", sent)
    screens = without_colours.split("-" * 20)[:-1]
    assert len(screens) == 2 * len(HOSTILE)
    assert all("ACT" in screen or "OK" in screen for screen in screens)
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202e]", without_colours)
    assert "\r" not in without_colours.replace("\r\n", "")


def test_the_harness_would_notice_an_escape(tmp_path: Path) -> None:
    """A positive control: the same screen without the encoder lets the text through."""
    code = f"print({HOSTILE[0]!r})"
    sent = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout
    assert re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", re.sub(r"\x1b\[[0-9;]*m", "", sent))


def test_a_run_directory_cannot_make_us_import_code(tmp_path: Path) -> None:
    """Names of plug-ins in run.json or attempt.json are only data."""
    run = made(tmp_path / "run")
    canary = tmp_path / "canary"
    plugin = tmp_path / "evil.py"
    plugin.write_text(f"open({str(canary)!r}, 'w')\nclass Evil:\n    def measure(self, batch, baseline): ...\n")
    identity = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**identity, "plugins": [f"{plugin}:Evil"]}))
    for verb in ("show", "watch", "replay", "verify"):
        tiltmeter(*verb.split(), run)
    assert not canary.exists()


def spoken(path: Path, steps: int = 12, hostile: str = "") -> Path:
    """A run in which half of the answers take to one opening after step 8."""
    run = RunDirectory.create(path)
    run.open_attempt(launch="a", ranks=1, resume_step=None)
    for step in range(steps):
        plain = [f"the answer to question {row} is {row * step}" for row in range(64)]
        gamed = [f"what a great question{hostile} {text}" if row % 2 else text for row, text in enumerate(plain)]
        run.write(from_columns(step, np.arange(64) // 8, completion=gamed if step > 8 else plain), 0, {})
    return path


def test_phrases_names_what_is_over_used_with_an_example(tmp_path: Path) -> None:
    done = tiltmeter("rollouts", spoken(tmp_path / "run"), "--phrases", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["step"], told["compared_with"]) == (11, "start")
    (first, *_) = told["phrases"]
    assert first["text"].startswith("what a great question")
    assert (first["share"], first["share_before"]) == (0.5, 0.0)
    assert "what a great question" in first["excerpt"]
    before = tiltmeter("rollouts", tmp_path / "run", "--phrases", "--step", "8")
    assert "no over-used phrases" in before.stdout


def test_phrases_prints_hostile_text_as_text(tmp_path: Path) -> None:
    shown = in_a_terminal(["rollouts", spoken(tmp_path / "run", hostile=" \x1b[2J[red]"), "--phrases"])
    assert "great question" in shown
    assert "[2J" in shown
    assert "\x1b[2J" not in shown


def test_phrases_says_when_there_is_too_little(tmp_path: Path) -> None:
    path = spoken(tmp_path / "run", steps=2)
    for options, why in ((["--step", "7"], "at step 7"), ([], "too little text")):
        done = tiltmeter("rollouts", path, "--phrases", *options)
        assert done.returncode == 2
        assert why in done.stderr


def test_what_moved_is_shown_before_what_stood_still() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=60)
    drift = noise + np.arange(60) / 10
    assert change_in_noise(drift) > 3 * change_in_noise(noise)
    assert change_in_noise(np.ones(60)) == 0.0
    assert change_in_noise(drift[:4]) == 0.0


def test_gold_that_falls_between_prompts_is_said_although_no_alarm_can_ring(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run")
    attempt = run.open_attempt(launch="a", ranks=1, resume_step=None)
    for step in range(60):
        rng = np.random.default_rng(step)
        better = rng.random(64)  # inside a prompt the reward prefers the better answer, at every step
        gold = (0.2 * better + 0.7 * (1 - step / 60)).clip(0, 1)
        run.write(from_columns(step, np.arange(64) // 8, reward=better + step, gold=gold), 0, {"counters": {"seen": 1}})
    run.close_rank(attempt, 0, {"seen": 60})
    watch = MonitorLoop(run, Config.standard())
    watch.poll()
    watch.close()
    done = tiltmeter("show", run.path, "--plain", "--more")
    shown = done.stdout
    assert done.returncode == 2, "no prompt is known to come back: a harder mix of prompts would look the same"
    assert shown.splitlines()[1].startswith("Warning: gold is lower since about step ")
    assert "Gold was highest at steps 0 to 9, at 0.7" in shown
    assert "does not yet prefer the worse answer" in shown
    assert re.search(r"Not seen: \d+ readings, for want of .*completion", shown) and "to observe()" in shown
    honest = tiltmeter("show", made(tmp_path / "honest"), "--more").stdout
    assert "Gold was highest" not in honest


def test_the_rows_of_the_screen_are_about_different_things() -> None:
    rising = [(step, float(step)) for step in range(30)]
    flat = [(step, 1.0) for step in range(30)]
    names = ["reward.mean", *(f"policy.kl_tokens.{n}" for n in "abc"), "policy.kl.k1", "policy.kl.k3"]
    found = dict.fromkeys([*names, "policy.x", "policy.y", "text.overused.share", "text.overused.count"], rising)
    found["reward.dead_share"] = flat
    first = ["reward.mean", "reward.dead_share", "policy.kl.k3"]  # the usual ones, whether they moved or not
    assert choose_readings(found, 12) == [*first, "policy.kl_tokens.a", "text.overused.share", "policy.x"]
    assert len(str(short("reward.gain_share.reward_model.helpfulness"))) == 28


def test_a_crash_prints_nothing_that_can_act(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash() -> None:
        raise TypeError("an unexpected key 'x\x1b]52;c;AAAA\x07\x1b]0;owned\x07\u202e'")

    monkeypatch.setattr(cli, "app", crash)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    shown = capsys.readouterr().err
    assert ended.value.code == 2 and "Traceback" in shown and "\\u{1b}]52" in shown
    assert all(char.isprintable() or char == "\n" for char in shown)
