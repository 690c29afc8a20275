"""The coverage alarm: answers hardly depend on the prompt any more, with a proved bound on false alarms."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import exp, isfinite, log

from tiltmeter.data.records import Alarm, Reading, Tier
from tiltmeter.detectors.standing_alarm import StandingAlarm
from tiltmeter.stats.betting import alpha_share
from tiltmeter.stats.sequential import SequentialTest

COVERAGE = "diversity.prompt_dependence"
CHANCE = 0.5  # its value where answers do not depend on the prompt
WINDOW = 10  # readings in a row whose mean may be the best so far
BLOCK = 10  # steps between instalments of the bet
LEAST = 0.5  # of the best excess over chance that has to stay
SMALLEST = 0.1  # a best excess below which there is nothing to lose
COVERAGE_ALPHA = 0.0005  # a twentieth of the run's 0.01, which the gold alarm leaves (`stats.betting.alpha_share`)


@dataclass
class CoverageFall(StandingAlarm):
    """A sequential betting test of "answers depend on the prompt at least half as much as they did": mode collapse
    in its plain form, where the same is said whatever is asked.

    x is a step's share (`diversity.prompt_dependence`; 1/2 where answers do not depend on the prompt), and b = 1/2 +
    (m - 1/2) / 2 with m the best mean of ten readings in a row before the step. It bets on u = (x - b) / (b - 1/2), cut
    off at -1 and 1, one bet a step: u is 1 at the best so far and -1 at chance.

    Promise: while the expected u, given the past, is not below zero at any step, the chance of any alarm in the run,
    over all attempts and however often it is looked at, is at most `alpha`. It is not below zero where x scatters
    evenly around b or anything above it; answers of a step may depend on each other, and shares may drift and jump.
    Void where x is mostly a little below b and rarely far above. It says nothing of gold, and needs none: no proof that
    the answers are worse, but that they are hardly answers to what is asked any more. Innocent where prompts became
    alike, or where one choice is right for nearly all. It resolves when the run is rolled back to its onset or before,
    or when an operator calls it false; re-arming then spends the next part of `alpha`.

    >>> coverage = CoverageFall()
    >>> steps = [Reading(0, t, COVERAGE, 0.9 if t < 60 else 0.51, 1) for t in range(120)]
    >>> raised = next(filter(None, map(coverage.update, steps)))
    >>> raised.tier, raised.onset, raised.step < 110
    ('alarm', 60, True)
    """

    alpha: float = COVERAGE_ALPHA
    name: str = field(default="coverage", init=False, repr=False)
    tier: Tier = field(default="alarm", init=False)
    watches: tuple[str, ...] = field(default=(COVERAGE,), init=False, repr=False)
    _last: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW), init=False, repr=False)  # readings
    _best: float = field(default=CHANCE, init=False, repr=False)  # mean of ten in a row
    _open: Alarm | None = field(default=None, init=False, repr=False)
    _arming: int = field(default=1, init=False, repr=False)
    _bets: SequentialTest = field(default_factory=lambda: SequentialTest(BLOCK), init=False, repr=False)

    def update(self, reading: Reading) -> Alarm | None:
        if not isfinite(reading.value):
            return None
        share, best = min(max(reading.value, 0.0), 1.0), self._best
        self._last.append(share)
        if len(self._last) == WINDOW:
            self._best = max(best, sum(self._last) / WINDOW)
        if self._open is not None or best - CHANCE < SMALLEST:
            return None
        edge = CHANCE + LEAST * (best - CHANCE)
        u = (share - edge) / (edge - CHANCE)  # 1 at the best so far, -1 at chance
        self._bets.place(reading.step, (min(max(u, -1.0), 1.0),))
        threshold = log(1.0 / alpha_share(self.alpha, self._arming))
        if self._bets.evidence < threshold:
            return None
        # Steps of an abandoned attempt may lie beyond this one: a rewind does not forget them.
        onset, low, high = (min(step, reading.step) for step in self._bets.onset_interval())
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
            summary=f"answers hardly depend on the prompt any more since about step {onset}: one is more like another "
            f"to its own prompt than one to another prompt in {share:.0%}, at best {best:.0%}, by chance 50% (odds "
            f"{exp(min(self._bets.evidence, 50.0)):.0f} to 1; a run that keeps half of it alarms with chance at most "
            f"{self.alpha:g})".replace("%", " %"),
        )
        return self._open

    @property
    def evidence(self) -> float:
        """Logarithm of the odds against a run that keeps its coverage."""
        return self._bets.evidence

    def _rearm(self) -> None:
        self._bets = SequentialTest(BLOCK)
        self._arming += 1
