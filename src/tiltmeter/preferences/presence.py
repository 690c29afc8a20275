"""Things an answer has or has not, and how often having them won: one test for phrases and for form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tiltmeter.preferences.decided import Decided, Floats, Ints
from tiltmeter.stats.intervals import student
from tiltmeter.stats.logistic import chances, fit_logistic
from tiltmeter.stats.paired import fewest_pairs, p_value, shift, tails

# Fixed before anything was measured: "clear" means that this would have been found, with this chance.
COMMON = 0.2  # of prompts have a comparison that the thing tells apart
WINS = 0.75  # of these are won by it
POWER = 0.8
TOO_FEW = "there are too few comparisons to have found one that tells 1 in 5 apart and wins 3 in 4 of them."
MANY = 400  # comparisons told apart, from which power is no question
NEAR = 2.0  # standard errors: what lies closer cannot be beyond doubt among several, and gets no exact p-value


@dataclass(frozen=True, eq=False)
class Presence:
    """Which comparisons a thing tells apart: `side` is 1 where only the first answer has it, -1 where only the second.

    Sorted by thing. Of each prompt only the first comparison that a thing tells apart counts: answers to one prompt are
    alike, and one answer often stands in several comparisons. Labels play no part in what is here.

    >>> both = Presence.of(np.array([0, 0, 1]), np.array([0, 1, 1]), np.array([1, 1, -1]), np.array([0, 0]), 2)
    >>> both.thing.tolist(), both.item.tolist(), both.counts.tolist()
    ([0, 1], [0, 1], [1, 1])
    """

    thing: Ints
    item: Ints
    side: Ints
    counts: Ints  # comparisons by thing

    @classmethod
    def of(cls, thing: Ints, item: Ints, side: Ints, prompt: Ints, things: int) -> Presence:
        order = np.lexsort((item, prompt[item], thing))
        thing, item, side = thing[order], item[order], side[order]
        kept = np.ones(len(thing), bool)
        kept[1:] = (thing[1:] != thing[:-1]) | (prompt[item[1:]] != prompt[item[:-1]])
        return cls(thing[kept], item[kept], side[kept], np.bincount(thing[kept], minlength=things))

    def where(self, thing: int) -> slice:
        low, high = np.searchsorted(self.thing, [thing, thing + 1])
        return slice(int(low), int(high))


class Weighed(NamedTuple):
    """What the labels say of each thing: wins of `counts`, expected wins, z, p (1 where not looked at); and how many
    were tested, of how many pairs at least."""

    wins: Ints
    expected: Floats
    z: Floats
    p: Floats
    tests: int
    fewest: int

    def passed(self, alpha: float) -> Ints:
        """Those beyond doubt, all together erring with chance `alpha`: Bonferroni over the tests made."""
        return np.flatnonzero(self.p <= alpha / max(self.tests, 1))


def weighed(some: Decided, has: Presence, alpha: float) -> Weighed:
    """Whether the answers that have each thing win more or less often than length, quality and order explain."""
    things = len(has.counts)
    odds = _explained(some, some.table())
    chance = chances(has.side * odds[has.item])
    won = (has.side > 0) == (some.won[has.item] == 1.0)
    wins = np.bincount(has.thing, weights=won, minlength=things).astype(np.int64)
    expected = np.bincount(has.thing, weights=chance, minlength=things).astype(np.float64)
    spread = np.sqrt(np.bincount(has.thing, weights=chance * (1.0 - chance), minlength=things))
    z = np.divide(wins - expected, spread, out=np.zeros(things), where=spread > 0.0)
    fewest = fewest_pairs(has.counts, alpha)
    able = has.counts >= fewest
    p = np.ones(things)
    for thing in np.flatnonzero(able & (np.abs(z) > NEAR)).tolist():
        p[thing] = p_value(chance[has.where(thing)], int(wins[thing]))
    return Weighed(wins, expected, z, p, int(able.sum()), fewest)


def effect(some: Decided, has: Presence, thing: int, alpha: float) -> tuple[float, float, float]:
    """Log-odds of winning that having it adds, what else is known held equal, with an interval at `alpha`.

    The wider of two: that of the exact test, which takes what the rest explains for known, and that of a joint fit by
    prompts, which does not but needs many pairs.
    """
    here = has.where(thing)
    item, side = has.item[here], has.side[here]
    column = np.zeros(len(some))
    column[item] = side
    rest = some.table()
    fit = fit_logistic(np.column_stack((column, rest)), some.won, clusters=some.prompt)
    joint = bool(np.isfinite(fit.coefficients).all()) and not fit.separated
    odds = rest @ fit.coefficients[1:] if joint else _explained(some, rest)
    wins = int(((side > 0) == (some.won[item] == 1.0)).sum())
    exact = shift(side * odds[item], wins, alpha)
    if not joint:
        return exact
    wide = student(max(fit.clusters - 1, 1), 1.0 - alpha) * float(fit.stderr[0])
    estimate = float(fit.coefficients[0])
    return estimate, min(exact.low, estimate - wide), max(exact.high, estimate + wide)


def _explained(some: Decided, rest: Floats) -> Floats:
    """Log-odds of the first answer from what is held equal; 0 where there is nothing to hold."""
    if not rest.shape[1]:
        return np.zeros(len(some))
    found = fit_logistic(rest, some.won).coefficients
    return rest @ found if np.isfinite(found).all() else np.zeros(len(some))


def powered(prompts: int, level: float) -> bool:
    """Whether a thing that is common and wins often would probably have been found by a test at `level`.

    >>> powered(1000, 1e-5), powered(100, 1e-5)
    (True, False)
    """
    n = min(int(COMMON * prompts), MANY)
    needed = next((wins for wins in range(n // 2, n + 1) if p_value(np.full(n, 0.5), wins) <= level), None)
    return needed is not None and tails(np.full(n, WINS), needed)[1] >= POWER
