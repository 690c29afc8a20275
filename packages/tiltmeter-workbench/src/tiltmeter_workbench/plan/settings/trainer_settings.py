"""Settings of a trainer configuration under common names: explicit values, the trainer's defaults, and their keys.

A value that only running the file would give is `UNREAD`, and no rule judges it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

TRAINERS = ("trl", "verl", "openrlhf")
NAMES = {"trl": "TRL", "verl": "veRL", "openrlhf": "OpenRLHF"}
#: Methods that sample answers and learn from their rewards.
ONLINE = ("ppo", "grpo", "rloo", "reinforce", "reinforce_baseline", "remax", "opo", "gpg")
#: Of those, the ones whose baseline is made of the other answers to the same prompt.
GROUPED = ("grpo", "rloo", "reinforce_baseline", "opo", "gpg")
PAIRS = ("dpo", "kto")


class UnreadValue:
    """A value that only running the file would give; it is equal to nothing, so no rule can judge it."""

    def __repr__(self) -> str:
        return "(only known when it runs)"


UNREAD = UnreadValue()


@dataclass(frozen=True)
class Setting:
    """One setting: its value, its key, and whether the file sets it (`explicit`) or it is the trainer's default."""

    value: Any
    key: str
    explicit: bool


@dataclass(frozen=True)
class Source:
    """Keys and values of one run in a file before the trainer is recognised, and the command they are options of.

    `form` is yaml, json, toml, python or shell; `command` the words before the settings (a shell's), or the names of
    the configuration classes (Python). `hints` are words in the file that may name the method.
    """

    path: Path
    form: str
    explicit: Mapping[str, Any]
    command: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainerSettings:
    """A configuration under names that are the same for every trainer, so that one rule covers them all.

    `common` is by Tiltmeter's name (`lr`, `group`, `beta_loss`, ...); a name that does not apply is absent. `explicit`
    is by the trainer's key, as the file has it. `unknown` are keys that this version of the trainer does not have;
    `gone` are those of them that an earlier version had.

    >>> common = {"lr": Setting(1e-6, "learning_rate", True)}
    >>> settings = TrainerSettings("a.yaml", "trl", "1.16.0", "grpo", "yaml", {}, common)
    >>> settings.number("lr"), settings.number("critic_lr"), settings.key("lr")
    (1e-06, None, 'learning_rate')
    """

    path: str
    trainer: str
    version: str
    method: str
    form: str
    explicit: Mapping[str, Any]
    common: Mapping[str, Setting]
    unknown: tuple[str, ...] = ()
    gone: Mapping[str, str] | None = None

    def number(self, name: str) -> float | None:
        """A setting that is a number; None where it is absent, something else or unread."""
        value = self.value(name)
        return None if isinstance(value, bool) or not isinstance(value, (int, float)) else value

    def value(self, name: str) -> Any:
        setting = self.common.get(name)
        return None if setting is None or setting.value is UNREAD else setting.value

    def text(self, name: str) -> str:
        value = self.value(name)
        return value if isinstance(value, str) else ""

    def on(self, name: str) -> bool:
        return self.value(name) is True

    def key(self, name: str) -> str:
        setting = self.common.get(name)
        return name if setting is None else setting.key

    def is_explicit(self, name: str) -> bool:
        setting = self.common.get(name)
        return setting is not None and setting.explicit

    @property
    def name(self) -> str:
        """The trainer with its version, for sentences."""
        return f"{NAMES[self.trainer]} {self.version}"


@cache
def trainer_tables() -> dict[str, Any]:
    """The table of each trainer's own settings, with the version and the day it was read from the package."""
    table: dict[str, Any] = json.loads(Path(__file__).with_name("known.json").read_text())
    return table


def find_setting(explicit: Mapping[str, Any], defaults: Mapping[str, Any], key: str) -> Setting | None:
    """A setting by its key: the file's value, else the trainer's default; None if the trainer has no such key."""
    if key in explicit:
        return Setting(explicit[key], key, True)
    return Setting(defaults[key], key, False) if key in defaults else None


def find_settings(
    explicit: Mapping[str, Any], defaults: Mapping[str, Any], names: Mapping[str, str]
) -> dict[str, Setting]:
    """The settings of a table from Tiltmeter's names to the trainer's keys, without those the trainer does not have."""
    settings = {name: find_setting(explicit, defaults, key) for name, key in names.items()}
    return {name: one for name, one in settings.items() if one is not None and one.value is not None}


def product(*parts: Setting | None) -> float | None:
    """The product of settings that are all numbers, else None."""
    total = 1.0
    for part in parts:
        if part is None or isinstance(part.value, bool) or not isinstance(part.value, (int, float)):
            return None
        total *= part.value
    return total
