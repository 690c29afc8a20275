"""The bets of the gold alarm that have money of their own: evaluations, the level of gold, overpay, and traps."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp

import numpy as np

from tiltmeter.data.records import SHARED_STEP, Reading
from tiltmeter.data.slices import label_counts
from tiltmeter.stats.checkpoint_falls import UNKNOWN, CheckpointFallTest
from tiltmeter.stats.evaluation_drop import CheckpointWander, EvaluationDropTest
from tiltmeter.stats.level_drop import PEAK_TOLERANCE, LevelDropTest
from tiltmeter.stats.overpay import REFERENCE_PART, OverpayTest
from tiltmeter.stats.rise_then_fall import peak_steps, rise_then_fall
from tiltmeter.stats.sampled_level import SampledLevelTest
from tiltmeter.stats.trap_payments import TrapPaymentTest
from tiltmeter.stats.wealth import Wealth

LEVEL = "gold.prompts"
SAMPLED, WINDOW, CHANGE = "gold.answers", "gold.reference", "gold.change"
TRAPS = "gold.traps"
OVERPAY = "gold.overpay"  # bet on by slice only
EVALUATION_SHARE = 0.5  # of the cash, staked on an evaluation series when its first reading comes
LEVEL_SHARE = 0.4  # of the cash, staked on the level of gold when its first reading comes
OVERPAY_SHARE = 0.5  # of the cash, staked on overpay when its first reading comes
TRAP_SHARE = 0.4  # of the cash, staked on traps when the first of them comes


def has_own_money(name: str) -> bool:
    """Whether bets of this reading are laid here, and not on a table of slopes or duels."""
    return name.startswith("eval.") or name in (LEVEL, SAMPLED, WINDOW, CHANGE, TRAPS, OVERPAY)


@dataclass
class LevelStakes:
    """What was staked on each of these tests, as a logarithm, and the tests; the wealth of the run lays the money."""

    tolerance: float  # of gold: what is no fall
    attempt_starts: dict[int, int] = field(default_factory=dict)  # first step of later attempts
    evaluations: dict[str, tuple[float, EvaluationDropTest | CheckpointFallTest]] = field(default_factory=dict)
    level: tuple[float, LevelDropTest] | None = None
    sampled: tuple[float, SampledLevelTest] | None = None
    traps: tuple[float, TrapPaymentTest] | None = None
    overpay: tuple[float, OverpayTest] | None = None
    wander: dict[str, CheckpointWander] = field(default_factory=dict)  # of each evaluation
    _laid: tuple[int, int] = (0, 0)  # attempt and step of the first answers that were labelled
    _answers: list[tuple[int, float, int]] = field(default_factory=list)  # step, gold, labels
    _newest: dict[str, tuple[int, int]] = field(default_factory=dict)  # attempt and step of each evaluation
    _ended: list[float] = field(default_factory=list)  # evidence of evaluations that ended with a rewind

    def update(self, reading: Reading, wealth: Wealth, alpha: float) -> None:
        """Bet on a reading; its money comes out of the cash when the first of its kind comes. `alpha`: what these bets
        may spend in this arming."""
        if reading.name.startswith("eval."):
            self._add_evaluation(reading, wealth)
        elif reading.name == TRAPS:
            if self.traps is None:  # staked before a payment counts
                self.traps = wealth.allocate(TRAP_SHARE), TrapPaymentTest()
            self.traps[1].place(reading.step, reading.values)
        elif reading.name == OVERPAY:
            self._add_overpay(reading, wealth, alpha)
        elif not self.is_abandoned(reading):
            (self._add_level if reading.name == LEVEL else self._add_sampled_level)(reading, wealth)

    def evidence(self) -> dict[str, float]:
        """Log wealth of each series that is bet on."""
        series = {name: log_stake + test.evidence for name, (log_stake, test) in self.evaluations.items()}
        for name, staked in ((LEVEL, self.level), (CHANGE, self.sampled), (TRAPS, self.traps), (OVERPAY, self.overpay)):
            if staked is not None:
                series[name] = staked[0] + staked[1].evidence
        return series

    def log_wealth(self) -> list[float]:
        """Log wealth of all series, with those that ended."""
        return [*self._ended, *self.evidence().values()]

    def rearm(self) -> None:
        """An alarm was resolved: all bets begin anew."""
        self.evaluations, self._ended = {}, []
        self.level, self.sampled, self.traps, self.overpay = None, None, None, None

    def rewind(self, attempt: int, step: int) -> None:
        """A new attempt begins at this step."""
        self.attempt_starts[attempt] = step
        self._end_evaluations(step)
        for staked in (self.level, self.sampled, self.overpay):
            if staked is not None:
                staked[1].rewind(step)
        self._answers = [item for item in self._answers if item[0] < step]

    def is_abandoned(self, reading: Reading) -> bool:
        """Whether the run has gone back behind the reading's step."""
        starts = self.attempt_starts.items()
        return any(attempt > reading.attempt and step <= reading.step for attempt, step in starts)

    def _add_level(self, reading: Reading, wealth: Wealth) -> None:
        """Bet on the gold of a step's prompts."""
        if self.level is None:
            self.level = wealth.allocate(LEVEL_SHARE), LevelDropTest(self.tolerance)
        if reading.keys:
            size = reading.n // len(reading.keys)  # answers to each prompt
            self.level[1].place(reading.step, np.array(reading.keys), np.array(reading.values), size)
        if self.level[1].paired is False and np.isfinite(self.level[0]):
            # No bet was made yet, and prompts alone have decided. Levels of other prompts are `NewPromptsFall`'s.
            wealth.cash += exp(self.level[0])
            self.level = -np.inf, self.level[1]

    def _add_sampled_level(self, reading: Reading, wealth: Wealth) -> None:
        """Bet on answers of a step against a window that was labelled.

        The money is laid on it when the first answers are labelled, before any window could be a reference.
        """
        if self.sampled is None:
            self.sampled = wealth.allocate(LEVEL_SHARE), SampledLevelTest(self.tolerance)
            self._laid = reading.attempt, reading.step
        test = self.sampled[1]
        if reading.name == SAMPLED:
            self._answers.append((reading.step, reading.value, reading.n))
        elif reading.name == WINDOW and reading.stderr is not None and len(reading.keys) == 4:
            window, attempt, first, last = reading.keys
            if (attempt, first) >= self._laid:  # one that began before this arming has no money of it
                test.open(window, last, np.array(reading.values), reading.value, reading.stderr**2)
        elif reading.name == CHANGE and len(reading.keys) == 3:
            window, labels, answers = reading.keys
            test.place(window, np.array(reading.values), labels / answers)

    def _add_overpay(self, reading: Reading, wealth: Wealth, alpha: float) -> None:
        """Bet on what a step's answers are paid that they are not worth; the end of its reference costs a part of α."""
        if self.is_abandoned(reading):
            return
        if self.overpay is None:
            money = exp(min(float(np.logaddexp.reduce([wealth.evidence, *self.log_wealth()])), 0.0))
            self.overpay = wealth.allocate(OVERPAY_SHARE), OverpayTest(REFERENCE_PART * alpha * money)
        answers, unknown = np.array([label_counts(key) for key in reading.keys], np.float64).T
        shared = reading.against == SHARED_STEP
        self.overpay[1].place(reading.step, np.array(reading.values), answers, unknown / answers, shared=shared)

    @property
    def alpha_part(self) -> float:
        """The part of an arming's α that is left for alarms, after the reference of overpay."""
        return 1.0 if self.overpay is None else 1.0 - REFERENCE_PART

    def _add_evaluation(self, reading: Reading, wealth: Wealth) -> None:
        """Bet on an evaluation, unless one of a later step is known or the run has gone back behind it.

        The null is that a level does not fall from one evaluation to the next. It says nothing about evaluations that
        come in the wrong order, or that belong to an abandoned attempt.
        """
        name, at = reading.name, (reading.attempt, reading.step)
        if self.is_abandoned(reading) or at <= self._newest.get(name, (-1, -1)):
            return
        self._newest[name] = at
        if name not in self.evaluations:
            # Decided by the number of series, before this one's values count. All together leave a third of the cash.
            number = 1 + len(self.evaluations) + len(self._ended)
            stake = wealth.allocate(EVALUATION_SHARE / number**2)
            test = CheckpointFallTest() if reading.values else EvaluationDropTest(self.tolerance)
            self.evaluations[name] = stake, test
        level = self.evaluations[name][1]
        if isinstance(level, CheckpointFallTest):
            values = np.array(reading.values, np.float64)
            level.place(reading.step, np.where(values == UNKNOWN, np.nan, values))
            return
        wander = self.wander.setdefault(name, CheckpointWander())
        unknown = sum(reading.keys)  # answers whose score did not come
        answers = reading.n + unknown
        level.place(reading.step, reading.value, wander.answers(answers), unknown / answers)
        wander.learn(reading.value, reading.n)

    def _end_evaluations(self, step: int) -> None:
        """End the bets on evaluations that go beyond a step the run goes back to: a level may be lower there.

        Their evidence so far is kept; a later evaluation of that name begins a new series.
        """
        for name in [name for name in self.evaluations if self._newest[name][1] >= step]:
            log_stake, level = self.evaluations.pop(name)
            self._ended.append(log_stake + level.evidence)

    def onset_interval(self, name: str) -> tuple[int, int, int] | None:
        """When the fall of this series began, with an interval; None if it says nothing about that."""
        if name == LEVEL and self.level is not None:
            peak, fell, half = self.level[1].drop_steps()
            return fell, peak, half
        if name == CHANGE and self._answers:
            steps, levels, counts = (np.array(column) for column in zip(*self._answers, strict=True))
            fitted = rise_then_fall(levels, counts)
            peak, fell, half = (int(steps[at]) for at in peak_steps(levels, fitted, PEAK_TOLERANCE))
            return fell, peak, half
        if name == TRAPS and self.traps is not None:
            return self.traps[1].start()
        if name == OVERPAY and self.overpay is not None:
            return self.overpay[1].rise_steps()
        return None
