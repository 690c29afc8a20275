"""What one check of preference data came to: a state, a figure with its interval, and the rows that show it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

#: found: beyond doubt and large enough to matter. clear: so little that it does not. known: a figure without a verdict.
State = Literal["found", "clear", "cannot tell", "known", "not asked"]

#: Chance that any of the checks of a report calls something a bias that is not there; each check takes its share of it.
ALPHA = 0.05


@dataclass(frozen=True)
class Example:
    """A comparison that shows what was found. Somebody's model may have written it: encode it before showing."""

    row: int  # as in `Comparisons.rows`
    prompt: str
    chosen: str
    rejected: str
    why: str = ""


@dataclass(frozen=True)
class Finding:
    """One check's result, in words, in figures and by example.

    A bias that nobody looked for is learnt first: a reward model fits the easiest rule that predicts the labels. Every
    screen shows findings in the same way, so that a new check is one file with one function and nothing else.

    >>> Finding("length", "clear", "Longer answers are not preferred.").interval
    ''
    """

    name: str  # one or two words, unique in a report: length, position, phrases
    state: State
    sentence: str  # one line that a person reads
    estimate: float = math.nan
    low: float = math.nan
    high: float = math.nan
    unit: str = ""  # what the estimate is: "share of labels predicted", "log-odds per standard deviation"
    fix: str = ""  # what to do; empty where there is nothing
    facts: Mapping[str, Any] = field(default_factory=dict)  # further figures, ready for JSON; None where not known
    rows: Sequence[Mapping[str, Any]] = ()  # a table (raters, phrases, clusters), ready for JSON
    examples: Sequence[Example] = ()

    @property
    def interval(self) -> str:
        if not math.isfinite(self.estimate):
            return ""
        ends = f" [{self.low:.3g}, {self.high:.3g}]" if math.isfinite(self.low) and math.isfinite(self.high) else ""
        return f"{self.estimate:.3g}{ends}"
