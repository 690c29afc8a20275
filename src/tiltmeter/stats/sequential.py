"""One arming of a sequential test: what was bet so far, how strong the evidence is, and when the mean turned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tiltmeter.stats.betting import Floats, bet, evidence, opened, restarted
from tiltmeter.stats.changepoint import turn


@dataclass
class Bets:
    """A running bet that the mean of u is below zero, with fresh money every `block` steps.

    >>> bets = Bets(block=20)
    >>> for step in range(60):
    ...     bets.place(step, [0.4, 0.2] if step < 40 else [-0.5, -0.7])
    >>> bets.evidence > 5, bets.turned()
    (True, (40, 40, 40))
    """

    block: int
    _wealth: Floats = field(default_factory=opened, init=False, repr=False)
    _steps: list[int] = field(default_factory=list, init=False, repr=False)
    _means: list[float] = field(default_factory=list, init=False, repr=False)

    def place(self, step: int, us: Sequence[float]) -> None:
        """Bet on every u of a step; none exceeds 1."""
        if len(self._steps) % self.block == 0:
            self._wealth = restarted(self._wealth, 1 + len(self._steps) // self.block)
        self._wealth = bet(self._wealth, us)
        self._steps.append(step)
        self._means.append(float(np.mean(us)) if len(us) else 0.0)

    @property
    def evidence(self) -> float:
        """Reaching log(1/α), ever, has a chance of at most α while the mean of u is not below zero."""
        return float(evidence(self._wealth))

    def turned(self) -> tuple[int, int, int]:
        """The step at which the mean turned, and the ends of its interval; estimated apart from the bet."""
        onset, low, high = (self._steps[index] for index in turn(np.array(self._means)))
        return onset, low, high
