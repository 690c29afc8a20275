"""A configuration against every rule: what is known to go wrong, before it costs a night.

>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder:
...     file = Path(folder) / "grpo.json"
...     _ = file.write_text('{"num_generations": 1, "learning_rate": 2e-6, "reward_funcs": ["accuracy_reward"]}')
...     found = linted(file)
>>> found.trainer, found.method, [one.rule for one in found.complaints if one.level == "error"]
('trl', 'grpo', ['group-of-one'])
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tiltmeter.encode import log_line
from tiltmeter.plan.rules import every_rule
from tiltmeter.plan.settings import UNREAD, Settings, runs


@dataclass(frozen=True)
class Complaint:
    """One thing a rule has against a configuration: where, why, what to write instead, and on whose word.

    An error means that the run will not do what is meant, or will not start; a note that a setting is outside what is
    recommended.
    """

    level: Literal["error", "note"]
    rule: str
    key: str
    value: object
    sentence: str
    fix: str
    source: str
    date: str


@dataclass(frozen=True)
class Linted:
    """A configuration that was read and judged: whose it is, its settings in plain words, and the complaints.

    A script may start several runs: their trainers and methods are joined by commas, and the settings are the first's.
    """

    path: str
    trainer: str
    method: str
    settings: Mapping[str, object]
    complaints: tuple[Complaint, ...]

    @property
    def errors(self) -> tuple[Complaint, ...]:
        return tuple(one for one in self.complaints if one.level == "error")


def linted(path: Path, trainer: str | None = None, method: str | None = None) -> Linted:
    """Every complaint about a file of TRL's, veRL's or OpenRLHF's. Raises `AttachError` for one that cannot be read."""
    started = runs(Path(path), trainer, method)
    found = [one for number, settings in enumerate(started, 1) for one in _complaints(settings, number, len(started))]
    found.sort(key=lambda one: one.level)  # errors before notes; otherwise in the order of the runs and the rules
    plain = {name: _told(one.value) for name, one in started[0].plain.items() if one.value is not UNREAD}
    trainers, methods = (
        ", ".join(dict.fromkeys(each)) for each in zip(*((one.trainer, one.method) for one in started), strict=True)
    )
    return Linted(str(path), trainers, methods, plain, tuple(found))


def _complaints(settings: Settings, number: int, of: int) -> Iterator[Complaint]:
    """Those about one run; of several it is said which."""
    run = "" if of == 1 else f"run {number} of {of}, {settings.method}: "
    for rule in every_rule():
        if settings.trainer not in rule.trainers:
            continue
        for found in rule.check(settings):
            value, sentence = _told(found.value), f"{run}{found.sentence}"
            yield Complaint(rule.level, rule.id, found.key, value, sentence, found.fix, rule.source, rule.date)


def _told(value: object) -> object:
    """A value as it may be shown or written as JSON: text of the file is bounded, and what was not read is None."""
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list):
        return [_told(one) for one in value]
    return None if value is UNREAD else log_line(str(value), 200)
