"""Runs all checks on preference data and collects them in a report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from tiltmeter.data.memo import shared_results
from tiltmeter_workbench.check_report.report import Check
from tiltmeter_workbench.preferences.checks import (
    agreement,
    balance,
    copies,
    form,
    length,
    phrases,
    position,
    rater_groups,
    raters,
    shallow,
)
from tiltmeter_workbench.preferences.checks import typicality as typical
from tiltmeter_workbench.preferences.finding import ALPHA, State
from tiltmeter_workbench.preferences.reading.comparisons import Comparisons, Floats
from tiltmeter_workbench.preferences.reading.ratings import Ratings

#: Called with the name of the current part, how much is done, and the total.
Progress = Callable[[str, int, int], None]
#: Prompts and answers to the log-likelihood of each answer.
Likelihood = Callable[[Sequence[str], Sequence[str]], Floats]


class PreferenceCheck(Protocol):
    """One check of preference data."""

    def __call__(self, pairs: Comparisons, *, alpha: float, seed: int) -> Check: ...


#: What labels may reward beside quality. Each gets its share of ALPHA whether or not it can be judged, so that a
#: finding does not depend on which other checks run.
BIASES: tuple[tuple[str, PreferenceCheck], ...] = (
    ("shallow", shallow.check),
    ("length", length.check),
    ("form", form.check),
    ("phrases", phrases.check),
    ("position", position.check),
)
TYPICALITY = "typicality"
#: What is wrong with the labels or the file itself.
DEFECTS: tuple[tuple[str, PreferenceCheck], ...] = (
    ("agreement", agreement.check),
    ("raters", raters.check),
    (rater_groups.NAME, rater_groups.check),
    ("copies", copies.check),
    ("balance", balance.check),
)
#: Beside biases, raters and kinds of prompts are tested; the other defects are counted.
SHARE = ALPHA / (len(BIASES) + 3)
#: What can be judged by votes alone.
TEXTLESS = ("position", "agreement", "raters", rater_groups.NAME)
_ORDER: dict[str, int] = {"found": 0, "cannot tell": 1, "clear": 2, "known": 3, "not asked": 4}


def no_progress(what: str, done: int, total: int) -> None:
    """A progress callback that does nothing."""


@dataclass(frozen=True)
class PreferenceReport:
    """What a reward model would learn from these labels, before it is trained on them.

    `state` is "found" if any bias or defect is significant and large enough to matter, "cannot tell" if no bias could
    be judged either way, else "clear"; `exit_code` is 1, 2 and 0.

    >>> PreferenceReport("a.jsonl", 2, 1, (Check("length", "clear", "Length does not matter."),)).exit_code
    0
    """

    source: str
    items: int
    raters: int
    findings: tuple[Check, ...]
    input_notes: tuple[str, ...] = ()  # what was recognised in the file, and what was left out
    left_out: int = 0  # rows
    seed: int = 0

    @property
    def ordered(self) -> list[Check]:
        """Findings by state: found, then cannot tell, then the rest; within a state in the order of the checks."""
        return sorted(self.findings, key=lambda finding: _ORDER[finding.state])

    @property
    def problems(self) -> list[Check]:
        return [finding for finding in self.findings if finding.state == "found"]

    @property
    def biases(self) -> list[Check]:
        """The findings about what labels reward, and not about raters or rows."""
        names = {TYPICALITY, *(name for name, _ in BIASES)}
        return [finding for finding in self.findings if finding.name in names]

    @property
    def state(self) -> State:
        if self.problems:
            return "found"
        # Labels of single items have no biases of this kind: there raters are all that is judged.
        relevant = self.biases or self.findings
        return "clear" if any(finding.state == "clear" for finding in relevant) else "cannot tell"

    @property
    def exit_code(self) -> int:
        return {"found": 1, "clear": 0}.get(self.state, 2)


@shared_results()
def check_pairs(
    pairs: Comparisons,
    *,
    seed: int = 0,
    likelihood: Likelihood | None = None,
    progress: Progress | None = None,
    source: str = "",
    input_notes: Sequence[str] = (),
    left_out: int = 0,
) -> PreferenceReport:
    """Every check on the same comparisons. A check that cannot judge says so."""
    say = progress or no_progress
    texts = any(pairs.first) or any(pairs.second)
    typicality = partial(typical.check, likelihood=likelihood)
    checks: list[tuple[str, PreferenceCheck]] = [*BIASES, (TYPICALITY, typicality), *DEFECTS]
    findings = []
    for done, (name, check) in enumerate(checks):
        say(f"looking at {name}", done, len(checks))
        if texts or not len(pairs) or (name == TYPICALITY and likelihood is None):
            findings.append(check(pairs, alpha=SHARE, seed=seed))
        elif name in TEXTLESS:
            findings.append(replace(check(pairs, alpha=SHARE, seed=seed), examples=()))
        else:
            findings.append(Check(name, "cannot tell", "The file has votes and no texts of the answers."))
    voting = int(np.isfinite(pairs.votes).any(axis=0).sum())
    return PreferenceReport(source, len(pairs), voting, tuple(findings), tuple(input_notes), left_out, seed)


def check_labels(
    ratings: Ratings, *, seed: int = 0, source: str = "", input_notes: Sequence[str] = (), left_out: int = 0
) -> PreferenceReport:
    """Agreement, raters and their groups for labels of single items, in any categories."""
    findings = (
        agreement.check_ratings(ratings, seed=seed),
        raters.check_ratings(ratings, alpha=SHARE),
        rater_groups.check_ratings(ratings, seed=seed),
    )
    return PreferenceReport(
        source, len(ratings.codes), len(ratings.raters), findings, tuple(input_notes), left_out, seed
    )
