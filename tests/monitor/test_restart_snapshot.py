"""A restart from a snapshot equals one that folds the whole journal; a snapshot that is not this run's is ignored."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tiltmeter.data.batches import from_columns
from tiltmeter.data.object_graph import encode_graph
from tiltmeter.gold.function import FunctionSource
from tiltmeter.monitor import restart_snapshot
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.panel import InstrumentPanel
from tiltmeter.monitor.parts import Config
from tiltmeter.monitor.restart_snapshot import ADVISOR_WIRING, PANEL_WIRING, RestartSnapshots
from tiltmeter.rundir.gate.untrusted import strange_files
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory


def gold(prompts: Sequence[str], completions: Sequence[str]) -> list[float]:
    return [float(len(text) % 3 == 0) for text in completions]


def settings(labelled: bool) -> Config:
    config = Config.standard()
    return config.with_gold(FunctionSource("gold", gold), 0.5) if labelled else config


def write(run: RunDirectory, attempt: int, first: int, steps: int) -> None:
    """A reward that comes to pay for length, so that warnings, findings and an alarm have something to say."""
    for step in range(first, first + steps):
        rng = np.random.default_rng([attempt, step])
        length = rng.integers(1, 5 + step, 16)
        reward = rng.random(16) + 0.05 * length
        run.write(
            from_columns(
                step, np.repeat(np.arange(4), 4), attempt=attempt, reward=reward, rewards={"a": reward},
                gold=(rng.random(16) > step / 30).astype(float), length=length,
                prompt=[f"question {row // 4}" for row in range(16)],
                completion=["word " * int(size) for size in length],
                fingerprint="one" if step < 12 else "two",
                env=[("a", "b")[row // 8] for row in range(16)],
            ),
            0,
            {"counters": {"seen": step + 1}},
        )  # fmt: skip


def measure(run: RunDirectory, config: Config) -> None:
    loop = MonitorLoop(run, config, strict=True, snapshots=True)
    while loop.poll():
        pass
    loop.close()


def memory(loop: MonitorLoop) -> tuple[bytes, bytes, object]:
    panel = {name: item for name, item in vars(loop.panel).items() if name not in PANEL_WIRING}
    advisor = {name: item for name, item in vars(loop.advisor).items() if name not in ADVISOR_WIRING}
    return encode_graph(panel), encode_graph(advisor), loop.memory.past_due


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunDirectory:
    """Two attempts, the second from an earlier step."""
    monkeypatch.setattr(restart_snapshot, "FIRST_SECONDS", 0.0)  # one after every commit
    monkeypatch.setattr(restart_snapshot, "SHARE", float("inf"))
    run = RunDirectory.create(tmp_path / "run")
    for first, steps in ((0, 14), (9, 12)):
        write(run, run.open_attempt(launch="x", ranks=1, resume_step=first), first, steps)
    return run


@pytest.mark.parametrize("labelled", [False, True])
def test_a_restart_from_a_snapshot_equals_one_from_the_beginning(
    run: RunDirectory, tmp_path: Path, labelled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(labelled)
    measure(run, config)
    stored = (run.path / "cache" / "restart_snapshot").read_bytes()
    write(run, 1, 21, 4)  # folded after the snapshot that is used
    measure(run, config)
    (run.path / "cache" / "restart_snapshot").write_bytes(stored)
    assert strange_files(run) == []

    folds: list[int] = []
    real = InstrumentPanel.fold

    def counted(panel: InstrumentPanel, *args: Any, **kwargs: Any) -> Any:
        folds.append(1)
        return real(panel, *args, **kwargs)

    monkeypatch.setattr(InstrumentPanel, "fold", counted)
    quick = MonitorLoop(run, config, strict=True, snapshots=True)
    few = len(folds)
    slow = MonitorLoop(run, config, strict=True)
    assert few < 12 < 20 < len(folds) - few
    assert memory(quick) == memory(slow)
    for one in (quick, slow):
        one.close()

    write(run, 1, 25, 5)
    write(run, run.open_attempt(launch="x", ranks=1, resume_step=26), 26, 3)
    journals = []
    for name in ("with", "without"):
        copy = RunDirectory(Path(shutil.copytree(run.path, tmp_path / name)))
        if name == "without":
            (copy.path / "cache" / "restart_snapshot").unlink()
        measure(copy, config)
        journals.append(read_events(copy.path / "events"))
    assert len(journals[0]) == len(journals[1]) > 40
    assert all(one.same_content(other) for one, other in zip(*journals, strict=True))


@pytest.mark.parametrize(
    "how", ["another journal", "a flipped bit", "cut off", "other code", "other settings", "other key"]
)
def test_a_snapshot_that_does_not_fit_is_ignored(
    run: RunDirectory, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = settings(labelled=False)
    measure(run, config)
    path = run.path / "cache" / "restart_snapshot"
    content = bytearray(path.read_bytes())
    match how:
        case "another journal":
            for file in (run.path / "events").iterdir():
                lines = file.read_bytes().splitlines(keepends=True)
                file.write_bytes(b"".join(lines[:-3]))
        case "a flipped bit":
            content[len(content) // 2] ^= 1
        case "cut off":
            del content[len(content) // 2 :]
        case "other code":
            monkeypatch.setattr(restart_snapshot, "code_digest", lambda rooms: "another")
        case "other settings":
            config = settings(labelled=True)
        case "other key":
            monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    path.write_bytes(content)
    slow = MonitorLoop(run, config, strict=True)
    expected = memory(slow)
    slow.close()
    quick = MonitorLoop(run, config, strict=True, snapshots=True)
    assert memory(quick) == expected
    quick.close()


def test_without_a_place_for_the_key_there_are_no_snapshots(
    run: RunDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    measure(run, settings(labelled=False))
    assert not (run.path / "cache" / "restart_snapshot").exists() and len(read_events(run.path / "events")) > 20


def test_on_a_full_disk_the_snapshot_is_found(run: RunDirectory) -> None:
    config = settings(False)
    measure(run, config)
    _, most = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, most))  # no byte can be written
    try:
        found = RestartSnapshots(run, config.digest).read()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert found is not None


def test_a_plug_in_that_remembers_goes_without_snapshots(run: RunDirectory, tmp_path: Path) -> None:
    (tmp_path / "counting.py").write_text(
        "class Counting:\n    name, watches, seen = 'count', ('reward.mean',), 0\n\n"
        "    def fold(self, reading):\n        self.seen += 1\n"
    )
    measure(run, Config.standard([f"{tmp_path / 'counting.py'}:Counting"]))
    assert not (run.path / "cache" / "restart_snapshot").exists() and len(read_events(run.path / "events")) > 20
