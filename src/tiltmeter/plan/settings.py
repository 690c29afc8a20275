"""A trainer's configuration as plain settings: what was said, what is left to the trainer's defaults, and by which key.

Files are read as text and never run: YAML by its safe loader, Python by its syntax tree, shell scripts word by word
with the variables they set themselves. What cannot be known without running a file is `UNREAD`, and no rule speaks of
it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError

TRAINERS = ("trl", "verl", "openrlhf")
NAMES = {"trl": "TRL", "verl": "veRL", "openrlhf": "OpenRLHF"}
#: Methods that sample answers and learn from their rewards.
ONLINE = ("ppo", "grpo", "rloo", "reinforce", "reinforce_baseline", "remax", "opo", "gpg")
#: Of those, the ones whose baseline is made of the other answers to the same prompt.
GROUPED = ("grpo", "rloo", "reinforce_baseline", "opo", "gpg")
PAIRS = ("dpo", "kto")


class Unread:
    """A value that only running the file would tell; it compares with nothing, so no rule can judge it."""

    def __repr__(self) -> str:
        return "(only known when it runs)"


UNREAD = Unread()


@dataclass(frozen=True)
class Given:
    """One setting: its value, the key that holds it, and whether the file says it or the trainer's default holds."""

    value: Any
    key: str
    said: bool


@dataclass(frozen=True)
class Source:
    """What a file holds before anyone knows whose it is: keys and values, and the command that they were given to.

    `form` is yaml, json, toml, python or shell; `command` the words before the settings (a shell's), or the names of
    the configuration classes (Python's). `hints` are words that tell the method, where nothing better does.
    """

    path: Path
    form: str
    said: Mapping[str, Any]
    command: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """A configuration in words that are the same for every trainer, so that one rule serves them all.

    `plain` is by Tiltmeter's name (`lr`, `group`, `beta_loss`, ...); a name that does not apply is absent. `unknown`
    are keys that this version of the trainer does not have, as written; `gone` those that an earlier one had.

    >>> settings = Settings("a.yaml", "trl", "1.16.0", "grpo", "yaml", {}, {"lr": Given(1e-6, "learning_rate", True)})
    >>> settings.number("lr"), settings.number("critic_lr"), settings.key("lr")
    (1e-06, None, 'learning_rate')
    """

    path: str
    trainer: str
    version: str
    method: str
    form: str
    said: Mapping[str, Any]
    plain: Mapping[str, Given]
    unknown: tuple[str, ...] = ()
    gone: Mapping[str, str] | None = None

    def number(self, name: str) -> float | None:
        """A setting that is a number; None where it is absent, something else or unread."""
        value = self.value(name)
        return None if isinstance(value, bool) or not isinstance(value, (int, float)) else value

    def value(self, name: str) -> Any:
        found = self.plain.get(name)
        return None if found is None or found.value is UNREAD else found.value

    def text(self, name: str) -> str:
        value = self.value(name)
        return value if isinstance(value, str) else ""

    def on(self, name: str) -> bool:
        return self.value(name) is True

    def key(self, name: str) -> str:
        found = self.plain.get(name)
        return name if found is None else found.key

    def is_said(self, name: str) -> bool:
        found = self.plain.get(name)
        return found is not None and found.said

    @property
    def name(self) -> str:
        """The trainer with its version, for sentences."""
        return f"{NAMES[self.trainer]} {self.version}"


@cache
def known() -> dict[str, Any]:
    """The table of each trainer's own settings, with the version and the day it was read from the package."""
    table: dict[str, Any] = json.loads(Path(__file__).with_name("known.json").read_text())
    return table


def runs(path: Path, trainer: str | None = None, method: str | None = None) -> list[Settings]:
    """The settings of a file, of each run that it starts: a script may fine-tune first and sample then.

    Where it starts several and a method is named, only those of that method. Raises `AttachError`, with the fix, for a
    file that cannot be read or told.
    """
    from tiltmeter.plan import settings_openrlhf, settings_trl, settings_verl
    from tiltmeter.plan.settings_files import sources

    if trainer is not None and trainer not in TRAINERS:
        raise AttachError(f"there is no trainer {trainer!r} here: choose one of {', '.join(TRAINERS)}")
    readers: dict[str, tuple[Callable[[Source], bool], Callable[[Source, str | None], Settings]]] = {
        "verl": (settings_verl.recognised, settings_verl.settings),
        "openrlhf": (settings_openrlhf.recognised, settings_openrlhf.settings),
        "trl": (settings_trl.recognised, settings_trl.settings),
    }
    found = sources(path)
    started = [
        (source, next(read for name, (ours, read) in readers.items() if trainer in (None, name) and ours(source)))
        for source in found
        if any(ours(source) for name, (ours, _) in readers.items() if trainer in (None, name))
    ]
    if len(started) > 1 and method is not None:
        meant = [one for one in (settings(source, None) for source, settings in started) if one.method == method]
        return meant or [started[0][1](started[0][0], method)]
    if started:
        return [settings(source, method) for source, settings in started]
    if trainer is not None and found and found[0].said:  # too few keys to tell by, but somebody told
        return [readers[trainer][1](found[0], method)]
    asked = "" if trainer is None else f" of {NAMES[trainer]}"
    raise AttachError(
        f"{path} has no settings{asked} that are known here: give a configuration (YAML, JSON, TOML), a shell script "
        f"that starts the training, or a Python script with TRL's configuration in it, and say --trainer if it is one"
    )


def read(path: Path, trainer: str | None = None, method: str | None = None) -> Settings:
    """The settings of the first run that a file starts."""
    return runs(path, trainer, method)[0]


def given(said: Mapping[str, Any], defaults: Mapping[str, Any], key: str) -> Given | None:
    """A setting by its key: what the file says, else the trainer's default; None where the trainer has no such key."""
    if key in said:
        return Given(said[key], key, True)
    return Given(defaults[key], key, False) if key in defaults else None


def gathered(said: Mapping[str, Any], defaults: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Given]:
    """The settings of a table from Tiltmeter's names to the trainer's keys, without those the trainer does not have."""
    found = {name: given(said, defaults, key) for name, key in names.items()}
    return {name: one for name, one in found.items() if one is not None and one.value is not None}


def product(*parts: Given | None) -> float | None:
    """The product of settings that are all numbers, else None."""
    total = 1.0
    for part in parts:
        if part is None or isinstance(part.value, bool) or not isinstance(part.value, (int, float)):
            return None
        total *= part.value
    return total
