"""The notebooks of the examples: run by a real Jupyter kernel, they show what they were committed with."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.pages import ROOT

nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def texts(notebook: Any) -> list[list[str]]:
    """The words that each cell printed: a kernel breaks what a command prints into parts at random. No pictures."""
    return ["".join(out.get("text", "") for out in cell.get("outputs", ())).split() for cell in notebook.cells]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_it_was_committed_with(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `!tiltmeter` is that of this environment.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    committed, run = nbformat.read(path, 4), nbformat.read(path, 4)
    nbclient.NotebookClient(run, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert texts(run) == texts(committed)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_says_first_how_to_install_and_has_exercises_with_answers(path: Path) -> None:
    notebook = nbformat.read(path, 4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert first.source.startswith("# %pip install -q tiltmeter")
    assert any("## Exercises" in cell.source for cell in notebook.cells)
    assert any(cell.source.startswith("# 1") and cell.outputs for cell in notebook.cells if cell.cell_type == "code")
    assert path.stat().st_size < 40_000


def test_there_are_three() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["check_a_reward", "find_a_hack", "forecast_and_tilt"]
