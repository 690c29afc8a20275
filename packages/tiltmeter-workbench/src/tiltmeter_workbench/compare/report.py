"""The comparison report: both models' names, every measure, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tiltmeter_workbench.compare.measures.measure import Measure
from tiltmeter_workbench.compare.verdict import CheckpointVerdict, verdict

_ORDER = {"worse": 0, "better": 1, "cannot tell": 2, "same": 3, "shown": 4, "not asked": 5}


@dataclass(frozen=True)
class ComparisonReport:
    """What a checkpoint gained and what it cost against its base.

    >>> from tiltmeter_workbench.compare.measures.measure import not_asked
    >>> report = ComparisonReport("base", "step-400", (not_asked("win_rate", "Wins", "Give --judge."),))
    >>> report.verdict.state, report.exit_code
    ('cannot tell', 2)
    """

    base: str
    checkpoint: str
    measures: tuple[Measure, ...]
    judge: str = ""  # who judged quality
    judged: bool = False  # it is a model's opinion
    input_notes: Sequence[str] = ()  # what was read, sampled and left out
    seed: int = 0

    @cached_property
    def verdict(self) -> CheckpointVerdict:
        return verdict(self.measures, opinion=self.judged)

    @property
    def exit_code(self) -> int:
        return self.verdict.exit_code

    @property
    def ordered(self) -> list[Measure]:
        """The requested measures, costs first."""
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
