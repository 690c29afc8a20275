"""The picture of `tiltmeter show` and `report`: in a terminal, as a file, and with the verdict's exit code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tiltmeter.cli import app
from tiltmeter.data.batches import from_columns
from tiltmeter.monitor.loop import MonitorLoop
from tiltmeter.monitor.parts import Config
from tiltmeter.rundir.store import RunDirectory


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten steps in which reward and gold rise, in a folder whose name is no terminal's friend."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("runs") / "to\x1b[2Jnight"
    directory = RunDirectory.create(path)
    directory.open_attempt(launch="one", ranks=1, resume_step=None)
    for step in range(10):
        gold = (rng.random(32) < 0.3 + 0.05 * step).astype(float)
        batch = from_columns(step, np.repeat(np.arange(8), 4), reward=3 * gold + rng.random(32), gold=gold)
        directory.write(batch, 0, {"counters": {"seen": step + 1, "written": step + 1}, "time": 0.0})
    directory.close_rank(0, 0, {"seen": 10, "written": 10})
    loop = MonitorLoop(directory, Config.standard())
    while loop.poll():
        pass
    loop.close()
    return path


def test_the_picture_is_drawn_in_the_terminal_or_written_with_the_verdicts_exit_code(run: Path, tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["show", str(run), "--picture"])
    dots = [line for line in shown.stdout.splitlines() if any("\u2801" <= char <= "\u28ff" for char in line)]
    assert len(dots) >= 6 and "reward" in shown.stdout and "gold" in shown.stdout and "\x1b[2J" not in shown.stdout
    svg, png = tmp_path / "a.svg", tmp_path / "a.png"
    written = CliRunner().invoke(app, ["report", str(run), "--svg", str(svg), "--png", str(png)])
    assert svg.read_text().startswith("<svg ") and "\x1b" not in svg.read_text()
    assert (
        not list(tmp_path.glob("*.html"))
        and CliRunner().invoke(app, ["report", str(run), "--svg", "-"]).stdout == svg.read_text()
    )
    assert png.read_bytes().startswith(b"\x89PNG") and len(png.read_bytes()) < 200_000
    judged = CliRunner().invoke(app, ["show", str(run)])
    assert shown.exit_code == written.exit_code == judged.exit_code


def test_plain_is_ascii_and_a_png_needs_a_file(run: Path) -> None:
    plain = CliRunner().invoke(app, ["show", str(run), "--picture", "--plain"])
    assert plain.stdout.isascii() and "reward" in plain.stdout
    refused = CliRunner().invoke(app, ["report", str(run), "--png", "-"])
    assert refused.exit_code == 2 and "name a file" in refused.output


def test_more_of_show_has_the_picture(run: Path) -> None:
    shown = CliRunner().invoke(app, ["show", str(run), "--more"])
    assert sum(any("\u2801" <= char <= "\u28ff" for char in line) for line in shown.stdout.splitlines()) >= 4
