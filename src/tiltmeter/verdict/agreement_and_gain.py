"""Agreement and level: whether the reward still tells better from worse, how gold stands against its best; and gain,
whether the reward has gained for nothing. Every interval holds at any time (`stats.running_mean`).

*Agreement*, from `gold.agreement`, one value per prompt group whose gold differs, or from audited pairs
(`gold.slope`), one value per pair whose gold differs: 1 where the answer that is paid more is the better one. Covered
is the average over the groups or pairs counted of that chance for the policy of their step. Given which of them
differ in gold, they are independent, which is what the proof needs.

*Level*, from `gold.prompts`, one value per prompt group, `gold.answers`, one per labelled answer, an evaluation, one
per item, or the gold of audited pairs. Covered is the average of their expected gold in each window, and with all
windows at once the best of them.

*Gain* compares the current window with the first one of the run: G, of gold; R, of the reward, is the chance that an
answer of now is paid more than one of the baseline minus the chance that it is paid less (`reward.win_share`), and
what it has risen by. With 0/1 scores G and R have one unit. The null of HOLLOW is "R < 0.1, or G >= 0.1, or G >= R /
3": it is rejected where the low end of R is at least 0.1 and the high end of G below the other two. Both ends hold at
any time with chance 0.995, so under the null it is ever rejected with chance at most 0.01. Not asked where gold may
stand above 0.8: who is at the ceiling cannot gain.

Where only audited pairs are labelled, G is of their two answers, and what pairs cannot show counts for the run. Solved
prompts leave the pairs, so gold of pairs stands still in runs that gain: a share d of a step's prompts had no pair,
and their gold may be anything. So may that of a pair with a missing label. With p the gold of a pair, (1 - d) p is
the least that gold of all prompts is expected to be, and (1 - d) p + d the most. d is known before the labels are, so
both are values in [0, 1] of which the interval holds at any time; given prompts and rewards, they are means of two
independent draws. Whole answers or prompts are used instead where there are any, which the settings decide and not
values.

Where there are no rollouts but two curves, R is that of the reward's curve (`stats.curve_gain`), under its
assumptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

import numpy as np

from tiltmeter.data.reading_table import ReadingTable
from tiltmeter.stats.curve_gain import curve_gain
from tiltmeter.stats.running_mean import MeanWindow, MeanWindows

ALPHA = (
    0.01  # of the agreement; of the level, half for pairs and half for what replaces them; of HOLLOW, gold and reward
)
LEAST_GAIN = 0.1  # of the reward, before it counts as one
NO_GAIN = 0.1  # of gold: where so much is excluded nothing was gained
WORTH = 1 / 3  # of the reward's gain: gold that gained so much has gained
CEILING = 0.8  # gold above it has little left to gain

CURVE = "training.reward"
DEAD = "reward.dead_share"  # of a step's prompts, those whose answers are paid alike: they have no pair
MOST_STEPS = 512  # whose labels may still come
PAIRS, GROUPS = "audited pairs", "prompt groups"


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often the reward prefers the better of two answers, in a window of the latest steps, and its interval."""

    share: float
    low: float
    high: float
    n: int  # prompt groups or audited pairs whose gold differs
    of: str  # which of the two
    first: int  # steps of the window
    last: int


@dataclass(frozen=True, slots=True)
class Gain:
    """What the reward gained at least since the beginning, and gold at most; in between, what was seen."""

    reward: float
    reward_low: float
    gold: float
    gold_high: float
    first: int  # steps of the current window
    last: int
    by_curve: bool  # of logged means, under assumptions; else at any time, with proof
    by_pairs: bool = False  # gold of audited pairs, whatever gold the prompts without a pair have

    @property
    def is_hollow(self) -> bool:
        return self.reward_low >= LEAST_GAIN and self.gold_high < min(NO_GAIN, WORTH * self.reward_low)

    def is_doubtful(self, gold: float) -> bool:
        """Whether the reward gained so much that gold should have too, and of gold only this was seen."""
        return WORTH * self.reward_low >= NO_GAIN and gold < NO_GAIN


