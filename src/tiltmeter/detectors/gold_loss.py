"""The gold alarm: the reward's advantages lower gold, or gold has fallen, with a proved bound on false alarms."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import exp, log

import numpy as np

from tiltmeter.data.records import CORRECTED, SHARED_STEP, Alarm, Reading, Tier
from tiltmeter.data.slices import PREFIX as SLICES
from tiltmeter.data.slices import slice_words
from tiltmeter.detectors.gold_assumptions import Assumption, about_bets, about_evaluations, about_levels, about_slices
from tiltmeter.detectors.level_stakes import CHANGE, LEVEL, OVERPAY, SAMPLED, TRAPS, WINDOW, LevelStakes, has_own_money
from tiltmeter.detectors.recovery import DUEL, Recovery
from tiltmeter.detectors.repeated_rows import SLOPE, RepeatedRows
from tiltmeter.detectors.slice_tests import SLICE_SHARE, SliceTests
from tiltmeter.detectors.standing_alarm import StandingAlarm
from tiltmeter.stats.betting import alpha_left, alpha_share
from tiltmeter.stats.changepoint import change_point
from tiltmeter.stats.checkpoint_falls import CheckpointFallTest
from tiltmeter.stats.prediction_powered import TOP
from tiltmeter.stats.wealth import Wealth

WORDS = {
    SLOPE: "the reward pushes gold down",
    DUEL: "answers are worse than they were",
    LEVEL: "gold has fallen",
    CHANGE: "gold has fallen",
    OVERPAY: "wrong answers are paid",
    TRAPS: "judged by traps, the policy is paid for what honest work cannot earn",
}


@dataclass
class GoldLossTest(StandingAlarm):
    """A sequential betting test of "gold is not being lost", with one wealth for the whole run.

    Tables: `gold.slope`, the slope of gold along the reward, one bet per audited pair; `gold.duel`, an answer of now
    against one of the best stretch so far; `gold.prompts`, the gold of prompts of which every answer is labelled,
    against their gold in earlier windows; `gold.change`, where a part is labelled, the same against a window that was
    labelled afterwards (`gold.reference`; `gold.answers` are the answers of each step); each declared evaluation
    `eval.*`, its level now against earlier ones, or, where it has the gold of each item, each against itself at earlier
    checkpoints (`stats.checkpoint_falls`); and `gold.traps`, whether tasks are paid whose pay honest work earns
    with a chance of at most 0.01. The same bets by slice (`slices.*`) go to a test of each slice, which has a part of
    the bound: an alarm of its own, with an onset of its own, names the slice. Of slices alone, `gold.overpay` is bet on
    too: what answers are paid that they are not worth (`stats.overpay`).

    Promise: while at every step the conditional mean of each table's u is not below zero (for duels not below
    -`tolerance`, and no true level of gold or of an evaluation below an earlier one by more than `tolerance`, under the
    assumptions of `stats.level_drop`; no overpay of a slice above that of its first steps by more than 0.1; and no trap
    paid with a larger chance than that), the chance of any alarm in the run, over all attempts and however often it is
    looked at, is at most `alpha`. Void if gold is the reward itself (then it can never fire), if labels are chosen
    after they are seen, or if gold leaves [0, 1]. The claim is about the gold source, not about people. Observations of
    abandoned attempts stay in: a rewind does not give a second chance, and rows that a resume repeats are counted once.
    An alarm resolves when the run is rolled back to its onset or before, when gold has recovered by a test of its own
    (`detectors.recovery`), or when an operator calls it false; re-arming then spends the next part of `alpha` and bets
    only on what comes afterwards, so the promise holds whatever that rested on in the past. Void if an operator's
    decision rests on labels that are still to come. The chance that a slice is ever named whose own bets are fair is at
    most a part (`SLICE_SHARE`) of `alpha`, whatever other slices do; a run in which no second slice is seen pays
    nothing for it.

    >>> gold_test = GoldLossTest()
    >>> steps = [Reading(0, t, "gold.slope", u, 8, None, (u,) * 8) for t, u in enumerate([0.3] * 40 + [-0.3] * 40)]
    >>> raised = next(alarm for alarm in map(gold_test.update, steps) if alarm)
    >>> raised.tier, raised.onset, raised.step < 55
    ('alarm', 40, True)
    """

    alpha: float = 0.01
    tolerance: float = 0.01  # of gold, for duels: stored answers are a sample, and a plateau is not a loss
    name: str = field(default="gold_loss", init=False, repr=False)
    tier: Tier = field(default="alarm", init=False)
    watches: tuple[str, ...] = field(
        default=(SLOPE, DUEL, LEVEL, SAMPLED, WINDOW, CHANGE, TRAPS, "eval.*", "slices.*"), init=False, repr=False
    )
    _open: Alarm | None = field(default=None, init=False, repr=False)
    _recovery: Recovery | None = field(default=None, init=False, repr=False)  # of the open alarm
    _arming: int = field(default=1, init=False, repr=False)
    _wealth: Wealth = field(default_factory=Wealth, init=False, repr=False)
    _stakes: LevelStakes = field(init=False, repr=False)
    _bets: Counter[tuple[str, bool]] = field(default_factory=Counter, init=False, repr=False)  # by table, and if shared
    _repeated: RepeatedRows = field(default_factory=RepeatedRows, init=False, repr=False)
    _slices: SliceTests = field(default_factory=SliceTests, init=False, repr=False)
    _slice: str = field(default="", init=False, repr=False)  # the slice that this test is about; empty: the whole run
    _named_alpha: float = field(default=0.0, init=False, repr=False)  # of all slices together, if it is about one

    def __post_init__(self) -> None:
        self._stakes = LevelStakes(self.tolerance)

    @property
    def least(self) -> int:
        """The fewest audited groups that could raise a first alarm, each as bad as it can be, one per step."""
        worst = Wealth()
        count = 0
        while not count or worst.evidence < log(1.0 / alpha_share(self.alpha, 1)):
            worst.place(SLOPE, count, (-1.0,))
            count += 1
        return count

    @property
    def evidence(self) -> float:
        """Logarithm of the odds against a healthy run."""
        return float(np.logaddexp.reduce([self._wealth.evidence, *self._stakes.log_wealth()]))

    def rewind(self, attempt: int, step: int) -> Alarm | None:
        """A new attempt begins at this step: an open alarm whose onset lies there or later is resolved."""
        if attempt not in self._stakes.attempt_starts:
            self._stakes.rewind(attempt, step)
            if self._recovery is not None:
                self._recovery.rewind()
        return super().rewind(attempt, step)

    def _rearm(self) -> None:
        self._arming += 1
        self._wealth = Wealth()
        self._recovery = None
        self._stakes.rearm()

    def update(self, reading: Reading) -> Alarm | None:
        if self._is_repeated(reading):
            return None
        if self._open is not None:
            return self._resolve_if_recovered(self._open, reading)
        if has_own_money(reading.name):
            self._stakes.update(reading, self._wealth, self._spendable)
        else:
            self._bet(reading)
        return self._raise_if_reached(reading)

    def _bet(self, reading: Reading) -> None:
        """Bet on slopes or duels."""
        slack = self.tolerance if reading.name == DUEL else 0.0
        us = [(u + slack) / (1.0 + slack) for u in reading.values]
        shared, corrected = reading.against == SHARED_STEP, reading.against == CORRECTED
        self._bets[reading.name, shared or corrected] += len(us)
        self._wealth.place(reading.name, reading.step, us, shared=shared, top=TOP if corrected else 1.0)

    def _resolve_if_recovered(self, alarm: Alarm, reading: Reading) -> Alarm | None:
        """Ask whether gold is back, by the labels of steps after the alarm."""
        is_before = reading.attempt < alarm.attempt or reading.step <= alarm.step
        if self._recovery is None or is_before or self._stakes.is_abandoned(reading):
            return None
        return self._resolve(reading.step) if self._recovery.update(reading) else None

    def _raise_if_reached(self, reading: Reading) -> Alarm | None:
        threshold = log(1.0 / (self._spendable * self._stakes.alpha_part))
        if not self.evidence >= threshold:
            return None
        name = self._richest()
        onset, low, high = (min(step, reading.step) for step in self._onset_interval(name))
        self._open = Alarm(
            attempt=reading.attempt,
            name=f"env.{self._slice}.{name}" if self._slice else name,
            detector=self.name,
            tier=self.tier,
            direction="down",
            step=reading.step,
            data_step=reading.step,
            onset=onset,
            onset_low=min(low, onset),
            onset_high=max(high, onset),
            evidence=self.evidence,
            threshold=threshold,
            summary=self._summary(name, onset),
        )
        self._recovery = Recovery.of(name, self._stakes)
        return self._open

    @property
    def _spendable(self) -> float:
        """The part of α that this arming may spend."""
        return alpha_share(self.alpha * (1.0 - SLICE_SHARE) if self._slices.alpha else self.alpha, self._arming)

    def _richest(self) -> str:
        """The series or table that holds most."""
        table, series = self._wealth.richest, self._stakes.evidence()
        richest = max(series, key=lambda name: series[name], default=table)
        return richest if series.get(richest, -np.inf) > self._wealth.log_wealth(table) else table

    def _summary(self, name: str, onset: int) -> str:
        fallen = f"{name} has fallen"
        if isinstance(self._stakes.evaluations.get(name, (0.0, None))[1], CheckpointFallTest):
            fallen = "gold of checkpoints has fallen"
        words, odds = WORDS.get(name, fallen), f"odds {exp(min(self.evidence, 50.0)):.0f} to 1"
        if self._slice:
            bound = f"a healthy slice is ever named with chance at most {self._named_alpha:.2g}"
            return f"{slice_words(self._slice)} {words} since about step {onset} ({odds}; {bound})"
        return f"{words} since about step {onset} ({odds}; a healthy run alarms with chance at most {self.alpha:g})"

    def update_slices(self, reading: Reading) -> list[Alarm]:
        """Bet on each slice of a step; the alarms of those that are losing gold. An alarm on the run stops none."""
        table = reading.name.removeprefix(SLICES)
        is_again = (reading.attempt, reading.step) in self._repeated.steps and table in (SLOPE, LEVEL, OVERPAY)
        if is_again or not (table in (*self.watches, OVERPAY) or table.startswith("eval.")):
            return []
        return self._slices.update(reading, self._alpha_left, self._test_of_slice)

    def _alpha_left(self) -> float:
        """What may still be spent: of this arming as far as its money has not been lost, and of all later ones."""
        if self._open is not None:
            return alpha_left(self.alpha, self._arming + 1)
        return alpha_left(self.alpha, self._arming) * exp(min(self.evidence, 0.0))

    def _test_of_slice(self, name: str, alpha: float) -> GoldLossTest:
        test = GoldLossTest(alpha, self.tolerance)
        test._slice, test._named_alpha = name, self._slices.alpha
        test._stakes.attempt_starts.update(self._stakes.attempt_starts)
        return test

    @property
    def standing_slices(self) -> list[Alarm]:
        """The alarms on slices that are open."""
        return self._slices.standing

    def rewind_slices(self, attempt: int, step: int) -> list[Alarm]:
        """A new attempt begins at this step: the alarms on slices that this resolves."""
        return self._slices.rewind(attempt, step)

    def dismiss_slice(self, name: str, step: int) -> Alarm:
        """An operator calls the open alarm of this name false: it is resolved at this step."""
        return self._slices.dismiss(name, step)

    def slice_evidence(self) -> dict[str, float]:
        """Logarithm of the odds against each slice by itself."""
        return self._slices.evidence()

    def _is_repeated(self, reading: Reading) -> bool:
        """Whether an earlier attempt had the rows of this bet. Decided for the run: few rows are equal by chance."""
        return not self._slice and self._repeated.has(reading) and reading.name in (SLOPE, LEVEL, CHANGE)

    def assumptions(self) -> list[Assumption]:
        """What the bound rests on, as far as this run shows it."""
        lines = [*about_bets(self._bets, self._wealth), *about_levels(self._stakes)]
        duels = self._bets[DUEL, True] + self._bets[DUEL, False]
        if duels:
            lines.append(Assumption("duels", True, f"{duels}, each on the same prompt"))
        if again := len(self._repeated.steps):
            lines.append(Assumption("new rows", False, f"{again} steps were made again: counted once"))
        return [*lines, *about_slices(self._slices), *about_evaluations(self._stakes)]

    def _onset_interval(self, name: str) -> tuple[int, int, int]:
        """When the mean turned, with an interval: from the slopes if there are any, apart from the bet.

        Steps of an abandoned attempt may lie beyond this one: a rewind does not forget them.
        """
        if (interval := self._stakes.onset_interval(name)) is not None:
            return interval
        table = self._wealth.tables.get(SLOPE) or self._wealth.tables.get(name)
        if table is None:
            good, fell = self._stakes.evaluations[name][1].drop_steps()
            return fell, good, fell
        onset, low, high = (table.steps[index] for index in change_point(np.array(table.means)))
        return onset, low, high
