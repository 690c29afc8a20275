"""The notebook of the examples, run by a real Jupyter kernel: gold is a function of one of its cells."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.rundir.journal import read_events

nbclient = pytest.importorskip("nbclient", reason="needs nbclient and ipykernel")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")
pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder that it ran in, and what each cell of code showed."""
    folder = tmp_path_factory.mktemp("notebook")
    for name in ("gold_in_a_cell.ipynb", "trl_quickstart.py"):
        shutil.copy(EXAMPLES / name, folder)
    notebook = nbformat.read(folder / "gold_in_a_cell.ipynb", 4)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}}).execute()
    cells: list[Any] = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return folder, [json.dumps(cell.outputs) for cell in cells]


def test_gold_of_a_cell_is_tried_asked_and_named(executed: tuple[Path, list[str]]) -> None:
    folder, outputs = executed
    *_, attached, _, shown = outputs
    assert "notebook.py:score was tried on 4 rows of the dataset" in attached
    assert "the dataset's own answers score 1, 'I do not know.' scores 0" in attached
    events = list(read_events(folder / "quickstart" / "tiltmeter" / "events"))
    assert {event.data["gold"]["name"] for event in events if event.data.get("gold")} == {"notebook.py:score"}
    assert sum(event.data["answered"] for event in events if event.kind == "labels_closed") >= 64
    assert "text/html" in shown
    (written,) = (folder / "quickstart" / "tiltmeter" / "gold" / "functions").glob("*/notebook.py")
    assert "def numbers(text):" in written.read_text(), "a helper of another cell"


def test_the_notebook_is_kept_without_what_a_run_showed() -> None:
    notebook = nbformat.read(EXAMPLES / "gold_in_a_cell.ipynb", 4)
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in notebook.cells)
