"""A lint rule: its record, with source and date, and what it reports.

A rule of level error says that the run will not do what is meant, or that the trainer refuses it; one of level note
that a setting is outside what is recommended. A trainer's own shipped examples give no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from tiltmeter.safety.safe_text import log_line
from tiltmeter_workbench.plan.settings.trainer_settings import TRAINERS, TrainerSettings

Level = Literal["error", "note"]


@dataclass(frozen=True)
class LintMatch:
    """One match of a rule: the key as written in the file, its value, what is wrong, and the fix."""

    key: str
    value: object
    sentence: str
    fix: str


@dataclass(frozen=True)
class LintRule:
    """One lint rule: a mistake in a configuration that can be seen before the run starts.

    `about` says in one line what it looks for, `where` which methods or files it applies to; `check`
    returns its matches in the configuration of one of `trainers`.

    >>> check = lambda settings: []
    >>> rule = LintRule("lr-zero", "error", "learning rate of 0", "all", check, "arithmetic", "2026-11-16")
    >>> rule.level
    'error'
    """

    id: str
    level: Level
    about: str
    where: str
    check: Callable[[TrainerSettings], Iterable[LintMatch]]
    source: str
    date: str
    trainers: tuple[str, ...] = TRAINERS


def format_value(value: object) -> str:
    """A value from the file as text in a message: one short line, with control characters escaped.

    >>> format_value(1e-06), format_value(8.0), format_value("a\\nb")
    ('1e-06', '8', 'a\\\\u{a}b')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return log_line(str(value), 80)
