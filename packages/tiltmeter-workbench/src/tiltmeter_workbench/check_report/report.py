"""The one shape of a report: checks with a state, an interval, a sentence, a fix, a table and examples.

A tool's own result becomes a `Report`; the files beside this one show it. Each tool has its own words for a state, and
all of them stand in `TONES`, so that the same word never looks calm in one report and alarming in another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tiltmeter_workbench.check_report.tables import Rows, json_safe, people_number, titles

#: bad: act on it. good: looked at, and nothing there. doubt: looked at, and not known. plain: a figure without a
#: verdict. faint: not looked at.
Tone = Literal["bad", "good", "doubt", "plain", "faint"]
TONES: Mapping[str, Tone] = {
    **dict.fromkeys(("found", "worse", "costs", "drift", "paid", "some paid", "failed", "heavy", "error"), "bad"),
    **dict.fromkeys(("clear", "better", "same", "healthy", "not paid", "none paid", "passed", "held", "light"), "good"),
    **dict.fromkeys(("cannot tell", "could not judge", "not seen", "not tested", "note"), "doubt"),
    "paid, by its length": "bad",
    **dict.fromkeys(("known", "shown"), "plain"),
    **dict.fromkeys(("not asked", "not tried"), "faint"),
}  # fmt: skip
_PROMPT = "prompt"


@dataclass(frozen=True)
class Axis:
    """Where an interval is drawn: the ends of the line, the point that means no effect, and the limits beyond which an
    effect matters."""

    left: float
    zero: float
    right: float
    limits: tuple[float, ...] = ()

    def share(self, value: float) -> float:
        """Where a value lies on the line, 0 to 1; an infinite end lies at the line's end."""
        return max(0.0, min(1.0, (value - self.left) / (self.right - self.left)))


@dataclass(frozen=True)
class Example:
    """Texts that show what a check is about, each under its name. They are untrusted: encode them before showing."""

    texts: Mapping[str, str]
    why: str = ""
    row: int | None = None  # of the file it stands in

    @property
    def title(self) -> str:
        return ": ".join(part for part in ("" if self.row is None else f"Row {self.row}", self.why) if part)

    @property
    def prompt(self) -> str:
        return self.texts.get(_PROMPT, "")

    @property
    def answers(self) -> dict[str, str]:
        return {name: text for name, text in self.texts.items() if name != _PROMPT}

    def as_json(self) -> dict[str, Any]:
        return {**({} if self.row is None else {"row": self.row}), **self.texts, "why": self.why}


@dataclass(frozen=True)
class Check:
    """One check's result, in words, in figures and by example. Every screen shows checks in the same way.

    >>> Check("length", "found", "Longer answers win.", 0.61, 0.5, 0.72).figure()
    '0.61 [0.5, 0.72]'
    >>> Check("length", "cannot tell", "Too few.").figure(), Check("length", "cannot tell", "Too few.").tone
    ('', 'doubt')
    """

    name: str  # unique in a report
    state: str  # one of TONES
    sentence: str  # one line that a person reads
    estimate: float = math.nan
    low: float = math.nan
    high: float = math.nan
    unit: str = ""  # what the estimate is: "share of labels predicted", "nats"
    fix: str = ""  # what to do; empty where there is nothing
    facts: Mapping[str, Any] = field(default_factory=dict)  # further figures, ready for JSON; None where not known
    rows: Rows = ()  # a table (raters, phrases, tasks), ready for JSON
    examples: Sequence[Example] = ()
    title: str = ""  # as people read the name, where it is not the name
    columns: Mapping[str, Any] = field(default_factory=dict)  # figures that stand beside the estimate: base, checkpoint
    axis: Axis | None = None  # None where there is nothing to draw
    signed: bool = False  # the estimate is a difference
    rows_in_short: bool = False  # the rows also stand in the short forms: terminal, Markdown

    @property
    def tone(self) -> Tone:
        return TONES[self.state]

    @property
    def heading(self) -> str:
        return self.title or self.name

    @property
    def has_details(self) -> bool:
        return bool(self.facts or self.rows or self.examples)

    def figure(self, digits: int = 3) -> str:
        """The estimate with its interval; empty where it is not known."""
        if not math.isfinite(self.estimate):
            return ""
        sign = "+" if self.signed else ""
        ends = ", ".join(people_number(end, digits, sign) for end in (self.low, self.high))
        has_interval = not (math.isnan(self.low) or math.isnan(self.high))
        return people_number(self.estimate, digits, sign) + (f" [{ends}]" if has_interval else "")

    def drawn_ends(self) -> tuple[float, float]:
        """The interval as it is drawn: an end that is not known is drawn at the estimate."""
        low, high = (self.estimate if math.isnan(end) else end for end in (self.low, self.high))
        return low, high

    def as_json(self) -> dict[str, Any]:
        """For machines. Texts are as they were written: encode them before showing."""
        return {
            "name": self.name,
            "state": self.state,
            "sentence": self.sentence,
            "estimate": json_safe(self.estimate),
            "low": json_safe(self.low),
            "high": json_safe(self.high),
            "unit": self.unit,
            "fix": self.fix,
            "facts": json_safe(self.facts),
            "rows": json_safe(self.rows),
            "examples": [example.as_json() for example in self.examples],
        }


@dataclass(frozen=True)
class CheckGroup:
    """Checks of one kind under one title: a table with a row for each."""

    title: str
    checks: Sequence[Check]
    note: str = ""  # how to read the table
    noun: str = "check"  # the heading above the names
    estimate: str = "interval"  # the heading above the estimates
    most: int | None = None  # checks on a terminal that has no room for all; bad and doubtful ones are never left out

    @property
    def columns(self) -> list[str]:
        return titles([check.columns for check in self.checks])

    @property
    def has_figures(self) -> bool:
        return any(check.figure() for check in self.checks)

    @property
    def has_sentences(self) -> bool:
        return any(check.sentence for check in self.checks)

    def in_short(self) -> Sequence[Check]:
        """The checks that a terminal shows."""
        if self.most is None:
            return self.checks
        urgent = [check for check in self.checks if check.tone in ("bad", "doubt")]
        others = [check for check in self.checks if check.tone not in ("bad", "doubt")]
        return [*urgent, *others[: max(self.most - len(urgent), 0)]]


@dataclass(frozen=True)
class Report:
    """What a tool has to say: a state, one sentence, its checks, what to do, and what to know before believing it."""

    title: str  # what was looked at
    state: str  # one of TONES
    label: str  # the state in words
    headline: str
    groups: Sequence[CheckGroup]
    size: str = ""  # how much was looked at
    fixes: Sequence[str] = ()
    opening: Mapping[str, Sequence[str]] = field(default_factory=dict)  # lines by title, before the checks
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)  # lines by title, after them

    @property
    def tone(self) -> Tone:
        return TONES[self.state]

    @property
    def checks(self) -> list[Check]:
        return [check for group in self.groups for check in group.checks]

    @property
    def line(self) -> str:
        """The state and its sentence, to paste."""
        return f"{self.state.capitalize()}: {self.headline}"

    @property
    def all_lists(self) -> dict[str, Sequence[str]]:
        return {"What to do": self.fixes, **self.lists}
