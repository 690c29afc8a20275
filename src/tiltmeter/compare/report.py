"""A comparison as it is shown: both models' names, every measure, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tiltmeter.compare.measure import Measure
from tiltmeter.compare.verdict import Verdict, verdict

_ORDER = {"worse": 0, "better": 1, "cannot tell": 2, "same": 3, "shown": 4, "not asked": 5}


@dataclass(frozen=True)
class Report:
    """What training bought and what it cost, in the order in which a reviewer asks.

    >>> from tiltmeter.compare.measure import not_asked
    >>> report = Report("base", "step-400", (not_asked("win_rate", "Wins", "Give --judge."),))
    >>> report.verdict.state, report.exit_code
    ('cannot tell', 2)
    """

    base: str
    checkpoint: str
    measures: tuple[Measure, ...]
    judge: str = ""  # whom claims of quality are about
    judged: bool = False  # it is a model's opinion
    told: Sequence[str] = ()  # what was read, sampled and left out
    seed: int = 0

    @cached_property
    def verdict(self) -> Verdict:
        return verdict(self.measures, opinion=self.judged)

    @property
    def exit_code(self) -> int:
        return self.verdict.exit_code

    @property
    def priced(self) -> list[Measure]:
        """What was asked, costs first."""
        return sorted(
            (measure for measure in self.measures if measure.state != "not asked"),
            key=lambda measure: _ORDER[measure.state],
        )

    @property
    def not_asked(self) -> list[Measure]:
        return [measure for measure in self.measures if measure.state == "not asked"]

    @property
    def costs(self) -> list[Measure]:
        return [measure for measure in self.measures if measure.is_cost]
