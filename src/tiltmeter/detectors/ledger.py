"""The alarm: the reward's own advantages push gold down, with a proved bound on ever crying wolf."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import exp, log

from tiltmeter.records import Alarm, Reading, Tier
from tiltmeter.stats.betting import share_of
from tiltmeter.stats.sequential import Bets


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
    _bets: Bets = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._bets = Bets(self.block)

    @property
    def least(self) -> int:
        """The fewest audited groups that could raise a first alarm, each as bad as it can be."""
        worst, count = Bets(self.block), 0
        while not count or worst.evidence < log(1.0 / share_of(self.alpha, 1)):
            worst, count = Bets(self.block), count + 1
            worst.place(0, (-1.0,) * count)
        return count

    def rewind(self, attempt: int, step: int) -> Alarm | None:
        """A new attempt begins at this step: an open alarm whose onset lies there or later is resolved."""
        if self._open is None or attempt == self._open.attempt or step > self._open.onset:
            return None
        resolved = replace(self._open, resolved=step)
        self._open = None
        self._arming += 1
        self._bets = Bets(self.block)
        return resolved

    def update(self, reading: Reading) -> Alarm | None:
        if self._open is not None:
            return None
        self._bets.place(reading.step, reading.values)
        threshold = log(1.0 / share_of(self.alpha, self._arming))
        if self._bets.evidence < threshold:
            return None
        # Steps of an abandoned attempt may lie beyond this one: a rewind does not forget them.
        onset, low, high = (min(step, reading.step) for step in self._bets.turned())
        self._open = Alarm(
            attempt=reading.attempt,
            name=reading.name,
            detector=self.name,
            tier=self.tier,
            direction="down",
            step=reading.step,
            data_step=reading.step,
            onset=onset,
            onset_low=min(low, onset),
            onset_high=max(high, onset),
            evidence=self._bets.evidence,
            threshold=threshold,
            summary=f"the reward pushes gold down since about step {onset} "
            f"(odds {exp(min(self._bets.evidence, 50.0)):.0f} to 1; "
            f"a healthy run alarms with chance at most {self.alpha:g})",
        )
        return self._open
