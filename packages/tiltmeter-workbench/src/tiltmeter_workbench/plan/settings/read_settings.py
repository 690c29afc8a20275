"""Reads the settings of a trainer configuration, whichever trainer it is for.

Files are read as text and never run: YAML by its safe loader, Python by its syntax tree, shell scripts word by word
with the variables they set themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tiltmeter.errors import AttachError
from tiltmeter_workbench.plan.settings import openrlhf, trl, verl
from tiltmeter_workbench.plan.settings.files import read_sources
from tiltmeter_workbench.plan.settings.trainer_settings import NAMES, TRAINERS, Source, TrainerSettings


def read_runs(path: Path, trainer: str | None = None, method: str | None = None) -> list[TrainerSettings]:
    """The settings of a file, of each run that it starts: a script may run SFT first and RL after it.

    If it starts several and a method is named, only those of that method. Raises `AttachError`, with the fix, for a
    file that cannot be read or recognised.
    """
    if trainer is not None and trainer not in TRAINERS:
        raise AttachError(f"there is no trainer {trainer!r} here: choose one of {', '.join(TRAINERS)}")
    readers: dict[str, tuple[Callable[[Source], bool], Callable[[Source, str | None], TrainerSettings]]] = {
        "verl": (verl.recognises, verl.parse_settings),
        "openrlhf": (openrlhf.recognises, openrlhf.parse_settings),
        "trl": (trl.recognises, trl.parse_settings),
    }
    file_sources = read_sources(path)
    matches = [
        (
            source,
            next(
                reader
                for name, (recognises, reader) in readers.items()
                if trainer in (None, name) and recognises(source)
            ),
        )
        for source in file_sources
        if any(recognises(source) for name, (recognises, _) in readers.items() if trainer in (None, name))
    ]
    if len(matches) > 1 and method is not None:
        selected = [one for one in (settings(source, None) for source, settings in matches) if one.method == method]
        return selected or [matches[0][1](matches[0][0], method)]
    if matches:
        return [settings(source, method) for source, settings in matches]
    if (
        trainer is not None and file_sources and file_sources[0].explicit
    ):  # too few keys to recognise, but the trainer was named
        return [readers[trainer][1](file_sources[0], method)]
    of_trainer = "" if trainer is None else f" of {NAMES[trainer]}"
    raise AttachError(
        f"{path} has no settings{of_trainer} that are recognised: give a configuration (YAML, JSON, TOML), a "
        f"shell script that starts the training, or a Python script with TRL's configuration in it, and say "
        f"--trainer if it is one"
    )
