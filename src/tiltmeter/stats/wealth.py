"""The wealth of all betting tests of a run: one unit of money, bet on a test when it looks bad; wealth is evidence.

Each table bets that the mean of its u is below zero. A stake λ is multiplied by 1 - λu, whose conditional mean is at
most 1 while the table's null holds. At the start of a step some of the cash is laid on stakes of a table, or some of
what lies there is taken back, decided from the past alone. Cash plus everything on the tables is then a nonnegative
supermartingale from 1, so by Ville's inequality the chance that it ever reaches 1/α is at most α, over all tables and
all steps together. Little is lost while a run looks healthy, because cash is not at stake; and no α is split between
tables that may never be needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log, log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from tiltmeter.stats.local_level import LocalLevel

Floats = NDArray[np.float64]

STAKES = np.array([0.05, 0.1, 0.2, 0.3, 0.45, 0.65, 0.95])
EAGER = 0.2  # of the cash, laid per step on a table that is surely bad
LEAST = 0.001  # of the cash, laid per step on any table: a belief that is wrong must not keep all money back
BLUNT = 1.0  # times the stake that would grow fastest; above 1 expects means to fall further after a turn
BACK = 0.3  # of what lies on a table that surely looks well, taken back into the cash per step
WIDTH = 0.6  # of the spread over stakes around it, in logarithms
CLIP = 2.0  # standard errors of a step's mean, at which it is clipped where bets of a step are not independent
LEAST_NOISE = 0.1  # mean square of a bet, in that standard error: few skewed bets must not be clipped on one side
JUMP = 2.5  # standard errors between the means of neighbouring steps: one pair in eighty by chance
FEW_JUMPS = 2.0  # of late, that are no sign: a turn of the mean is one, a step that stands out two
FADE = 0.98  # per step, of jumps that were seen
COMPARED = 16  # pairs of neighbouring steps, before all bets of a step count
BLOCKS = 8  # bets of a step until then, at most: means of neighbours


@dataclass
class BetTable:
    """The money on one test's stakes, the belief that directs it, and the means of its steps."""

    belief: LocalLevel = field(default_factory=LocalLevel)
    wealth: Floats = field(default_factory=lambda: np.full(len(STAKES), -np.inf))  # logarithms
    steps: list[int] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    jumps: float = 0.0  # between neighbouring steps, of late
    compared: int = 0  # pairs of neighbouring steps
    last: tuple[float, int] = (0.0, 0)  # mean and number of bets of the last step that had any

    @property
    def is_uneven(self) -> bool:
        """Whether steps differ by more than their bets explain, again and again: as if each were of another task."""
        return self.jumps > FEW_JUMPS

    def form(self, count: int, shared: bool) -> tuple[int, float]:
        """As how many bets a step counts, and at what its mean is clipped: from the past alone.

        Bets that may share an effect of their step count as one, clipped on both sides: that is a fair bet whenever the
        effect is as often good as bad. Others all count, once enough steps were compared to see that they are alike.
        """
        if shared or self.is_uneven:
            return 1, min(CLIP * sqrt(max(self.belief.noise, LEAST_NOISE) / max(count, 1)), 1.0)
        return count if self.compared >= COMPARED else min(count, BLOCKS), 1.0

    def learn(self, us: Sequence[float]) -> None:
        """What the step showed."""
        self.belief.learn(us)
        if not len(us):
            return
        mean, (before, size) = float(np.mean(us)), self.last
        if size:
            error = sqrt(max(self.belief.noise, LEAST_NOISE / 2.0) * (1.0 / len(us) + 1.0 / size))
            self.jumps = FADE * self.jumps + (abs(mean - before) > JUMP * error)
            self.compared += 1
        self.last = mean, len(us)


