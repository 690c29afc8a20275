"""A sequential test by betting: its wealth, how strong the evidence is, and when the mean turned."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tiltmeter.stats.betting import Floats, add_instalment, bet, evidence, initial_wealth
from tiltmeter.stats.changepoint import change_point


@dataclass
class SequentialTest:
    """A running bet that the mean of u is below zero, with a new instalment every `block` steps.

    >>> bets = SequentialTest(block=20)
    >>> for step in range(60):
    ...     bets.place(step, [0.4, 0.2] if step < 40 else [-0.5, -0.7])
    >>> bets.evidence > 5, bets.onset_interval()
    (True, (40, 40, 40))
    """

    block: int
    _wealth: Floats = field(default_factory=initial_wealth, init=False, repr=False)
    _steps: array[int] = field(default_factory=lambda: array("q"), init=False, repr=False)
    _means: array[float] = field(default_factory=lambda: array("d"), init=False, repr=False)

    def place(self, step: int, us: Sequence[float]) -> None:
        """Bet on every u of a step; none exceeds 1."""
        if len(self._steps) % self.block == 0:
            self._wealth = add_instalment(self._wealth, 1 + len(self._steps) // self.block)
        self._wealth = bet(self._wealth, us)
        self._steps.append(step)
        self._means.append(float(np.mean(us)) if len(us) else 0.0)

    @property
    def evidence(self) -> float:
        """Reaching log(1/α), ever, has a chance of at most α while the mean of u is not below zero."""
        return float(evidence(self._wealth))

    def onset_interval(self) -> tuple[int, int, int]:
        """The step at which the mean turned, and the ends of its interval; estimated apart from the bet."""
        onset, low, high = (self._steps[index] for index in change_point(np.array(self._means)))
        return onset, low, high
