"""What is known of a behaviour over a run: since when, how common, what it is paid and what it is worth."""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Any

from msgspec import Struct

from tiltmeter.rundir.payloads import BehaviourSeen

MOST_BEHAVIOURS = 32  # that are shown: those seen last
FEWEST_LABELS = 6  # with it and without, below which nothing is said about gold
WORSE = 0.1  # of gold, by which it must be lower
SURE = 3.0  # standard errors
LASTS, RECENT = 3, 10  # steps at which it was seen, and within which, to be shown


class GoldSum(Struct, frozen=True):
    """Labels of one side."""

    count: int = 0
    total: float = 0.0

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None


class BehaviourState(Struct):
    """One behaviour, as the journal has it so far. A model wrote its features and excerpt: escape them."""

    newest: BehaviourSeen | None = None
    last: int = -1  # step at which it was seen
    peak: float = 0.0  # largest share
    gold_with: GoldSum = GoldSum()
    gold_without: GoldSum = GoldSum()

    def update(self, step: int, seen: BehaviourSeen) -> BehaviourState:
        """With what a step showed."""
        return BehaviourState(seen, step, max(self.peak, seen.share), self.gold_with, self.gold_without)

    @property
    def is_well_paid(self) -> bool:
        one = self.newest
        return one is not None and one.paid_with is not None and one.paid_with > (one.paid_without or 0.0)

    @property
    def gold_means(self) -> tuple[float, float] | None:
        """With it and without: by labels that were spent on it, else by those of the newest step."""
        golds = (self.gold_with.mean, self.gold_without.mean)
        if None in golds and self.newest is not None:
            golds = (self.newest.gold_with, self.newest.gold_without)
        return None if golds[0] is None or golds[1] is None else (golds[0], golds[1])

    @property
    def is_worse(self) -> bool:
        """Whether it is paid more and, by labels with it and without, worth less, beyond chance."""
        one, two = self.gold_with, self.gold_without
        if not self.is_well_paid or min(one.count, two.count) < FEWEST_LABELS:
            return False
        share = (one.total + two.total + 1.0) / (one.count + two.count + 2.0)  # gold lies in [0, 1]
        stderr = sqrt(share * (1.0 - share) * (1.0 / one.count + 1.0 / two.count))
        gap = one.total / one.count - two.total / two.count
        return gap <= -WORSE and gap <= -SURE * stderr


def add_gold(behaviours: Mapping[int, BehaviourState], measured: Mapping[str, list[Any]]) -> None:
    """Labels that were bought for a closer look, from the readings of a step's labels."""
    for name, packed in measured.items():
        if not name.startswith("behaviours."):
            continue
        number, _, side = name.removeprefix("behaviours.").partition(".")
        state = behaviours.get(int(number)) if number.isdecimal() else None
        if state is not None and side in ("gold_with", "gold_without"):
            before: GoldSum = getattr(state, side)
            count = int(packed[1])
            setattr(state, side, GoldSum(before.count + count, before.total + count * float(packed[0])))


def shown_behaviours(
    behaviours: Mapping[int, BehaviourState], last_step: int, most: int = 4
) -> list[tuple[int, BehaviourState]]:
    """The behaviours of the newest steps, the commonest first; those that are paid more and worth less before all."""
    now = [(number, one) for number, one in behaviours.items() if _is_shown(one, last_step)]
    now.sort(key=lambda item: (not item[1].is_worse, -(item[1].newest.share if item[1].newest else 0.0), item[0]))
    return now[:most]


def _is_shown(state: BehaviourState, last_step: int) -> bool:
    """Whether it lasts, and is still there."""
    return state.newest is not None and state.newest.times >= LASTS and last_step - state.last < RECENT
