"""The linter: checks one trainer configuration against every rule before the run starts.

>>> from tempfile import TemporaryDirectory
>>> with TemporaryDirectory() as folder:
...     file = Path(folder) / "grpo.json"
...     _ = file.write_text('{"num_generations": 1, "learning_rate": 2e-6, "reward_funcs": ["accuracy_reward"]}')
...     report = lint_file(file)
>>> report.trainer, report.method, [one.rule for one in report.complaints if one.level == "error"]
('trl', 'grpo', ['group-of-one'])
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tiltmeter.safety.safe_text import log_line
from tiltmeter_workbench.plan.lint.all_rules import every_rule
from tiltmeter_workbench.plan.settings.read_settings import read_runs
from tiltmeter_workbench.plan.settings.trainer_settings import UNREAD, TrainerSettings


@dataclass(frozen=True)
class Complaint:
    """One problem in a configuration: the key, the reason, the fix, and the source of the rule.

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
class LintReport:
    """The result for one file: trainer, method, settings under common names, and the complaints.

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


def lint_file(path: Path, trainer: str | None = None, method: str | None = None) -> LintReport:
    """Lint a TRL, veRL or OpenRLHF configuration. Raises `AttachError` for a file that cannot be read."""
    run_settings = read_runs(Path(path), trainer, method)
    complaints = [
        one
        for number, settings in enumerate(run_settings, 1)
        for one in _complaints(settings, number, len(run_settings))
    ]
    complaints.sort(key=lambda one: one.level)  # errors before notes; otherwise in the order of the runs and the rules
    plain = {name: _json_value(one.value) for name, one in run_settings[0].common.items() if one.value is not UNREAD}
    trainers, methods = (
        ", ".join(dict.fromkeys(each))
        for each in zip(*((one.trainer, one.method) for one in run_settings), strict=True)
    )
    return LintReport(str(path), trainers, methods, plain, tuple(complaints))


def _complaints(settings: TrainerSettings, number: int, of: int) -> Iterator[Complaint]:
    """Complaints about one run; if the file starts several runs, each sentence names the run."""
    run = "" if of == 1 else f"run {number} of {of}, {settings.method}: "
    for rule in every_rule():
        if settings.trainer not in rule.trainers:
            continue
        for match in rule.check(settings):
            value, sentence = _json_value(match.value), f"{run}{match.sentence}"
            yield Complaint(rule.level, rule.id, match.key, value, sentence, match.fix, rule.source, rule.date)


def _json_value(value: object) -> object:
    """A value as JSON: text from the file is shortened and escaped, and an unread value is None."""
    if value is None or isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, list):
        return [_json_value(one) for one in value]
    return None if value is UNREAD else log_line(str(value), 200)