@dataclass
class Wealth:
    """A running bet over several tables, one for each test, from one unit of money.

    Promise: while at every step the conditional mean of each table's u is not below zero, the chance that `evidence`
    ever reaches log(1/α) is at most α. Void if what is laid on a table depends on u that are still to be bet on.
    Source: own; bets as in Waudby-Smith & Ramdas 2010.09686, the proof in docs/alarms.md.

    >>> wealth = Wealth()
    >>> for step in range(60):
    ...     wealth.place("slope", step, [0.4, 0.2] if step < 40 else [-0.5, -0.7])
    >>> wealth.evidence > 5, wealth.cash < 1
    (True, True)
    """

    cash: float = 1.0
    tables: dict[str, BetTable] = field(default_factory=dict)

    def place(self, name: str, step: int, us: Sequence[float], *, shared: bool = False, top: float = 1.0) -> None:
        """Lay money on a table as its past advises, then bet on every u of the step; none exceeds `top`.

        `shared`: nothing rules out that something moves all u of a step together, so they count as one. `top` above 1:
        stakes are that much smaller, and no u is clipped. Rare u may then be large and the others balance them, so that
        clipping would move their mean.
        """
        values = np.asarray(us, np.float64)
        if not (np.isfinite(values) & (values <= top + 1e-9)).all():
            raise ValueError(f"a u above {top:g}, or one that is no number, voids the bound: gold lies in [0, 1]")
        table = self.tables.setdefault(name, BetTable())
        table.belief.forecast()
        bad = table.belief.below(-0.02)
        self._take_back(table, BACK * (1.0 - bad) ** 2)
        share = max(EAGER * bad**2, LEAST)
        count, clip = table.form(len(values), shared) if top == 1.0 else (len(values), top)
        size = clip * len(values) / max(count, 1)  # of the best stake, against that of a single bet
        table.wealth = np.logaddexp(table.wealth, _log(share * self.cash) + _spread(table.belief, size or 1.0))
        self.cash *= 1.0 - share
        if len(us):
            bets = _clipped(values, count, clip) if top == 1.0 else values / top
            table.wealth = table.wealth + np.log1p(-np.outer(bets, STAKES)).sum(0)
        table.learn(us)
        table.steps.append(step)
        table.means.append(float(np.mean(us)) if len(us) else 0.0)

    def _take_back(self, table: BetTable, part: float) -> None:
        """Return a part to the cash: bets on a healthy test lose it, and a long run would have nothing left."""
        log_money = _total(table.wealth)
        if np.isfinite(log_money):
            self.cash += part * exp(min(log_money, 700.0))
            table.wealth = table.wealth + log1p(-part)

    @property
    def evidence(self) -> float:
        """Logarithm of the cash and of everything on the tables."""
        logs = [_log(self.cash), *(_total(table.wealth) for table in self.tables.values())]
        return float(np.logaddexp.reduce(logs))

    def allocate(self, share: float) -> float:
        """Give a share of the cash to another test whose evidence starts at 1; the logarithm of what it is given."""
        amount = share * self.cash
        self.cash -= amount
        return _log(amount)

    def log_wealth(self, name: str) -> float:
        """Logarithm of what lies on a table; nothing where there is no such table."""
        return _total(self.tables[name].wealth) if name in self.tables else -np.inf

    @property
    def richest(self) -> str:
        """The table that holds most; empty while nothing was bet."""
        return max(self.tables, key=self.log_wealth, default="")


def _clipped(values: Floats, count: int, clip: float) -> Floats:
    """The bets of a step, or means of blocks of them, or their one mean in units of the clip."""
    if count < len(values):
        values = np.array([block.mean() for block in np.array_split(values, count)])
    return values if clip == 1.0 else np.clip(values / clip, -1.0, 1.0)


def _spread(belief: LocalLevel, size: float) -> Floats:
    """Logarithms of how a unit is spread over the stakes: around the one that grows fastest, as far as is known."""
    best = min(max(BLUNT * size * belief.depth() / belief.noise, STAKES[0]), STAKES[-1])
    weights = -((np.log(STAKES) - log(best)) ** 2) / (2.0 * WIDTH**2)
    return np.asarray(weights - np.logaddexp.reduce(weights), np.float64)


def _log(money: float) -> float:
    return log(money) if money > 0.0 else -np.inf


def _total(wealth: Floats) -> float:
    return float(np.logaddexp.reduce(wealth))
