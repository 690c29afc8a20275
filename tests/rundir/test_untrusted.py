"""A directory from somebody else: what does not belong into it is named, and it is not changed without a word."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tiltmeter.cli import app
from tiltmeter.data.batches import from_columns
from tiltmeter.errors import AttachError
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.evaluations import Evaluation, write_evaluation
from tiltmeter.rundir.gate.file_kinds import file_kind
from tiltmeter.rundir.gate.untrusted import strange_files
from tiltmeter.rundir.maintenance import pack
from tiltmeter.rundir.pinned_prompts import make_snapshot, write_snapshot
from tiltmeter.rundir.store import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    (tmp_path / "gold.py").write_text("def score(prompt, completion):\n    return 1.0\n")
    run = RunDirectory.create(tmp_path / "run")
    run.open_attempt(launch="x", ranks=1, resume_step=None)
    run.claim(0, 0)
    for step in range(3):
        run.write(from_columns(step, [0, 0], reward=[0, 1], prompt=["a"] * 2, completion=["b", "c"]), 0, {})
    write_evaluation(run, Evaluation(0, 1, "gsm8k", 0.5, 10))
    write_snapshot(run, make_snapshot(0, 1, "evaluation", ["a"], ["b"]))
    run.report_trouble(0, 0, "disk full")
    run.close_rank(0, 0, {"seen": 3})
    loop = MonitorLoop(run, Config.standard(gold=f"{tmp_path / 'gold.py'}:score"))
    while loop.poll():
        pass
    loop.close()
    run.write(from_columns(1, [0, 0], reward=[0, 1]), 0, {})
    pack(run)
    return run


def test_what_does_not_belong_into_a_run_is_named(run: RunDirectory, tmp_path: Path) -> None:
    assert strange_files(run) == [], "nothing that Tiltmeter writes is strange"
    (run.path / "rollouts" / "0" / "sitecustomize.py").write_text("")
    (run.path / "rollouts" / "0" / ".000001-0.parquet.0123abcd").write_text("")  # of a writer that was killed
    (run.path / ".mirror.json").write_text("{}")
    (run.path / "gold" / ".hidden.pth").write_text("")
    (run.path / "gold" / "x").symlink_to(tmp_path)
    os.mkfifo(run.path / "evals" / "0-000002-gsm8k.json")
    (run.path / "events" / "0.jsonl").chmod(0o755)
    os.link(run.path / "run.json", tmp_path / "other")
    assert [line.split(":")[0] for line in strange_files(run)] == [
        ".mirror.json", "evals/0-000002-gsm8k.json", "events/0.jsonl", "gold/.hidden.pth", "gold/x",
        "rollouts/0/sitecustomize.py", "run.json",
    ]  # fmt: skip
    result = CliRunner().invoke(app, ["verify", str(run.path), "--untrusted"])
    assert result.exit_code == 1 and "sitecustomize.py: not a documented file" in result.output


def test_every_file_of_the_page_of_run_directories_belongs_into_a_run() -> None:
    examples = {
        "STEP": "000412", "RANK-KIND": "0-columns", "RANK": "0", "FIRST-LAST": "0-83", "WORKER-SEQ": "0123456789ab-4",
        "WORKER": "0123456789ab", "SHA256": "0" * 64, "TIME-ID": "1794994918793-0123abcd", "SINK-XXXXXXXX": "wandb-0",
        "ID": "0-120-beta.apply", "NAME": "gsm8k", "FIRST": "7", "N": "0", "K": "3", "G": "1",
    }  # fmt: skip
    page = (Path(__file__).parents[2] / "docs" / "run-directory.md").read_text()
    listed = page.split("```")[1].splitlines()
    names = [line.split()[0] for line in listed if line[:3].strip()]
    assert len(names) > 45
    for line in names:
        name = line.rstrip(",")
        if name.startswith(".") or name == "RUN/":
            continue
        for word, example in examples.items():
            name = re.sub(rf"(?<![A-Z]){word}(?![A-Z])", example, name)
        name = name.replace("/*/*.jsonl", "/a/b.jsonl").replace("*", "0123abcd")
        assert file_kind(name), f"{line} is documented, and would be called strange as {name}"


def test_a_run_of_another_user_is_changed_only_with_trust(run: RunDirectory) -> None:
    if os.geteuid():
        pytest.skip("only root can give a folder away")
    os.chown(run.path, 12345, -1)
    before = sorted(path.stat().st_mtime_ns for path in run.path.rglob("*"))
    for words in (("watch", "--once"), ("pack",), ("purge", "--yes")):
        result = CliRunner().invoke(app, [words[0], str(run.path), *words[1:]])
        assert isinstance(result.exception, AttachError) and "belongs to user 12345" in str(result.exception)
    assert sorted(path.stat().st_mtime_ns for path in run.path.rglob("*")) == before
    assert CliRunner().invoke(app, ["purge", str(run.path), "--yes", "--trust"]).exit_code == 0
