"""The result of one check of preference data: a state, an estimate with its interval, and example rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

#: found: significant and large enough to matter. clear: too small to matter. known: an estimate without a verdict.
State = Literal["found", "clear", "cannot tell", "known", "not asked"]

#: Chance that any of the checks of a report calls something a bias that is not there; each check takes its share of it.
ALPHA = 0.05


@dataclass(frozen=True)
class PreferenceExample:
    """A comparison that shows what was found. The text is untrusted: encode it before showing."""

    row: int  # as in `Comparisons.rows`
    prompt: str
    chosen: str
    rejected: str
    why: str = ""


@dataclass(frozen=True)
class PreferenceFinding:
    """One check's result, in words, in figures and by example.

    A reward model first fits the easiest rule that predicts the labels. Every screen shows findings in the same way, so
    that a new check is one file with one function.

    >>> PreferenceFinding("length", "clear", "Longer answers are not preferred.").interval
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
    examples: Sequence[PreferenceExample] = ()

    @property
    def interval(self) -> str:
        if not math.isfinite(self.estimate):
            return ""
        ends = f" [{self.low:.3g}, {self.high:.3g}]" if math.isfinite(self.low) and math.isfinite(self.high) else ""
        return f"{self.estimate:.3g}{ends}"
