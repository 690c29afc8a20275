"""Whether gold stopped telling answers apart at one step while answers went on as before: a break of its source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum, isnan, sqrt
from statistics import fmean, stdev

from tiltmeter.stats.gold_counts import SAME, chance_of_none

CHANCE = 1e-6  # that gold differs in no group of so many where it differed before, at which it has stopped to
DIFFER = 0.2  # of the groups before, at least: a task that is nearly mastered stops by itself
STEPS = 8  # before, at least, to know how much steps scatter
LONGEST = 30  # steps after which nothing can be told from a slow change
SUDDEN, RARE, MOST = 10, 1e-9, 0.4  # steps, chance and share likewise, where the reward does not speak for the answers
ERRORS = 4.0  # standard errors by which nothing else may have changed
KEPT = 3.0  # and from which the reward still differs as much as gold's part in it says


@dataclass(frozen=True, slots=True)
class LabelledStep:
    """What is known of one step with labels: of its groups with two labels or more, and of all its answers."""

    step: int
    labels: int
    low: float
    high: float
    groups: int
    differ: int
    free: int
    gold_squares: float
    reward_squares: float
    products: float
    reward: float
    length: float  # NaN: not known


@dataclass(frozen=True, slots=True)
class GoldBreak:
    """The step at which gold stopped to differ; `constant`: the label that every answer has since, None: several."""

    step: int
    constant: float | None


def find_break(before: Sequence[LabelledStep], since: Sequence[LabelledStep]) -> GoldBreak | None:
    """Whether gold of the steps `since`, in none of whose groups it differs, broke. `before`: the steps before them.

    Four things must hold. Gold differed in so many groups before that chance does not explain that it does in none now
    (Fisher's exact test). It stopped suddenly. Reward and lengths are what they were on average, and the reward inside
    the groups. And the reward has to speak for the answers: it followed gold before, so it would differ less inside the
    groups if they were all alike now, and it does not; or gold still differs between prompts, and stopped at once. A
    policy that suddenly finds a hack, loses what it could or masters its task changes one of these.

    >>> sums = dict(free=112, gold_squares=27.0, reward_squares=37.0, products=27.0, reward=0.5)
    >>> step = lambda t, differ, high: LabelledStep(t, 128, 0.0, high, 16, differ, length=40.0 + t % 2, **sums)
    >>> before = [step(t, 15, 1.0) for t in range(20)]
    >>> find_break(before, [step(20, 0, 0.0)])
    GoldBreak(step=20, constant=0.0)
    >>> find_break([step(t, 15 - t // 2, 1.0) for t in range(30)], [step(30, 0, 0.0)]) is None
    True
    """
    groups, differ, here = (
        sum(at) for at in ([s.groups for s in before], [s.differ for s in before], [s.groups for s in since])
    )
    if len(before) < STEPS or not here or len(since) > LONGEST or differ < DIFFER * groups:
        return None
    chance = chance_of_none(here, groups, differ)
    if chance > CHANCE or not _is_steady(before, since):
        return None
    low, high = min(s.low for s in since), max(s.high for s in since)
    constant = low if high - low <= SAME else None
    is_sudden = len(since) <= SUDDEN and chance <= RARE and differ >= MOST * groups
    if not _reward_speaks(before, since) and (constant is not None or not is_sudden):
        return None
    return GoldBreak(since[0].step, constant)


def _is_steady(before: Sequence[LabelledStep], since: Sequence[LabelledStep]) -> bool:
    """Whether reward and length are what they were, as far as their scatter from step to step allows to say so."""
    for name in ("reward", "length"):
        was, now = ([getattr(s, name) for s in part] for part in (before, since))
        was, now = ([x for x in values if not isnan(x)] for values in (was, now))
        if len(was) < 2 or not now:
            continue
        error = max(stdev(was), 1e-3 * abs(fmean(was))) * sqrt(1.0 / len(was) + 1.0 / len(now))
        if abs(fmean(now) - fmean(was)) > ERRORS * error:
            return False
    (spread, error), (spread_now, error_now) = (_spread(part) for part in (before, since))
    return abs(spread_now - spread) <= ERRORS * sqrt(error**2 + error_now**2)


def _reward_speaks(before: Sequence[LabelledStep], since: Sequence[LabelledStep]) -> bool:
    """Whether the reward differs inside the groups by more than if gold were really the same for all answers."""
    free, golds, products = (fsum(getattr(s, name) for s in before) for name in ("free", "gold_squares", "products"))
    if golds <= 0.0 or products <= 0.0 or free <= 0.0:
        return False
    (spread, error), (spread_now, error_now) = (_spread(part) for part in (before, since))
    by_gold = products**2 / golds / free
    clearly = spread_now - (spread - by_gold) > KEPT * sqrt(error**2 + error_now**2)
    return clearly and spread_now > spread - 0.5 * by_gold


def _spread(steps: Sequence[LabelledStep]) -> tuple[float, float]:
    """The variance of the reward inside groups, and its standard error."""
    free = max(sum(s.free for s in steps), 1)
    variance = fsum(s.reward_squares for s in steps) / free
    error = variance * sqrt(2.0 / free)
    if len(steps) >= STEPS:
        off = fsum((s.reward_squares - variance * s.free) ** 2 for s in steps)
        error = max(error, sqrt(off) / free)
    return variance, error