@dataclass
class AgreementAndGain:
    """Folds the readings of a run, in the order in which they came."""

    attempt: int = -1
    agreements: MeanWindows = field(default_factory=lambda: MeanWindows(ALPHA))
    agreement_of: str = ""
    pairs: MeanWindows = field(default_factory=lambda: MeanWindows(0.5 * ALPHA))  # gold of audited pairs
    all_by_pairs: MeanWindows = field(default_factory=lambda: MeanWindows(0.5 * ALPHA))  # of all prompts, by pairs
    without_pairs: dict[int, float] = field(default_factory=dict)  # of the last steps, the share of prompts
    gold: MeanWindows = field(default_factory=lambda: MeanWindows(0.5 * ALPHA))
    gold_source: str = ""
    reward: MeanWindows = field(default_factory=lambda: MeanWindows(0.5 * ALPHA, follows=True))
    curve: ReadingTable = field(default_factory=lambda: ReadingTable(CURVE))  # the trainer's own mean reward
    has_rollouts: bool = False  # then the curve is not used: its gain has no proof

    def add(self, attempt: int, step: int, measured: Mapping[str, Sequence[Any]], *, pairs: bool = False) -> None:
        """The readings of a step, of its audited pairs (`pairs`) or of an evaluation; those of an abandoned attempt are
        left out."""
        if attempt < self.attempt:
            return
        if attempt > self.attempt:
            if self.attempt >= 0:
                self._restart(step)
            self.attempt = attempt
        for name, packed in measured.items():
            if name == "gold.slope" and pairs:
                self._add_pairs(step, measured)
                self._add_all_by_pairs(step, measured)
            elif name == DEAD and _is_share(packed[0]):
                self.without_pairs[step] = min(max(packed[0], 0.0), 1.0)
                for old in list(self.without_pairs)[:-MOST_STEPS]:
                    del self.without_pairs[old]
            elif name == CURVE and _is_number(packed[0]):
                self.curve.add(attempt, step, packed[0], 1)
            elif _is_share(packed[0]) and _is_number(packed[1]) and packed[1] > 0:
                self._add_shares(step, name, packed, measured)

    def _add_shares(self, step: int, name: str, packed: Sequence[Any], measured: Mapping[str, Sequence[Any]]) -> None:
        mean, count, stderr = min(max(packed[0], 0.0), 1.0), packed[1], packed[2]
        if name == "gold.agreement" and self.agreement_of in ("", GROUPS):
            self.agreement_of = GROUPS
            self.agreements.place(step, mean, count, _spread(mean, count, stderr))
        elif name == "gold.level":
            self.pairs.place(step, mean, count, _spread(mean, count, stderr))
        elif name == "gold.prompts" and len(values := _shares(packed)):
            spread, answers = float(np.var(values) * len(values)), count // len(values)
            self._add_gold(step, name, float(np.mean(values)), len(values), spread, draws=max(answers, 1))
        elif name == "gold.answers":
            self._add_gold(step, name, mean, count, _spread(mean, count, stderr))
        elif name.startswith("eval."):
            self._add_gold(step, name, mean, count, mean * (1.0 - mean) * count)
        elif name == "reward.win_share":
            self.has_rollouts = True
            groups = min(_count(measured, "group.size") or count, count)
            self.reward.place(step, mean, groups, _spread(mean, groups, stderr), draws=max(count // groups, 1))

    def _add_pairs(self, step: int, measured: Mapping[str, Sequence[Any]]) -> None:
        """In an audited pair the first answer is paid more, so the sign of u says whether gold agrees. A label that
        never came was counted in favour of the reward: for the low end it is not."""
        us = [u for values in measured["gold.slope"][3:4] for u in values if _is_number(u)]
        signs = [u > 0.0 for u in us if u != 0.0]
        if signs and self.agreement_of in ("", PAIRS):
            self.agreement_of = PAIRS
            mean = float(np.mean(signs))
            unknown = min(max(len(us) - _count(measured, "gold.level"), 0), sum(signs))
            self.agreements.place(step, mean, len(signs), mean * (1.0 - mean) * len(signs), unknown=unknown)

    def _add_all_by_pairs(self, step: int, measured: Mapping[str, Sequence[Any]]) -> None:
        """Gold of a step's pairs, as that of all its prompts: prompts without a pair, and pairs without both labels,
        are 1 and could be anything. A step whose prompts were not counted says nothing."""
        dead, level = self.without_pairs.get(step), measured.get("gold.level", (0.0, 0, None))
        count, bets = _count(measured, "gold.level"), len(measured["gold.slope"][3:4] and measured["gold.slope"][3])
        if dead is None or self.gold_source or not bets or not _is_share(level[0]):
            return
        mean, lost = min(max(level[0], 0.0), 1.0), max(bets - count, 0.0)
        share = 1.0 - dead
        placed, total = count + lost, count * (share * mean + dead) + lost
        spread = share**2 * _spread(mean, count, level[2]) if count else 0.0
        spread += count * lost / placed * (share * (1.0 - mean)) ** 2
        # A value that is lower by d may lie (2 - d) d further off, of which `unknown` counts d.
        spread += count * dead * share
        begins = self.all_by_pairs.place(
            step, min(total / placed, 1.0), placed, spread, draws=2.0, unknown=min(count * dead + lost, total)
        )
        if begins and len(self.all_by_pairs.windows) > 1 and self.reward.windows:
            self.reward.open(step)

    def _add_gold(self, step: int, name: str, mean: float, count: float, spread: float, *, draws: float = 1.0) -> None:
        """Of several sources the first stays: a best of one is no best of another."""
        if self.gold_source not in ("", name):
            return
        self.gold_source = name
        begins = self.gold.place(step, mean, count, spread, draws=draws)
        if begins and len(self.gold.windows) > 1 and self.reward.windows:
            self.reward.open(step)

    def change_reward(self) -> None:
        """Another reward from here on: neither its agreement nor its gain is that of the one before."""
        self._restart(inf)
        self.gold.beginning = self.all_by_pairs.beginning = self.reward.beginning = None
        self.curve = ReadingTable(CURVE)

    def _restart(self, step: float) -> None:
        for windows in (self.agreements, self.pairs, self.all_by_pairs, self.gold, self.reward):
            windows.restart(step)
        self.curve = self.curve.where(self.curve.steps < step)

    def agreement(self) -> Agreement | None:
        """None: no two recent answers to one prompt with different gold were seen since the run or its reward began."""
        if not self.agreements.windows:
            return None
        window = self.agreements.current
        share, low, high = window.interval(ALPHA)
        return Agreement(share, low, high, int(window.count), self.agreement_of, window.first, window.last)

    def gain(self) -> Gain | None:
        """None: too early, no reward or no gold that could be compared, or gold may be near its ceiling."""
        gold = self.gold if self.gold_source else self.all_by_pairs
        beginning = gold.beginning
        if beginning is None or not gold.windows or gold.current.first <= beginning.last:
            return None
        window, now = gold.current, gold.current.interval(gold.alpha)
        if now.high > CEILING:
            return None
        start = beginning.interval(gold.alpha)
        reward = self._reward_gain(beginning, window)
        if reward is None:
            return None
        gained, at_least, by_curve = reward
        return Gain(
            gained, at_least, now.mean - start.mean, now.high - start.low, window.first, window.last, by_curve,
            not self.gold_source,
        )  # fmt: skip

    def _reward_gain(self, beginning: MeanWindow, now: MeanWindow) -> tuple[float, float, bool] | None:
        """What the reward gained, and at least, between the same two windows; and whether by its curve."""
        if self.reward.beginning is not None and self.reward.windows:
            alpha = self.reward.alpha
            start, end = self.reward.beginning.interval(alpha), self.reward.current.interval(alpha)
            return 2.0 * (end.mean - start.mean), 2.0 * (end.low - start.high), False
        if self.has_rollouts:
            return None
        steps, values = self.curve.steps, self.curve.values
        parts = [values[(part.first <= steps) & (steps <= part.last)].tolist() for part in (beginning, now)]
        gain = curve_gain(values.tolist(), *parts)
        return None if gain is None else (*gain, True)


def _is_number(value: object) -> bool:
    return isinstance(value, float | int) and isfinite(value)


def _count(measured: Mapping[str, Sequence[Any]], name: str) -> float:
    """Behind how many values a reading stands; 0 where there is none."""
    count = measured[name][1] if name in measured else 0
    return float(count) if _is_number(count) and count > 0 else 0.0


def _is_share(value: object) -> bool:
    """Whether a number lies in [0, 1], but for rounding."""
    return isinstance(value, float | int) and -1e-9 <= value <= 1.0 + 1e-9


def _shares(packed: Sequence[Any]) -> list[float]:
    """The values of single prompts behind a reading; none where one of them is no share."""
    values = packed[3] if len(packed) > 3 else []
    return [min(max(value, 0.0), 1.0) for value in values] if all(map(_is_share, values)) else []


def _spread(mean: float, count: float, stderr: object) -> float:
    """The sum of squared deviations behind a standard error; without one the most that values in [0, 1] can have."""
    most = mean * (1.0 - mean) * count
    if isinstance(stderr, float | int) and isfinite(stderr):
        return min(float(stderr) ** 2 * count * (count - 1), most)
    return 0.0 if count <= 1 else most
