"""Reads the log in TRL's trainer_state.json: by step, training and evaluation separately."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.audit.readers.folders import FolderListing, list_folder, numbered_names
from tiltmeter.errors import StoreError

STATE_LIMIT = 1 << 30

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_PART = re.compile(r"rewards/(.+)/mean")


@dataclass(frozen=True)
class TrainerLog:
    """The log in a trainer_state.json: by step, training and evaluation separately."""

    file: Path
    train_log: Mapping[int, Mapping[str, Any]]
    eval_log: Mapping[int, Mapping[str, Any]]
    logging_steps: object

    @property
    def parts(self) -> list[str]:
        """Names of the reward functions in the log."""
        keys = dict.fromkeys(key for row in self.train_log.values() for key in row)
        return [match[1] for key in keys if (match := _PART.fullmatch(key))]


def state_files(folder: Path, listing: FolderListing | None = None) -> list[Path]:
    """The folder's own file and that of its newest checkpoint."""
    if listing is None:
        listing = list_folder(folder) if folder.is_dir() else FolderListing(folder, (), ())
    newest = [name for _, name in numbered_names(folder, listing.folders, _CHECKPOINT)][-1:]
    files = [folder / "trainer_state.json"] if "trainer_state.json" in listing.files else []
    return files + [file for name in newest if (file := folder / name / "trainer_state.json").is_file()]


def read_state(folder: Path) -> TrainerLog | None:
    loaded = [(_read_json(file), file) for file in state_files(folder)]
    usable = [(content, file) for content, file in loaded if isinstance(content.get("log_history"), list)]
    if not usable:
        return None
    content, file = max(usable, key=lambda one: _count(one[0].get("global_step")))  # of two as new, the folder's own
    train_log: dict[int, dict[str, Any]] = {}
    eval_log: dict[int, dict[str, Any]] = {}
    for entry in content["log_history"]:
        if not isinstance(entry, dict) or _count(entry.get("step")) < 0 or "train_runtime" in entry:
            continue
        of_eval = any(key.startswith("eval_") for key in entry)
        (eval_log if of_eval else train_log).setdefault(entry["step"], {}).update(entry)
    return TrainerLog(file, train_log, eval_log, content.get("logging_steps"))


def _read_json(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > STATE_LIMIT:
            raise StoreError(f"{file}: more than {STATE_LIMIT >> 20} MB; this is no trainer_state.json")
        content = json.loads(file.read_bytes())
    except OSError as error:
        raise StoreError(f"{file}: it cannot be read ({error.strerror}); copy it again or move it away") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{file}: not whole JSON; if it is being written, try again, else move it away") from error
    return content if isinstance(content, dict) else {}


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else -1


def rename_parts(row: Mapping[str, Any]) -> dict[str, Any]:
    """Rename `rewards/NAME/mean` to `rewards/NAME`; other keys are left to the table of metric names."""
    parts = {key: f"rewards/{match[1]}" for key in row if (match := _PART.fullmatch(key))}
    return {parts.get(key, key): value for key, value in row.items()}


def state_notes(state: TrainerLog | None, steps: Sequence[int]) -> list[str]:
    if state is None:
        return [
            "no trainer_state.json: nothing that the trainer logged, and a file that an evaluation overwrote "
            "cannot be told from the others"
        ]
    last = max(state.train_log, default=0)
    notes = [f"metrics: {state.file.parent.name}/{state.file.name}, steps {min(state.train_log, default=0)} to {last}"]
    if later := [step for step in steps if step > last]:
        notes.append(
            f"steps {later[0]} to {later[-1]} come after that log: no metrics, and evaluations there are unseen"
        )
    if not any("kl" in row for row in state.train_log.values()):
        notes.append("no KL measured: with beta=0, TRL's default, there is no KL to a reference")
    return notes
