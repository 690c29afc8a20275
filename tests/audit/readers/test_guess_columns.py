"""Tables with people's own column names: recognised by what they hold, and asked about."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tiltmeter.audit.readers.external_run import ReadOptions
from tiltmeter.audit.readers.guess_columns import guess_file
from tiltmeter.cli import app
from tiltmeter.errors import StoreError

NAMES = {
    "plain": ("iteration", "question", "model_answer", "rm_score", "human_rating"),
    "terse": ("it", "q", "a", "pts", "is_correct"),
    "hostile": ("it", "q", "a'; rm -rf ~ #", "pts", "is_correct"),
}


def write_table(path: Path, names: tuple[str, ...], steps: int = 6) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for row in range(8 * steps):
            prompt, text = f"what is {row % 8 // 4} and {row // 8}?", f"it is {row} " + "well " * (row % 4)
            writer.writerow([row // 8, prompt, text, f"{len(text) / 50:.3f}", f"{(row % 4) / 3:.3f}"])
    return path


@pytest.mark.parametrize("kind", NAMES)
def test_columns_are_recognised_by_what_they_hold(tmp_path: Path, kind: str) -> None:
    names = NAMES[kind]
    guess = guess_file(write_table(tmp_path / "mine.csv", names), ReadOptions())
    assert guess is not None
    assert guess.columns == {"step": names[0], "prompt": names[1], "completion": names[2], "reward": names[3]}
    assert guess.gold == (names[4],)


def test_where_nobody_can_be_asked_the_command_is_said_and_works(tmp_path: Path) -> None:
    table = write_table(tmp_path / "mine.csv", NAMES["plain"])
    done = CliRunner().invoke(app, ["audit", str(table)])
    assert isinstance(done.exception, StoreError)
    said = str(done.exception)
    assert "--map completion=model_answer --map reward=rm_score --map prompt=question --map step=iteration" in said
    assert "--map gold=human_rating, if that is what you really want" in said
    options = [word for word in said.split() if "=" in word and "gold" not in word]
    done = CliRunner().invoke(app, ["audit", str(table), *(part for one in options for part in ("--map", one))])
    assert "6 steps, 48 rollouts" in done.stderr


def test_on_a_terminal_it_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = write_table(tmp_path / "mine.csv", NAMES["hostile"])
    with monkeypatch.context() as terminal:
        terminal.setattr("tiltmeter.cli.audit._on_terminal", lambda: True)
        yes = CliRunner().invoke(app, ["audit", str(table), "--plain"], input="y\ny\n")
        no = CliRunner().invoke(app, ["audit", str(table), "--plain"], input="n\n")
    assert "6 steps, 48 rollouts" in yes.stderr and "gold: is_correct" not in yes.stdout
    assert "completion is a'; rm -rf ~ #" in yes.stderr
    assert no.exit_code != 0 and "say which column is which" in str(no.exception)


@pytest.mark.parametrize(
    "names", [("step", "prompt", "completion", "reward", "gold"), ("step", "loss", "entropy", "reward", "gold")]
)
def test_names_of_ours_and_tables_of_metrics_are_not_asked_about(tmp_path: Path, names: tuple[str, ...]) -> None:
    table = tmp_path / "mine.csv"
    if "loss" in names:
        table.write_text(",".join(names) + "\n" + "".join(f"{i},0.{i},1.5,0.{i},0.5\n" for i in range(9)))
    else:
        write_table(table, names)
    assert guess_file(table, ReadOptions()) is None
