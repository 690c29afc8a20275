"""What a rule of the linter is, what it finds, and all of them: each one record with its source and its date.

A rule of level error says that the run will not do what is meant, or that the trainer refuses it; one of level note
that a setting is outside what is recommended. A trainer's own shipped examples give no error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from tiltmeter.encode import log_line
from tiltmeter.plan.settings import TRAINERS, Settings

Level = Literal["error", "note"]


@dataclass(frozen=True)
class Found:
    """One place in a configuration that a rule speaks about: the key as written, its value, what is wrong, the fix."""

    key: str
    value: object
    sentence: str
    fix: str


@dataclass(frozen=True)
class Rule:
    """One thing that is known to go wrong before a run has begun, so that it costs a minute and not a night.

    `about` says in a line what it looks for, `where` which methods or files it is about; `check` gives what it finds in
    one of `trainers`.

    >>> rule = Rule("lr-zero", "error", "learning rate of 0", "all", lambda settings: [], "arithmetic", "2026-11-16")
    >>> rule.level
    'error'
    """

    id: str
    level: Level
    about: str
    where: str
    check: Callable[[Settings], Iterable[Found]]
    source: str
    date: str
    trainers: tuple[str, ...] = TRAINERS


def shown(value: object) -> str:
    """A value of a stranger's file in a sentence: one line, short, and nothing in it acts.

    >>> shown(1e-06), shown(8.0), shown("a\\nb")
    ('1e-06', '8', 'a\\\\u{a}b')
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return log_line(str(value), 80)


def every_rule() -> tuple[Rule, ...]:
    """All rules, errors first."""
    from tiltmeter.plan import rules_broken, rules_keys, rules_ranges

    return (*rules_keys.RULES, *rules_broken.RULES, *rules_ranges.RULES)
