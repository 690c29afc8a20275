"""Whether a source of gold says the same of the same answer again, and more of a right answer than of a wrong one.

Each test is a bet that a sound source wins in the long run (`stats.betting`), so it may be looked at after every step:
a sound source fails any of them with chance ALPHA at most, over the whole run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import log
from typing import Any

import numpy as np
from msgspec import UNSET

from tiltmeter.rundir.payloads import LabelsClosed, ProbeLabels
from tiltmeter.stats.betting import GRID, evidence

ALPHA = 0.01  # of the four tests together
TESTS = 4
HALF = 0.5  # of the marks
#: Share of labels that may change by half of the marks. With labels of 0 and 1 that are turns round with chance e, 2 e
#: (1 - e) change, and losing all of gold shows as a fall of 1 - 2 e. At e = .375 that is a quarter, which is what OK
#: excludes: a source that changes more could lose everything unseen.
CHANGED = 0.46875
FEW_HIGH = 4  # texts of no use get half of the marks for a quarter of the prompts: a number by prompt, not a format
CODE = ("the function ", "the dataset's ")  # begin the identity of a source that is no opinion


@dataclass
class GoldProbes:
    """What one source said when it was asked again, and about answers whose worth is known."""

    identity: str = ""
    name: str = ""
    again: int = 0
    changes: int = 0
    turns: list[bool] = field(default_factory=list)  # by label, whether it changed by half of the marks
    drifts: list[int] = field(default_factory=list)  # by step, 1 if more labels rose than fell, -1 if more fell
    prompts: list[tuple[float, float, bool, bool]] = field(default_factory=list)  # right, wrong, all alike, reads
    unprobed: str = ""  # why no known answer was asked about

    def add(self, closed: LabelsClosed, gold: Mapping[str, Any] | None) -> None:
        """The labels of a step; what another source said is no evidence about this one."""
        identity = "" if gold is None else str(gold.get("identity", ""))
        if identity != self.identity:
            self.__init__(identity, "" if gold is None else str(gold["name"]))  # type: ignore[misc]
        pairs = [] if closed.again is UNSET else [(first, now) for first, now in closed.again if now is not None]
        signs = [(now > first) - (now < first) for first, now in pairs]
        self.again += len(pairs)
        self.changes += sum(map(abs, signs))
        self.turns += [abs(now - first) >= HALF for first, now in pairs]
        if net := (sum(signs) > 0) - (sum(signs) < 0):  # labels of a step may share a mood: one vote
            self.drifts.append(net)
        for probe in [] if closed.probes is UNSET else closed.probes:
            self._add_known(probe)
        self.unprobed = self.unprobed if closed.unprobed is UNSET else closed.unprobed

    def _add_known(self, probe: ProbeLabels) -> None:
        right, wrong, every = _numbers(probe.right), _numbers(probe.wrong), [*probe.right, *probe.wrong, *probe.empty]
        if right and len(right) == len(wrong):  # as many texts each, or the best of them would not compare
            alike = None not in every and len(set(every)) == 1
            self.prompts.append((max(right), max(wrong), alike, probe.reads))

    @property
    def prompt_bets(self) -> list[int]:
        """1 where the right answer got more than the wrong one; -1 where it got less, or where every text got the same
        and no format can explain it: half of the marks, from a check that reads the answer, or now much and now
        little."""
        alike = [(right, reads) for right, _, alike, reads in self.prompts if alike]
        high = sum(right >= HALF for right, _ in alike)
        by_prompt = 0 < high < len(alike) <= FEW_HIGH * high
        bets = []
        for right, wrong, alike_here, reads in self.prompts:
            void = alike_here and (by_prompt or (reads and right >= HALF))
            bets += [-1] if void or right < wrong else [1] if right > wrong else []
        return bets

    @property
    def failure(self) -> str:
        """Why this source is no gold, in a sentence; empty if nothing speaks against it."""
        bets, lower, higher = self.prompt_bets, self.drifts.count(-1), self.drifts.count(1)
        if _is_below_zero(bets):
            return (
                f"{self.name} does not look at the answer, a known right one got more than a known wrong one at "
                f"{bets.count(1)} of {len(bets)} prompts: check that it reads the completion"
            )
        for down, word in ((True, "lower"), (False, "higher")):
            if _is_below_zero([drift if down else -drift for drift in self.drifts]):
                return (
                    f"{self.name} now gives {word} labels to the same answers, asked again they rose at {higher} steps "
                    f"and fell at {lower}, so the source has changed and not the policy: fix the gold source"
                )
        if self.identity.startswith(CODE) and _is_below_zero([1 - one / CHANGED for one in self.turns]):
            return (
                f"{self.name} does not give the same label again, {sum(self.turns)} of {self.again} changed by half "
                "of the marks when the same answer was asked about again: fix the gold source"
            )
        return ""

    @property
    def lines(self) -> list[str]:
        """What is known of the source, for who asks for more."""
        lines = [f"Asked again: {self.changes} of {self.again} labels changed."] if self.again else []
        if bets := self.prompt_bets:
            lines.append(f"Known answers: the right one got more than the wrong one at {bets.count(1)} of {len(bets)}.")
        if self.unprobed:
            lines.append(f"Not asked about known answers: {self.unprobed}.")
        return lines


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _is_below_zero(values: Sequence[float]) -> bool:
    return _evidence(tuple(values)) >= log(TESTS / ALPHA)


@lru_cache(64)  # asked at every look, and rarely new
def _evidence(values: tuple[float, ...]) -> float:
    """Logarithm of the money of who bets that the mean is below zero, with an instalment before each value: the same
    as `add_instalment` and `bet` in turn, at once."""
    if not values:
        return 0.0
    gains = np.log1p(-np.outer(values, GRID))[::-1].cumsum(axis=0)[::-1]  # of the money that enters before each value
    number = np.arange(1.0, len(values) + 1.0)
    return float(evidence(gains - np.log(number * (number + 1.0) * len(GRID))[:, None]))
