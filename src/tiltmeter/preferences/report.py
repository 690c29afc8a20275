"""All checks of one set of preference data, and what they come to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

import numpy as np

from tiltmeter.preferences import agreement, balance, copies, form, length, phrases, position, raters, shallow
from tiltmeter.preferences import typicality as typical
from tiltmeter.preferences.finding import ALPHA, Finding, State
from tiltmeter.preferences.pairs import Comparisons, Floats
from tiltmeter.preferences.ratings import Ratings

#: What is being done, how much of it is done, and how much there is.
Progress = Callable[[str, int, int], None]
#: Prompts and answers to the log-likelihood of each answer.
Likelihood = Callable[[Sequence[str], Sequence[str]], Floats]


class Check(Protocol):
    """One look at preference data."""

    def __call__(self, pairs: Comparisons, *, alpha: float, seed: int) -> Finding: ...


#: What labels may reward beside quality. Each gets its share of ALPHA whether or not it can be judged, so that a
#: finding does not depend on what else was asked.
BIASES: tuple[tuple[str, Check], ...] = (
    ("shallow", shallow.check),
    ("length", length.check),
    ("form", form.check),
    ("phrases", phrases.check),
    ("position", position.check),
)
TYPICALITY = "typicality"
#: What is wrong with the labels or the file itself.
DEFECTS: tuple[tuple[str, Check], ...] = (
    ("agreement", agreement.check),
    ("raters", raters.check),
    ("copies", copies.check),
    ("balance", balance.check),
)
#: Beside biases, raters and kinds of prompts are tested; the other defects are counted.
SHARE = ALPHA / (len(BIASES) + 3)
#: What can be judged by votes alone.
TEXTLESS = ("position", "agreement", "raters")
_ORDER: dict[State, int] = {"found": 0, "cannot tell": 1, "clear": 2, "known": 3, "not asked": 4}


def quiet(what: str, done: int, total: int) -> None:
    """For whoever does not want to know how far it is."""


@dataclass(frozen=True)
class Report:
    """What a reward model would learn from these labels, before it is trained on them.

    A day of training on labels that mostly say "the longer one" costs more than reading this. `state` is "found" if any
    bias or defect is beyond doubt, "cannot tell" if no bias could be judged either way, else "clear"; `exit_code` is
    1, 2 and 0.

    >>> Report("a.jsonl", 2, 1, (Finding("length", "clear", "Length does not matter."),)).exit_code
    0
    """

    source: str
    items: int
    raters: int
    findings: tuple[Finding, ...]
    told: tuple[str, ...] = ()  # what was recognised in the file, and what was left out
    left_out: int = 0  # rows
    seed: int = 0

    @property
    def ordered(self) -> list[Finding]:
        """What was found first, then what could not be told; inside a state as the checks are listed."""
        return sorted(self.findings, key=lambda finding: _ORDER[finding.state])

    @property
    def found(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.state == "found"]

    @property
    def biases(self) -> list[Finding]:
        """The findings about what labels reward, and not about raters or rows."""
        names = {TYPICALITY, *(name for name, _ in BIASES)}
        return [finding for finding in self.findings if finding.name in names]

    @property
    def state(self) -> State:
        if self.found:
            return "found"
        # Labels of single items have no biases of this kind: there raters are all that is judged.
        asked = self.biases or self.findings
        return "clear" if any(finding.state == "clear" for finding in asked) else "cannot tell"

    @property
    def exit_code(self) -> int:
        return {"found": 1, "clear": 0}.get(self.state, 2)


def examined(
    pairs: Comparisons,
    *,
    seed: int = 0,
    likelihood: Likelihood | None = None,
    progress: Progress | None = None,
    source: str = "",
    told: Sequence[str] = (),
    left_out: int = 0,
) -> Report:
    """Every check on the same comparisons. A check that cannot judge says so; one that raises is a bug of ours."""
    say = progress or quiet
    texts = any(pairs.first) or any(pairs.second)
    typicality = partial(typical.check, likelihood=likelihood)
    checks: list[tuple[str, Check]] = [*BIASES, (TYPICALITY, typicality), *DEFECTS]
    findings = []
    for done, (name, check) in enumerate(checks):
        say(f"looking at {name}", done, len(checks))
        if texts or not len(pairs) or (name == TYPICALITY and likelihood is None):
            findings.append(check(pairs, alpha=SHARE, seed=seed))
        elif name in TEXTLESS:
            findings.append(replace(check(pairs, alpha=SHARE, seed=seed), examples=()))
        else:
            findings.append(Finding(name, "cannot tell", "The file has votes and no texts of the answers."))
    voting = int(np.isfinite(pairs.votes).any(axis=0).sum())
    return Report(source, len(pairs), voting, tuple(findings), tuple(told), left_out, seed)


def labelled(
    ratings: Ratings, *, seed: int = 0, source: str = "", told: Sequence[str] = (), left_out: int = 0
) -> Report:
    """What can be said of labels of single items, in any categories: who agrees."""
    findings = (agreement.judged(ratings, seed=seed), raters.judged(ratings, alpha=SHARE))
    return Report(source, len(ratings.codes), len(ratings.raters), findings, tuple(told), left_out, seed)
