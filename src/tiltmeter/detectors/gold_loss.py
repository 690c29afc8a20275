"""The gold alarm: the reward's advantages lower gold, or gold has fallen, with a proved bound on false alarms."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log, sqrt

import numpy as np

from tiltmeter.data.records import CORRECTED, SHARED_STEP, Alarm, Reading, Tier
from tiltmeter.data.slices import PREFIX as SLICES
from tiltmeter.data.slices import slice_words
from tiltmeter.detectors.slice_tests import SLICE_SHARE, SliceTests
from tiltmeter.detectors.standing_alarm import StandingAlarm
from tiltmeter.stats.betting import alpha_left, alpha_share
from tiltmeter.stats.changepoint import change_point
from tiltmeter.stats.checkpoint_falls import UNKNOWN, CheckpointFallTest
from tiltmeter.stats.evaluation_drop import CheckpointWander, EvaluationDropTest
from tiltmeter.stats.level_drop import PEAK_TOLERANCE, LevelDropTest
from tiltmeter.stats.prediction_powered import TOP
from tiltmeter.stats.rise_then_fall import peak_steps, rise_then_fall
from tiltmeter.stats.sampled_level import SampledLevelTest
from tiltmeter.stats.trap_payments import CHANCE, TrapPaymentTest
from tiltmeter.stats.wealth import BLOCKS, COMPARED, Wealth

LEVEL = "gold.prompts"
SAMPLED, WINDOW, CHANGE = "gold.answers", "gold.reference", "gold.change"
TRAPS = "gold.traps"
WORDS = {
    "gold.slope": "the reward pushes gold down",
    "gold.duel": "answers are worse than they were",
    LEVEL: "gold has fallen",
    CHANGE: "gold has fallen",
    TRAPS: "judged by traps, the policy is paid for what honest work cannot earn",
}
EVALUATION_SHARE = 0.5  # of the cash, staked on an evaluation series when its first reading comes
REPEATED = 10.0  # nats of surprise, above which slopes that are equal to those of an earlier attempt are no chance
LEVEL_SHARE = 0.4  # of the cash, staked on the level of gold when its first reading comes
TRAP_SHARE = 0.4  # of the cash, staked on traps when the first of them comes


@dataclass(frozen=True, slots=True)
class Assumption:
    """Something that the bound rests on, and whether this run shows that it holds; None: the run cannot tell."""

    about: str
    holds: bool | None
    text: str


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
    the bound: an alarm of its own, with an onset of its own, names the slice.

    Promise: while at every step the conditional mean of each table's u is not below zero (for duels not below
    -`tolerance`, and no true level of gold or of an evaluation below an earlier one by more than `tolerance`, under the
    assumptions of `stats.level_drop`; and no trap paid with a larger chance than that), the chance of any alarm in the
    run, over all attempts and however often it is looked at, is at most `alpha`. Void if gold is the reward
    itself (then it can never fire), if labels are chosen after they are seen, or if gold leaves [0, 1]. The claim is
    about the gold source, not about people. Observations of abandoned attempts stay in: a rewind does not give a second
    chance, and rows that a resume repeats are counted once. An alarm resolves when the run is rolled back to its onset
    or before, or when an operator calls it false; re-arming then spends the next part of `alpha` and bets only on what
    comes afterwards, so the promise holds whatever the operator knew of the past. Void if that decision rests on labels
    that are still to come. The chance that a slice is ever named whose own bets are fair is at most a part
    (`SLICE_SHARE`) of `alpha`, whatever other slices do; a run in which no second slice is seen pays nothing for it.

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
        default=("gold.slope", "gold.duel", LEVEL, SAMPLED, WINDOW, CHANGE, TRAPS, "eval.*", "slices.*"),
        init=False,
        repr=False,
    )
    _open: Alarm | None = field(default=None, init=False, repr=False)
    _arming: int = field(default=1, init=False, repr=False)
    _wealth: Wealth = field(default_factory=Wealth, init=False, repr=False)
    _levels: dict[str, tuple[float, EvaluationDropTest | CheckpointFallTest]] = field(
        default_factory=dict, init=False, repr=False
    )  # by evaluation, with log of its stake
    _level: tuple[float, LevelDropTest] | None = field(default=None, init=False, repr=False)  # with log of its stake
    _sampled: tuple[float, SampledLevelTest] | None = field(default=None, init=False, repr=False)
    _traps: tuple[float, TrapPaymentTest] | None = field(default=None, init=False, repr=False)  # with log of its stake
    _laid: tuple[int, int] = field(default=(0, 0), init=False, repr=False)  # attempt and step of its first answers
    _answers: list[tuple[int, float, int]] = field(default_factory=list, init=False, repr=False)  # step, gold, labels
    _newest: dict[str, tuple[int, int]] = field(default_factory=dict, init=False, repr=False)  # of each evaluation
    _wander: dict[str, CheckpointWander] = field(default_factory=dict, init=False, repr=False)  # of each evaluation
    _ended_evidence: list[float] = field(
        default_factory=list, init=False, repr=False
    )  # evaluations that ended with a rewind
    _attempt_starts: dict[int, int] = field(
        default_factory=dict, init=False, repr=False
    )  # first step of later attempts
    _slopes: dict[int, tuple[array[int], array[int]]] = field(
        default_factory=dict, init=False, repr=False
    )  # by attempt: steps in order, and hashes of their slopes
    _bets: Counter[tuple[str, bool]] = field(default_factory=Counter, init=False, repr=False)  # by table, and if shared
    _repeated: set[tuple[int, int]] = field(default_factory=set, init=False, repr=False)  # attempt and step
    _slices: SliceTests = field(default_factory=SliceTests, init=False, repr=False)
    _slice: str = field(default="", init=False, repr=False)  # the slice that this test is about; empty: the whole run
    _named_alpha: float = field(default=0.0, init=False, repr=False)  # of all slices together, if it is about one

    @property
    def least(self) -> int:
        """The fewest audited groups that could raise a first alarm, each as bad as it can be, one per step."""
        worst = Wealth()
        count = 0
        while not count or worst.evidence < log(1.0 / alpha_share(self.alpha, 1)):
            worst.place("gold.slope", count, (-1.0,))
            count += 1
        return count

    @property
    def evidence(self) -> float:
        """Logarithm of the odds against a healthy run."""
        return float(
            np.logaddexp.reduce([self._wealth.evidence, *self._ended_evidence, *self._evaluation_evidence().values()])
        )

    def _evaluation_evidence(self) -> dict[str, float]:
        """Log wealth of each evaluation series, of the level of gold and of traps."""
        series = {name: log_stake + level.evidence for name, (log_stake, level) in self._levels.items()}
        if self._level is not None:
            series[LEVEL] = self._level[0] + self._level[1].evidence
        if self._sampled is not None:
            series[CHANGE] = self._sampled[0] + self._sampled[1].evidence
        if self._traps is not None:
            series[TRAPS] = self._traps[0] + self._traps[1].evidence
        return series

    def rewind(self, attempt: int, step: int) -> Alarm | None:
        """A new attempt begins at this step: an open alarm whose onset lies there or later is resolved."""
        if attempt not in self._attempt_starts:
            self._attempt_starts[attempt] = step
            self._end_evaluations(step)
            if self._level is not None:
                self._level[1].rewind(step)
            if self._sampled is not None:
                self._sampled[1].rewind(step)
            self._answers = [item for item in self._answers if item[0] < step]
        return super().rewind(attempt, step)

    def _rearm(self) -> None:
        self._arming += 1
        self._wealth, self._levels, self._ended_evidence = Wealth(), {}, []
        self._level, self._sampled, self._traps = None, None, None

    def update(self, reading: Reading) -> Alarm | None:
        if self._is_repeated(reading) or self._open is not None:
            return None
        if reading.name.startswith("eval."):
            self._add_evaluation(reading)
        elif reading.name == LEVEL:
            self._add_level(reading)
        elif reading.name in (SAMPLED, WINDOW, CHANGE):
            self._add_sampled_level(reading)
        elif reading.name == TRAPS:
            if self._traps is None:  # staked before a payment counts
                self._traps = self._wealth.allocate(TRAP_SHARE), TrapPaymentTest()
            self._traps[1].place(reading.step, reading.values)
        else:
            slack = self.tolerance if reading.name == "gold.duel" else 0.0
            us = [(u + slack) / (1.0 + slack) for u in reading.values]
            shared, corrected = reading.against == SHARED_STEP, reading.against == CORRECTED
            self._bets[reading.name, shared or corrected] += len(us)
            self._wealth.place(reading.name, reading.step, us, shared=shared, top=TOP if corrected else 1.0)
        own_alpha = self.alpha * (1.0 - SLICE_SHARE) if self._slices.alpha else self.alpha
        threshold = log(1.0 / alpha_share(own_alpha, self._arming))
        if not self.evidence >= threshold:
            return None
        name = self._wealth.richest
        levels = self._evaluation_evidence()
        if levels and max(levels.values()) > self._wealth.log_wealth(name):
            name = max(levels, key=lambda series: levels[series])
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
        return self._open

    def _summary(self, name: str, onset: int) -> str:
        fallen = f"{name} has fallen"
        if isinstance(self._levels.get(name, (0.0, None))[1], CheckpointFallTest):
            fallen = "gold of checkpoints has fallen"
        words, odds = WORDS.get(name, fallen), f"odds {exp(min(self.evidence, 50.0)):.0f} to 1"
        if self._slice:
            bound = f"a healthy slice is ever named with chance at most {self._named_alpha:.2g}"
            return f"{slice_words(self._slice)} {words} since about step {onset} ({odds}; {bound})"
        return f"{words} since about step {onset} ({odds}; a healthy run alarms with chance at most {self.alpha:g})"

    def update_slices(self, reading: Reading) -> list[Alarm]:
        """Bet on each slice of a step; the alarms of those that are losing gold. An alarm on the run stops none."""
        table = reading.name.removeprefix(SLICES)
        is_again = (reading.attempt, reading.step) in self._repeated and table in ("gold.slope", LEVEL)
        if is_again or not (table in self.watches or table.startswith("eval.")):
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
        test._attempt_starts = dict(self._attempt_starts)
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
        """Whether an earlier attempt had these very rows: a resume that restores the random state makes them again.

        What is not chance is no bet. Slopes stand for rows: they are equal where all rewards and labels are. Where few
        values are possible they are equal by chance too, and then they count.
        """
        if self._slice:
            return False  # decided for the run: few rows are equal by chance
        at = (reading.attempt, reading.step)
        if reading.name == "gold.slope" and self._had_before(reading) and _surprise(reading.values) > REPEATED:
            self._repeated.add(at)
        return reading.name in ("gold.slope", LEVEL, CHANGE) and at in self._repeated

    def _had_before(self, reading: Reading) -> bool:
        """Whether another attempt had these slopes at this step; keeps them."""
        mark, before = hash(reading.values), False
        self._slopes.setdefault(reading.attempt, (array("q"), array("q")))
        for attempt, (steps, marks) in self._slopes.items():
            place = bisect_left(steps, reading.step)
            if attempt == reading.attempt:
                steps.insert(place, reading.step)
                marks.insert(place, mark)
            else:
                before |= place < len(steps) and steps[place] == reading.step and marks[place] == mark
        return before

    def assumptions(self) -> list[Assumption]:
        """What the bound rests on, as far as this run shows it."""
        lines = []
        opinions, certain = (sum(n for (_, is_shared), n in self._bets.items() if is_shared == kind) for kind in (1, 0))
        if opinions:
            lines.append(Assumption("labels", True, "a judge's or people's: one bet a step"))
        if certain:
            lines.append(Assumption("labels", None, "of code or a column: each bet counts; void if a judge made them"))
        table = self._wealth.tables.get("gold.slope")
        if table is not None and table.is_uneven:
            text = "they jump from one to the next, as with one task a batch: their bets count as one"
            lines.append(Assumption("steps are alike", False, text))
        elif table is not None and table.compared >= COMPARED:
            lines.append(Assumption("steps are alike", True, f"{table.compared} pairs of neighbours compared"))
        elif table is not None:
            text = f"{table.compared} of {COMPARED} pairs of neighbours compared: at most {BLOCKS} bets a step"
            lines.append(Assumption("steps are alike", None, text))
        if self._level is not None and self._level[1].paired is not None:
            paired = "prompts come back, so each is compared with itself"
            pooled = "prompts do not come back: void if those of later steps are harder"
            lines.append(Assumption("level", *((True, paired) if self._level[1].paired else (None, pooled))))
        if self._sampled is not None:
            text = "a part of the answers, and windows that are labelled later: void if code labels them otherwise then"
            lines.append(Assumption("level", None, text))
        if self._traps is not None:
            text = f"{self._traps[1].count} asked: void if honest work is paid for more than {CHANCE:.0%} of them"
            lines.append(Assumption("traps", None, text))
        duels = self._bets["gold.duel", True] + self._bets["gold.duel", False]
        if duels:
            lines.append(Assumption("duels", True, f"{duels}, each on the same prompt"))
        if self._repeated:
            lines.append(Assumption("new rows", False, f"{len(self._repeated)} steps were made again: counted once"))
        if self._slices.alpha:
            text = f"{len(self._slices.tests)}, with {self._slices.alpha:.2g} of the bound: each by bets of its own"
            text += ", but not those that came after them" if self._slices.untested else ""
            lines.append(Assumption("slices", not self._slices.untested, text))
        for name, (_, level) in self._levels.items():
            if isinstance(level, CheckpointFallTest):
                text = f"{name}: each prompt compared with itself; void if they are no random draw of those you mean"
                lines.append(Assumption("evaluations", None, text))
        for name, wander in self._wander.items():
            text = f"{name}: checkpoints that differ by {sqrt(wander.variance) / 2:.1%} at a level of 50 % are no fall"
            lines.append(Assumption("evaluations", None, text))
        return lines

    def _add_level(self, reading: Reading) -> None:
        """Bet on the gold of a step's prompts, unless the run has gone back behind it."""
        if any(attempt > reading.attempt and step <= reading.step for attempt, step in self._attempt_starts.items()):
            return
        if self._level is None:
            self._level = self._wealth.allocate(LEVEL_SHARE), LevelDropTest(self.tolerance)
        if reading.keys:
            size = reading.n // len(reading.keys)  # answers to each prompt
            self._level[1].place(reading.step, np.array(reading.keys), np.array(reading.values), size)

    def _add_sampled_level(self, reading: Reading) -> None:
        """Bet on answers of a step against a window that was labelled, unless the run has gone back behind it.

        The money is laid on it when the first answers are labelled, before any window could be a reference.
        """
        if any(attempt > reading.attempt and step <= reading.step for attempt, step in self._attempt_starts.items()):
            return
        if self._sampled is None:
            self._sampled = self._wealth.allocate(LEVEL_SHARE), SampledLevelTest(self.tolerance)
            self._laid = reading.attempt, reading.step
        test = self._sampled[1]
        if reading.name == SAMPLED:
            self._answers.append((reading.step, reading.value, reading.n))
        elif reading.name == WINDOW and reading.stderr is not None and len(reading.keys) == 4:
            window, attempt, first, last = reading.keys
            if (attempt, first) >= self._laid:  # one that began before this arming has no money of it
                test.open(window, last, np.array(reading.values), reading.value, reading.stderr**2)
        elif reading.name == CHANGE and len(reading.keys) == 3:
            window, labels, answers = reading.keys
            test.place(window, np.array(reading.values), labels / answers)

    def _add_evaluation(self, reading: Reading) -> None:
        """Bet on an evaluation, unless one of a later step is known or the run has gone back behind it.

        The null is that a level does not fall from one evaluation to the next. It says nothing about evaluations that
        come in the wrong order, or that belong to an abandoned attempt.
        """
        name, at = reading.name, (reading.attempt, reading.step)
        is_abandoned = any(attempt > at[0] and step <= at[1] for attempt, step in self._attempt_starts.items())
        if is_abandoned or at <= self._newest.get(name, (-1, -1)):
            return
        self._newest[name] = at
        if name not in self._levels:
            # Decided by the number of series, before this one's values count. All together leave a third of the cash.
            number = 1 + len(self._levels) + len(self._ended_evidence)
            stake = self._wealth.allocate(EVALUATION_SHARE / number**2)
            self._levels[name] = stake, CheckpointFallTest() if reading.values else EvaluationDropTest(self.tolerance)
        level = self._levels[name][1]
        if isinstance(level, CheckpointFallTest):
            values = np.array(reading.values, np.float64)
            level.place(reading.step, np.where(values == UNKNOWN, np.nan, values))
            return
        wander = self._wander.setdefault(name, CheckpointWander())
        level.place(reading.step, reading.value, wander.answers(reading.n))
        wander.learn(reading.value, reading.n)

    def _end_evaluations(self, step: int) -> None:
        """End the bets on evaluations that go beyond a step the run goes back to: a level may be lower there.

        Their evidence so far is kept; a later evaluation of that name begins a new series.
        """
        for name in [name for name in self._levels if self._newest[name][1] >= step]:
            log_stake, level = self._levels.pop(name)
            self._ended_evidence.append(log_stake + level.evidence)

    def _onset_interval(self, name: str) -> tuple[int, int, int]:
        """When the mean turned, with an interval: from the slopes if there are any, apart from the bet.

        Steps of an abandoned attempt may lie beyond this one: a rewind does not forget them.
        """
        if name == LEVEL and self._level is not None:
            peak, fell, half = self._level[1].drop_steps()
            return fell, peak, half
        if name == CHANGE and self._answers:
            steps, levels, counts = (np.array(column) for column in zip(*self._answers, strict=True))
            fitted = rise_then_fall(levels, counts)
            peak, fell, half = (int(steps[at]) for at in peak_steps(levels, fitted, PEAK_TOLERANCE))
            return fell, peak, half
        if name == TRAPS and self._traps is not None:
            return self._traps[1].start()
        table = self._wealth.tables.get("gold.slope") or self._wealth.tables.get(name)
        if table is None:
            good, fell = self._levels[name][1].drop_steps()
            return fell, good, fell
        onset, low, high = (table.steps[index] for index in change_point(np.array(table.means)))
        return onset, low, high


def _surprise(values: Sequence[float]) -> float:
    """How unlikely it is that others, drawn from what these values are, come out equal one by one; in nats."""
    return -sum(count * log(count / len(values)) for count in Counter(values).values())
