"""`tiltmeter quickstart` writes what the documentation runs, for the trainer that is here; shells complete verbs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.command_line import tiltmeter
from tests.pages import DOCS, ROOT

from tiltmeter.cli import quickstart
from tiltmeter.cli.quickstart import SCRIPTS, Trainer, installed_trainer, script
from tiltmeter.cli.verb_table import names_below


def test_the_scripts_are_those_that_are_run_elsewhere() -> None:
    assert script("trl") == (ROOT / "examples" / "trl_quickstart.py").read_text()
    page = re.search(r"^```python\n(import numpy.*?)^```$", (DOCS / "start.md").read_text(), re.M | re.S)
    assert page is not None and page[1].strip() in script("loop")


@pytest.mark.parametrize("trainer", SCRIPTS)
def test_every_script_attaches_and_nothing_is_overwritten(trainer: Trainer, tmp_path: Path) -> None:
    path = tmp_path / "first"
    assert tiltmeter("quickstart", "--trainer", trainer, "--out", path).returncode == 0
    text = path.read_text()
    assert "tiltmeter" in text.lower()
    if trainer in ("trl", "loop"):
        compile(text, "first.py", "exec")
    again = tiltmeter("quickstart", "--trainer", "loop", "--out", path)
    assert again.returncode == 2 and "is there already" in again.stderr and path.read_text() == text


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    done = tiltmeter("quickstart", "--trainer", "loop", "--out", tmp_path / "nowhere" / "first.py")
    assert done.returncode == 2 and "cannot be written" in done.stderr


def test_the_trainer_that_is_installed_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for here, chosen in (({"trl", "verl"}, "trl"), ({"openrlhf"}, "openrlhf"), (set[str](), "loop")):
        monkeypatch.setattr(quickstart, "find_spec", lambda name, here=here: name if name in here else None)
        assert installed_trainer() == chosen


def test_a_shell_completes_verbs() -> None:
    asked = {"_TILTMETER_COMPLETE": "complete_bash", "COMP_WORDS": "tiltmeter pi", "COMP_CWORD": "1"}
    code = "import sys; sys.argv = ['tiltmeter']; from tiltmeter.cli import app; app(prog_name='tiltmeter')"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | asked, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == [name for name in names_below("") if name.startswith("pi")], done.stderr
