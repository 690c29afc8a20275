"""What TRL's trainer_state.json tells: the log by step, training and evaluation apart."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.adapters.readers.places import Place, listed, numbered
from tiltmeter.errors import StoreError

STATE_LIMIT = 1 << 30

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")
_PART = re.compile(r"rewards/(.+)/mean")


@dataclass(frozen=True)
class State:
    """What a trainer_state.json tells: the log by step, training and evaluation apart."""

    file: Path
    trained: Mapping[int, Mapping[str, Any]]
    evaluated: Mapping[int, Mapping[str, Any]]
    logging_steps: object

    @property
    def parts(self) -> list[str]:
        """Names of the reward functions, as the log tells them."""
        keys = dict.fromkeys(key for row in self.trained.values() for key in row)
        return [match[1] for key in keys if (match := _PART.fullmatch(key))]


def state_files(folder: Path, place: Place | None = None) -> list[Path]:
    """The folder's own file and that of its newest checkpoint."""
    if place is None:
        place = listed(folder) if folder.is_dir() else Place(folder, (), ())
    newest = [name for _, name in numbered(folder, place.folders, _CHECKPOINT)][-1:]
    files = [folder / "trainer_state.json"] if "trainer_state.json" in place.files else []
    return files + [file for name in newest if (file := folder / name / "trainer_state.json").is_file()]


def state_of(folder: Path) -> State | None:
    read = [(_json(file), file) for file in state_files(folder)]
    usable = [(made, file) for made, file in read if isinstance(made.get("log_history"), list)]
    if not usable:
        return None
    made, file = max(usable, key=lambda one: _count(one[0].get("global_step")))  # of two as new, the folder's own
    trained: dict[int, dict[str, Any]] = {}
    evaluated: dict[int, dict[str, Any]] = {}
    for entry in made["log_history"]:
        if not isinstance(entry, dict) or _count(entry.get("step")) < 0 or "train_runtime" in entry:
            continue
        of_eval = any(key.startswith("eval_") for key in entry)
        (evaluated if of_eval else trained).setdefault(entry["step"], {}).update(entry)
    return State(file, trained, evaluated, made.get("logging_steps"))


def _json(file: Path) -> dict[str, Any]:
    try:
        if file.stat().st_size > STATE_LIMIT:
            raise StoreError(f"{file}: more than {STATE_LIMIT >> 20} MB; this is no trainer_state.json")
        made = json.loads(file.read_bytes())
    except OSError as error:
        raise StoreError(f"{file}: it cannot be read ({error.strerror}); copy it again or move it away") from error
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{file}: not whole JSON; if it is being written, try again, else move it away") from error
    return made if isinstance(made, dict) else {}


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else -1


def by_part(row: Mapping[str, Any]) -> dict[str, Any]:
    """`rewards/NAME/mean` is `rewards/NAME` among us; the rest is for the common table of names."""
    parts = {key: f"rewards/{match[1]}" for key in row if (match := _PART.fullmatch(key))}
    return {parts.get(key, key): value for key, value in row.items()}


def told_of(state: State | None, steps: Sequence[int]) -> list[str]:
    if state is None:
        return [
            "no trainer_state.json: nothing that the trainer logged, and a file that an evaluation overwrote "
            "cannot be told from the others"
        ]
    last = max(state.trained, default=0)
    said = [f"metrics: {state.file.parent.name}/{state.file.name}, steps {min(state.trained, default=0)} to {last}"]
    if later := [step for step in steps if step > last]:
        said.append(
            f"steps {later[0]} to {later[-1]} come after that log: no metrics, and evaluations there are unseen"
        )
    if not any("kl" in row for row in state.trained.values()):
        said.append("no leash measured: with beta=0, TRL's default, there is no KL to a reference")
    return said
