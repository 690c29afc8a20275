"""The checkpoints that a run says it saved, and where they are."""

from __future__ import annotations

import re
from pathlib import Path

from tiltmeter.rundir.checkpoints.sampling import FOLDER
from tiltmeter.rundir.run_path import entries
from tiltmeter.rundir.store import RunDirectory

_SAVE = re.compile(r"([0-9]{1,9})-([0-9]{1,15})\.json")


def list_saves(run: RunDirectory, attempt: int) -> list[int]:
    """The steps at which this attempt saved a checkpoint, in order."""
    matches = (_SAVE.fullmatch(entry.name) for entry in entries(run.path / FOLDER) if entry.is_file())
    return sorted(int(match[2]) for match in matches if match and int(match[1]) == attempt)


def checkpoint_folder(output: str, step: int) -> Path:
    """Where a Hugging Face trainer saves."""
    return Path(output) / f"checkpoint-{step}"
