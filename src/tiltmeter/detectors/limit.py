"""Warns when the mean of a share has been above its limit, and not by chance."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import exp, log

from tiltmeter.data.records import Alarm, Reading, Tier
from tiltmeter.stats.betting import alpha_share
from tiltmeter.stats.sequential import SequentialTest


@dataclass
class Limit:
    """A warning that a reading in [0, 1] exceeds `limit` on average.

    Promise: if, given the past, the expected reading is at most `limit` at every step, the chance that a lineage of any
    length ever warns is at most `alpha`; a rewind starts a lineage, whose folds see its own history only. Assumes
    nothing else about the readings: they may drift, jump and depend on each other below the limit. Void if readings
    leave [0, 1]. It says nothing about reward hacking: a warning names a condition that often has an innocent cause,
    which is why it is not an alarm. One quiet block resolves it.

    >>> limit = Limit("reward.dead_share", 0.5)
    >>> steps = [Reading(0, t, "reward.dead_share", 0.2 if t < 50 else 0.9, 64) for t in range(99)]
    >>> raised = next(alarm for alarm in map(limit.update, steps) if alarm)
    >>> raised.onset, raised.step < 80, raised.tier
    (50, True, 'warning')
    """

    reading: str
    limit: float
    alpha: float = 0.05
    block: int = 20  # steps between instalments of the bet
    tier: Tier = field(default="warning", init=False)
    watches: tuple[str, ...] = field(init=False, repr=False)
    name: str = field(default="limit", init=False, repr=False)
    _open: Alarm | None = field(default=None, init=False, repr=False)
    _arming: int = field(default=1, init=False, repr=False)
    _quiet: int = field(default=0, init=False, repr=False)
    _bets: SequentialTest = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0.0 < self.limit < 1.0:
            raise ValueError("a limit lies between 0 and 1")
        self.watches = (self.reading,)
        self._bets = SequentialTest(self.block)

    def update(self, reading: Reading) -> Alarm | None:
        # Scaled so that u is at most 1, which keeps wealth above zero; negative means above the limit.
        u = (self.limit - min(max(reading.value, 0.0), 1.0)) / self.limit
        if self._open is not None:
            return self._resolve(reading, u)
        self._bets.place(reading.step, (u,))
        threshold = log(1.0 / alpha_share(self.alpha, self._arming))
        if self._bets.evidence < threshold:
            return None
        onset, low, high = self._bets.onset_interval()
        self._quiet = 0
        self._open = Alarm(
            attempt=reading.attempt,
            name=self.reading,
            detector=self.name,
            tier=self.tier,
            direction="up",
            step=reading.step,
            data_step=reading.step,
            onset=onset,
            onset_low=low,
            onset_high=high,
            evidence=self._bets.evidence,
            threshold=threshold,
            summary=f"{self.reading} is above {self.limit:g} on average since step {onset} "
            f"(odds {exp(min(self._bets.evidence, 50.0)):.0f} to 1 against chance)",
        )
        return self._open

    def _resolve(self, reading: Reading, u: float) -> Alarm | None:
        assert self._open is not None
        self._quiet = self._quiet + 1 if u >= 0 else 0
        if self._quiet < self.block:
            return None
        resolved = replace(self._open, resolved=reading.step)
        self._open = None
        self._arming += 1
        self._bets = SequentialTest(self.block)
        return resolved
