"""Whether what an open alarm is about is over: gold is back, and what the alarm itself saw has ended too.

Each alarm needs its level back (`stats.level_recovery`): of the prompts it was compared on, of the window that was
labelled, or of the evaluation. One that slopes, duels or overpay raised also needs these to show the opposite, so no
alarm ends while the reward still pushes gold down. Where there is no level before the alarm to come back to, as with
audited pairs alone, and after traps, an alarm does not end by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from tiltmeter.data.records import CORRECTED, Reading
from tiltmeter.data.slices import label_counts
from tiltmeter.detectors.level_stakes import CHANGE, LEVEL, OVERPAY, TRAPS, LevelStakes
from tiltmeter.detectors.repeated_rows import SLOPE
from tiltmeter.stats.checkpoint_falls import UNKNOWN, CheckpointFallTest, log_looks, log_odds_lower
from tiltmeter.stats.evaluation_drop import EvaluationDropTest
from tiltmeter.stats.level_drop import LevelDropTest, LevelReference
from tiltmeter.stats.level_recovery import MOST, NEEDED, RecoveryBets, noise_of, recovery_tolerance
from tiltmeter.stats.overpay import TOLERANCE
from tiltmeter.stats.prediction_powered import TOP
from tiltmeter.stats.sampled_level import SampledLevelTest

DUEL = "gold.duel"
OWN_CAUSES = (SLOPE, DUEL, OVERPAY)  # alarms about what may go on while gold stands where it stood
USUAL = 0.9  # of the groups of a step before the alarm: those that are missing beyond that count as 0
CHANGE_LEAST = 2.0  # a change is hardly ever further below its reference


class MustBeShown(Protocol):
    """Something that must be shown before the alarm ends."""

    @property
    def is_won(self) -> bool: ...

    def place(self, reading: Reading) -> None: ...
    def rewind(self) -> None: ...


@dataclass
class Recovery:
    """What must be shown, by the reading that shows it; nothing: the alarm does not end by itself."""

    conditions: dict[str, MustBeShown]

    @classmethod
    def of(cls, name: str, stakes: LevelStakes) -> Recovery:
        """For an alarm that this reading raised."""
        loss = 2.0 * MOST if name in OWN_CAUSES else 0.0  # what must not be more than this below its best then
        level = None if name == TRAPS else _level(name, stakes, loss)
        if level is None:
            return cls({})
        own: dict[str, MustBeShown] = {}
        if name in (SLOPE, DUEL):
            own[name] = BetsTurned(0.0 if name == SLOPE else MOST)
        if name == OVERPAY and stakes.overpay is not None and stakes.overpay[1].limit is not None:
            own[name] = OverpayEnded(stakes.overpay[1].limit - TOLERANCE / 2.0)
        return cls(own | level)

    def update(self, reading: Reading) -> bool:
        """Whether all is shown with this reading. It must be of a step after the alarm."""
        condition = self.conditions.get(reading.name)
        if condition is None:
            return False
        condition.place(reading)
        return all(one.is_won for one in self.conditions.values())

    def rewind(self) -> None:
        """The run goes back, and the alarm stays open."""
        for condition in self.conditions.values():
            condition.rewind()


def _level(name: str, stakes: LevelStakes, loss: float) -> dict[str, MustBeShown] | None:
    """The level that must be back; None where none is known."""
    if name in stakes.evaluations:
        test = stakes.evaluations[name][1]
        if isinstance(test, CheckpointFallTest):
            return {name: CheckpointsBack(test)}
        return {name: EvaluationBack(test, lambda n: stakes.wander[name].answers(n))}
    if stakes.level is not None and stakes.level[1].references:
        return {LEVEL: PromptsBack(stakes.level[1], loss)}
    if stakes.sampled is not None and stakes.sampled[1].windows:
        return {CHANGE: ChangeBack(stakes.sampled[1], loss)}
    return None


@dataclass
class BetsTurned:
    """The mean of slopes or duels of a step, as one bet, is above what the alarm is about. A bet whose labels did not
    come, which the alarm counts in favour of the run, counts against it here."""

    tolerance: float
    _bets: RecoveryBets = field(default_factory=lambda: RecoveryBets(TOP))

    def place(self, reading: Reading) -> None:
        count = len(reading.values)
        if not count:
            return
        unknown = max(count - reading.n, 0)
        top = TOP if reading.against == CORRECTED else 1.0
        mean = float(np.mean(reading.values)) - 2.0 * unknown / count
        self._bets.place(np.array([max((mean + self.tolerance) * TOP / top, -TOP)]))

    def rewind(self) -> None:
        self._bets.rewind()

    @property
    def is_won(self) -> bool:
        return self._bets.is_won


@dataclass
class OverpayEnded:
    """Wrong answers are paid less than this again. Labels that did not come count as wrong answers that are paid."""

    limit: float
    _bets: RecoveryBets = field(init=False)

    def __post_init__(self) -> None:
        self._bets = RecoveryBets(max(1.0 - self.limit, 0.01))

    def place(self, reading: Reading) -> None:
        answers, unknown = np.array([label_counts(key) for key in reading.keys], np.float64).T
        overpay = np.minimum(np.array(reading.values) + unknown / answers, 1.0)
        self._bets.place(np.array([float((self.limit - overpay).mean())]))

    def rewind(self) -> None:
        self._bets.rewind()

    @property
    def is_won(self) -> bool:
        return self._bets.is_won


class PromptsBack:
    """Gold of prompts is back against every window before the alarm.

    Groups that lack a label are not in the reading; where fewer come than before, those count as 0.
    """

    def __init__(self, test: LevelDropTest, loss: float) -> None:
        references = test.references
        gap = max(one.bets_below.gap for one in references if one.bets_below is not None)
        tolerance = recovery_tolerance(max(gap, loss), max(one.level for one in references))
        self._usual, self._lacking, self._last = USUAL * test.groups_a_step, 0.0, -1
        self._bets: list[tuple[LevelReference, float, RecoveryBets]] = []
        for one in references:
            lowered = noise_of(one.noise) - tolerance
            self._bets.append((one, lowered, RecoveryBets(max(one.highest + lowered, 0.1))))

    def place(self, reading: Reading) -> None:
        keys, means = np.array(reading.keys, np.int64), np.array(reading.values, np.float64)
        steps = reading.step - self._last if 0 <= self._last < reading.step else 1
        self._lacking = max(self._lacking + steps * self._usual - len(keys), -10.0 * self._usual)
        missing, self._last = max(int(self._lacking), 0), reading.step
        self._lacking -= missing
        for reference, lowered, bets in self._bets:
            rises = reference.rises(keys, means)
            if len(rises):
                rises = np.concatenate([rises, np.full(missing, -reference.highest)])
                bets.place(rises - lowered)

    def rewind(self) -> None:
        self._last = -1
        for _, _, bets in self._bets:
            bets.rewind()

    @property
    def is_won(self) -> bool:
        return all(bets.is_won for _, _, bets in self._bets)


class ChangeBack:
    """Gold is back against every window that was labelled, by the one that steps are compared with.

    Groups of which a label did not come count as if it were 0.
    """

    def __init__(self, test: SampledLevelTest, loss: float) -> None:
        self._windows = test.windows
        gap = max(one.bets.gap for one in self._windows.values())
        self._tolerance = recovery_tolerance(max(gap, loss), max(one.level for one in self._windows.values()))
        self._highest = max(one.level + one.below for one in self._windows.values())
        self._bets = RecoveryBets(CHANGE_LEAST)

    def place(self, reading: Reading) -> None:
        window = self._windows.get(reading.keys[0]) if len(reading.keys) == 3 else None
        if window is None or not reading.values:
            return
        unknown = max(len(reading.values) - reading.n, 0) / len(reading.values)
        xs = np.array(reading.values) - unknown + self._tolerance - (self._highest - window.level)
        self._bets.place(np.maximum(xs, -CHANGE_LEAST))

    def rewind(self) -> None:
        self._bets.rewind()

    @property
    def is_won(self) -> bool:
        return self._bets.is_won


class EvaluationBack:
    """An evaluation is back at its best, answer by answer."""

    def __init__(self, test: EvaluationDropTest, answers: Callable[[float], float]) -> None:
        values, counts = test.levels()
        best = float(values.max())
        tolerance = recovery_tolerance(best - float(values[-1]), best)
        ends = [value + noise_of(0.25 / count) for value, count in zip(values, counts, strict=True)]
        self._limit = min(max(max(ends) - tolerance, 0.01), 1.0)
        self._bets, self._answers = RecoveryBets(self._limit, block=1), answers

    def place(self, reading: Reading) -> None:
        answers = reading.n + sum(reading.keys)  # what has no score counts against it here
        count, value = self._answers(answers), min(max(reading.value, 0.0), 1.0) * (reading.n / answers)
        xs = np.array([1.0 - self._limit, -self._limit])
        self._bets.place(xs, count * np.array([value, 1.0 - value]))

    def rewind(self) -> None:
        self._bets.rewind()

    @property
    def is_won(self) -> bool:
        return self._bets.is_won


class CheckpointsBack:
    """A checkpoint is as good as every earlier one on the same prompts."""

    def __init__(self, test: CheckpointFallTest) -> None:
        self._gold = list(test.gold)
        levels = [float(np.nanmean(one)) if np.isfinite(one).any() else 0.0 for one in self._gold]
        self._tolerance = recovery_tolerance(max(levels) - levels[-1], max(levels))
        self._looks, self.is_won = 0, False

    def place(self, reading: Reading) -> None:
        self._looks += 1
        now = np.array(reading.values, np.float64)
        now = np.where(now == UNKNOWN, np.nan, now)
        if len(now) == len(self._gold[0]):
            odds = min(log_odds_lower(one, now, -self._tolerance) for one in self._gold)
            self.is_won = odds - log_looks(self._looks) >= NEEDED

    def rewind(self) -> None:
        self.is_won = False
