"""The result of one measure of a checkpoint against its base, in the form that every report shows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tiltmeter_workbench.check_report.report import Example

#: "worse" and "better" need an interval that leaves out 0 and a difference that matters; "same" an interval inside what
#: does not matter; "shown" is a figure that is neither good nor bad by itself.
State = Literal["worse", "better", "same", "cannot tell", "shown", "not asked"]
ALPHA = 0.05  # the chance that anything at all is called worse or better in a checkpoint that is its base


@dataclass(frozen=True)
class Measure:
    """The result of one measure.

    `difference` is checkpoint minus base in `unit`, with an interval at the level of the whole report; `cost` is the
    name that the verdict gives to "worse", as "sycophancy".

    >>> Measure("length", "Length", "worse", "Answers are three times as long.", cost="verbosity").is_cost
    True
    """

    name: str
    title: str
    state: State
    sentence: str
    cost: str = ""
    unit: str = ""
    base: float = math.nan
    checkpoint: float = math.nan
    difference: float = math.nan
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    rows: Sequence[Mapping[str, Any]] = ()  # a small table: by task, by suite, in and out of distribution
    examples: Sequence[Example] = ()
    fix: str = ""

    @property
    def is_cost(self) -> bool:
        return self.state == "worse"


def not_asked(name: str, title: str, how: str) -> Measure:
    """A measure that was not requested, with the option that requests it."""
    return Measure(name, title, "not asked", how)


def example_answers(prompt: str, base: str, checkpoint: str, why: str = "") -> Example:
    """A prompt with both models' answers."""
    return Example({"prompt": prompt, "base": base, "checkpoint": checkpoint}, why)
