"""Chooses which rollouts to label, and how many: few while the run looks healthy, many when gold seems to fall.

How many is decided from earlier steps alone, and which by chance, before any label of the step is seen. Whatever the
rule is, the alarm's bound holds; a good rule uses the labels where they change the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.records import Floats, Ints
from tiltmeter.stats.groups import group_sums
from tiltmeter.stats.local_level import LocalLevel

Row = tuple[int, int, int]  # attempt, step, row in the joined batch
Span = tuple[int, int, int, int]  # attempt, step, first row and the row after the last
Recall = Callable[[int, int], tuple[Ints, Sequence[object]] | None]  # a stored step's group starts and prompts

FLOOR = 0.25  # of the even rate, spent at every step whatever the run looks like
ADVANCE = 0.4  # of the planned budget that may be spent before it has accrued
UNPLANNED = 10  # steps' worth of labels that may be spent in advance when the run's length is not known
SPEND = 0.2  # of what could be spent, in a step that surely looks bad
HARM = -0.07  # a slope below this is worth labels
SHARP = 2.0  # power of the chance that it is
BLOCK = 10  # steps between two looks at who is champion
DUELS = 0.05  # of the bets, at least, once there is a champion
HEAVY = 0.1  # of a step's advantages above the weight's ceiling, at which it is raised
CUT_OFF = 0.02  # of them, at most, above a ceiling that was raised
FADE = 0.99  # per step, of a ceiling that was raised
CLOSING_STEPS = 8  # the last of a run whose length is known: what happens there no later label can tell
CLOSING_LABELS = 40  # of all of them, as far as labels were saved
BOOSTED = 10  # steps for which a warning raises the rate


@dataclass(frozen=True, slots=True)
class Bet:
    """u = weight * (g(up) - g(down)), in [-1, 1]; below 0 is harm.

    "slope": two answers to one prompt, `up` drawn in proportion to what the reward reinforces and `down` to what it
    suppresses; the mean of u is then twice the covariance of gold with the standardised reward. "duel": an answer of
    now against one of the champion's, an earlier stretch of the run, to the same prompt.
    """

    purpose: str  # "slope" or "duel"
    up: Row
    down: Row
    weight: float
    chance: float  # that this group was chosen, for the record
    slice: str = ""  # the environment of its prompt, as readings name it


def is_closing(step: int, steps: int | None) -> bool:
    """Whether the run, of which this is the so many-th step, is about to end.

    >>> is_closing(92, 100), is_closing(93, 100), is_closing(101, 100), is_closing(5, None)
    (False, True, False, False)
    """
    return steps is not None and steps - CLOSING_STEPS < step <= steps


class Sampler:
    """Spends a share of all rollouts on labels, two a bet, and never more than has accrued (plus a small advance).

    The rate follows the belief about the slope of gold, learnt from the labels of earlier steps: about a quarter
    of the even rate while the slope is surely positive, most of what was saved when it looks negative. Warnings raise
    it too (`boost`). Groups whose rewards are all equal cannot say anything about the slope and cost nothing; their
    share moves labels to duels, which still see something after a collapse. `floor` is the part of the even rate that
    is spent at every step: 1 spreads the labels evenly, which alarms later and forecasts better.

    >>> sampler = Sampler(share=1.0, floor=1.0)
    >>> advantage, starts = np.array([1.0, -1.0, 0.0, 0.0]), np.array([0, 2, 4])
    >>> for step in range(2):
    ...     bets = sampler.draw(0, step, advantage, starts, ["p", "q"], np.random.default_rng(0))
    >>> [(bet.purpose, bet.up, bet.down, bet.weight) for bet in bets]
    [('slope', (0, 1, 0), (0, 1, 1), 1.0)]
    """

    def __init__(
        self, share: float = 0.02, steps: int | None = None, recall: Recall | None = None, floor: float = FLOOR
    ) -> None:
        self.share, self.steps, self.recall, self.floor = share, steps, recall, floor
        wander = 0.25 / sqrt(steps) if steps else 0.02
        self._slope = LocalLevel(wander)
        # Few duels are fought: a belief that fades as fast as the slope's would always be half suspicious.
        self._duel = LocalLevel(wander / 3.0, centre=0.05, variance=0.01)
        self._rows = 0  # rollouts seen
        self._labels_drawn = 0  # labels asked for
        self._steps = 0
        self._carry = 0.0  # parts of bets, kept so that a low rate is still a rate
        self._live = 1.0  # share of groups with spread, of late
        # Of a large group's mean |advantage|; 0 before the first step, which is therefore not audited.
        self._scale = 0.0
        self._raised = 0.0  # what takes its place where a few advantages are much larger than all others
        self._boost = 0
        self._block: list[tuple[int, int]] = []  # steps since the last look at who is champion
        self._champion: list[tuple[int, int]] = []
        self._block_sum = 0.0
        self._stored: dict[tuple[int, int], tuple[Ints, Sequence[object]]] = {}
        self._spans: dict[object, list[Span]] = {}

    def draw(
        self,
        attempt: int,
        step: int,
        advantage: Floats,
        starts: Ints,
        prompts: Sequence[object],
        rng: np.random.Generator,
    ) -> list[Bet]:
        """The bets of a step. Uses earlier steps to decide how many, and chance to decide which.

        `advantage`: what the optimiser multiplies each answer's gradient with, up to a constant; NaN = not scored.
        """
        groups = len(starts) - 1
        self._rows += len(advantage)
        self._steps += 1
        self._slope.forecast()
        self._duel.forecast()
        centred, size, live = _centre_advantages(advantage, starts)
        count, most = self._affordable(len(advantage)) if self._scale else (0, 0)
        index = self._index()
        count = min(count, groups)  # every bet has a group of its own
        # On the same prompt only: other prompts may be worth less although the policy is not.
        returning = [prompt in index for prompt in prompts]
        duels = min(int(count * self._duel_share() + rng.random()), count, sum(returning)) if index else 0
        # More groups than bets, because dead ones cost nothing; the choice stays blind to this step's rewards. Not more
        # than could be paid for if all of them are alive.
        slope_groups = min(int(np.ceil((count - duels) / max(self._live, 0.05))), most - duels, groups - duels)
        order = rng.permutation(groups)
        ceiling = max(self._scale, self._raised)
        bets = []
        for k in order[:slope_groups][live[order[:slope_groups]]]:
            weight = min(float(size[k]) / ceiling, 1.0)
            up, down = ((attempt, step, int(starts[k]) + row) for row in _pair(centred[starts[k] : starts[k + 1]], rng))
            bets.append(Bet("slope", up, down, weight, slope_groups / groups))
        # Other groups than the slope's: what one table saw of a step must not tell the next what it will see.
        for k in [k for k in order[slope_groups:].tolist() if returning[k]][:duels]:
            spans = index[prompts[k]]
            # Scored or not, as among the champion's: answers of one kind against all of another would not be fair.
            now = (attempt, step, int(rng.integers(starts[k], starts[k + 1])))
            then, at, first, end = spans[int(rng.integers(len(spans)))]
            bets.append(Bet("duel", now, (then, at, int(rng.integers(first, end))), 1.0, duels / groups))
        self._labels_drawn += 2 * len(bets)
        self._learn_geometry(live, size)
        self._boost = max(self._boost - 1, 0)
        self._remember(attempt, step, starts, prompts)
        return bets

    def close(self, slopes: Sequence[float], duels: Sequence[float]) -> None:
        """The u of a step, in the logged order; called in the order steps were closed."""
        self._slope.learn(slopes)
        self._duel.learn(duels)
        self._block_sum += float(np.sum(slopes))

    def spend(self, labels: int) -> None:
        """So many labels were asked for by others from the same share."""
        self._labels_drawn += labels

    def boost(self) -> None:
        """A warning was raised: look more closely for some steps."""
        self._boost = BOOSTED

    def rewind(self, attempt: int, step: int) -> None:
        """A new attempt begins at this step: what came after it is no champion of this lineage."""
        self._block, self._block_sum = [], 0.0
        self._champion = [key for key in self._champion if key[1] < step]
        self._spans = {}

    def _affordable(self, rows: int) -> tuple[int, int]:
        """How many bets this step makes, and how many it could at most."""
        even = self.share * rows / 2.0
        accrued = self.share * self._rows / 2.0
        if self.steps:
            total = even * self.steps
            remaining = total - self._labels_drawn / 2.0 - self.floor * even * max(self.steps - self._steps, 0)
            free = min(accrued + ADVANCE * total - self._labels_drawn / 2.0, remaining)
        else:
            free = accrued + UNPLANNED * even - self._labels_drawn / 2.0
        alarm = max(self._slope.below(HARM), self._duel.below(HARM)) ** SHARP
        want = self.floor * even + max(alarm, 0.5 if self._boost else 0.0) * SPEND * max(free - self.floor * even, 0.0)
        if is_closing(self._steps, self.steps):
            want = max(want, CLOSING_LABELS / 2.0 / CLOSING_STEPS)
        self._carry += min(want, max(free, self.floor * even))
        count = int(self._carry)
        self._carry -= count
        return count, max(count, int(free))

    def _duel_share(self) -> float:
        return float(max(DUELS, 1.0 - self._live, self._duel.below(HARM) ** SHARP / 2.0))

    def _learn_geometry(self, live: NDArray[np.bool_], size: Floats) -> None:
        """For the next step: how many groups say nothing, and what a large advantage is."""
        if not live.size:
            return
        self._live += 0.3 * (float(live.mean()) - self._live)
        if live.any():
            large = float(np.sort(size[live])[int(0.95 * (live.sum() - 1))])
            self._scale += 0.1 * (large - self._scale) if self._scale else large
            self._raised *= FADE
            if _part_above(size[live], max(self._scale, self._raised)) > HEAVY:
                # Cut off, a few large advantages that are good would weigh less than many small ones that are bad.
                levels = np.sort(size[live]).tolist()
                self._raised = next(level for level in levels if _part_above(size[live], level) <= CUT_OFF)

    def _remember(self, attempt: int, step: int, starts: Ints, prompts: Sequence[object]) -> None:
        """Keep a block's steps; at its end it is champion if its slope was positive, or if there is none yet."""
        self._stored[attempt, step] = (starts, prompts)
        self._block.append((attempt, step))
        if len(self._block) >= BLOCK:
            if not self._champion or self._block_sum > 0:
                self._champion, self._spans = self._block, {}
            self._block, self._block_sum = [], 0.0
            self._stored = {key: value for key, value in self._stored.items() if key in self._champion}

    def _index(self) -> dict[object, list[Span]]:
        """Where the champion's answers to each prompt lie; empty without a champion."""
        if self._champion and not self._spans:
            for attempt, step in self._champion:
                groups = self._stored.get((attempt, step)) or (self.recall(attempt, step) if self.recall else None)
                if groups is None:
                    continue  # deleted since: the rest of the block stands for it
                starts, prompts = groups
                for prompt, first, end in zip(prompts, starts[:-1].tolist(), starts[1:].tolist(), strict=True):
                    self._spans.setdefault(prompt, []).append((attempt, step, first, end))
        return self._spans

    def state(self) -> dict[str, Any]:
        """Everything remembered, for the journal."""
        return {
            "slope": asdict(self._slope),
            "duel": asdict(self._duel),
            "boost": self._boost,
            "numbers": [
                self._rows,
                self._labels_drawn,
                self._steps,
                self._carry,
                self._live,
                self._scale,
                self._block_sum,
            ],
            "block": self._block,
            "champion": self._champion,
            "raised": self._raised,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """As it was when `state` was taken. Prompts of stored steps are recalled when they are needed."""
        self._slope, self._duel = LocalLevel(**state["slope"]), LocalLevel(**state["duel"])
        self._rows, self._labels_drawn, self._steps, self._carry, self._live, self._scale, self._block_sum = state[
            "numbers"
        ]
        self._boost, self._raised = state["boost"], state.get("raised", 0.0)
        self._block = [(attempt, step) for attempt, step in state["block"]]
        self._champion = [(attempt, step) for attempt, step in state["champion"]]
        self._spans = {}


def _part_above(sizes: Floats, ceiling: float) -> float:
    """The part of all advantages of a step that lies above a ceiling of a group's size."""
    return float(np.maximum(sizes - ceiling, 0.0).sum() / sizes.sum())


def _centre_advantages(advantage: Floats, starts: Ints) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Advantages that sum to zero in each group; their mean size by group; and which groups have any.

    Whatever a trainer clips or adds, mean gold leaks in where they do not sum to zero.
    """
    sums, counts = group_sums(advantage, starts)
    centred = advantage - np.repeat(sums / np.maximum(counts, 1), np.diff(starts))
    # Whatever is not finite is no score: as a large number it would leave a sum that is not zero.
    centred = np.where(np.isfinite(centred), centred, 0.0)
    size = group_sums(np.abs(centred), starts)[0] / np.maximum(counts, 1)
    largest = group_sums(np.abs(advantage), starts)[0] / np.maximum(counts, 1)
    return centred, size, (counts > 1) & (size > 1e-9 * (1e-9 + largest)) & np.isfinite(size)


def _pair(centred: Floats, rng: np.random.Generator) -> tuple[int, int]:
    """One answer in proportion to how much it is reinforced, one to how much it is suppressed."""
    picks = []
    for side in (centred.clip(0.0), -centred.clip(None, 0.0)):
        sums = np.cumsum(side)
        picks.append(min(int(np.searchsorted(sums, rng.random() * sums[-1], side="right")), len(side) - 1))
    return picks[0], picks[1]
