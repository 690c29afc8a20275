"""The alarm: the reward's own advantages push gold down, with a proved bound on ever crying wolf."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import exp, log

import numpy as np

from tiltmeter.records import Alarm, Reading, Tier
from tiltmeter.stats.betting import bet, evidence, opened, restarted, share_of
from tiltmeter.stats.changepoint import turn


@dataclass
class Ledger:
    """Bets against "the slope of gold along the reward is not negative", one factor per audited group.

    Promise: while E[u | past] >= 0 at every step, the chance of any alarm in the run, over all attempts and however
    often it is looked at, is at most `alpha`. u are the values of `gold.slope`, in the order they were logged. Void if
    gold is the reward itself (then it can never fire), if labels are chosen after they are seen, or if gold leaves
    [0, 1]. The claim is about the gold source, not about people. Observations of abandoned attempts stay in: a rewind
    does not give a second chance. An alarm resolves when the run is rolled back to its onset or before; re-arming then
    spends the next part of `alpha`.

    >>> ledger = Ledger()
    >>> steps = [Reading(0, t, "gold.slope", u, 8, None, (u,) * 8) for t, u in enumerate([0.3] * 40 + [-0.3] * 40)]
    >>> raised = next(alarm for alarm in map(ledger.update, steps) if alarm)
    >>> raised.tier, raised.onset, raised.step < 55
    ('alarm', 40, True)
    """

    alpha: float = 0.01
    block: int = 20  # steps between instalments of the bet
    name: str = field(default="ledger", init=False, repr=False)
    tier: Tier = field(default="alarm", init=False)
    watches: tuple[str, ...] = field(default=("gold.slope",), init=False, repr=False)
    _open: Alarm | None = field(default=None, init=False, repr=False)
    _arming: int = field(default=1, init=False, repr=False)

    def __post_init__(self) -> None:
        self._arm()

    @property
    def least(self) -> int:
        """The fewest audited groups that could raise a first alarm, each as bad as it can be."""
        wealth, count = restarted(opened(), 1), 0
        while evidence(wealth) < log(1.0 / share_of(self.alpha, 1)):
            wealth, count = bet(wealth, (-1.0,)), count + 1
        return count

    def _arm(self) -> None:
        self._wealth = opened()
        self._count = 0
        self._steps: list[int] = []
        self._us: list[float] = []

    def update(self, reading: Reading) -> Alarm | None:
        if self._open is not None:
            if reading.attempt == self._open.attempt or reading.step > self._open.onset:
                return None
            resolved = replace(self._open, resolved=reading.step)
            self._open = None
            self._arming += 1
            self._arm()
            self._bet(reading)
            return resolved
        self._bet(reading)
        threshold = log(1.0 / share_of(self.alpha, self._arming))
        strength = float(evidence(self._wealth))
        if strength < threshold:
            return None
        onset, low, high = (min(self._steps[i], reading.step) for i in turn(np.array(self._us)))
        self._open = Alarm(
            attempt=reading.attempt,
            name=reading.name,
            detector=self.name,
            tier=self.tier,
            direction="down",
            step=reading.step,
            data_step=reading.step,
            onset=onset,
            onset_low=low,
            onset_high=max(high, onset),
            evidence=strength,
            threshold=threshold,
            summary=f"the reward pushes gold down since about step {onset} "
            f"(odds {exp(min(strength, 50.0)):.0f} to 1; a healthy run alarms with chance at most {self.alpha:g})",
        )
        return self._open

    def _bet(self, reading: Reading) -> None:
        if self._count % self.block == 0:
            self._wealth = restarted(self._wealth, 1 + self._count // self.block)
        self._count += 1
        self._steps.append(reading.step)
        self._us.append(reading.value)
        self._wealth = bet(self._wealth, reading.values)
