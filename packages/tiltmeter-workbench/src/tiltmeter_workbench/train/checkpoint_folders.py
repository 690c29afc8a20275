"""The checkpoints that TRL leaves in a trainer's folder."""

from __future__ import annotations

import json
from pathlib import Path

STATE_FILE = "trainer_state.json"  # what TRL writes last into a checkpoint


def latest_checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint in a trainer's folder. One whose writer was killed lacks its state, and is passed
    over."""
    for _, part in reversed(checkpoints(folder)):
        try:
            json.loads((part / STATE_FILE).read_text("utf-8"))
        except (OSError, ValueError):
            continue
        return part
    return None


def checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints in a trainer's folder, whole or not, by their steps."""
    folders = [(part.name.rpartition("-")[2], part) for part in folder.glob("checkpoint-*")]
    return sorted((int(step), part) for step, part in folders if step.isdigit())
