"""An alarm when a rule or code verifier mis-scores a canary, an answer with a known label. One is enough."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from tiltmeter.data.records import Alarm, Reading, Tier
from tiltmeter.detectors.standing_alarm import StandingAlarm

WORKER = "verifier.worker."
WORDS = {
    "verifier.wrong_paid_share": "a known-wrong answer was paid",
    "verifier.right_refused_share": "a known-right answer was refused",
}


@dataclass
class Canary(StandingAlarm):
    """An alarm at the first canary that a rule or code verifier mis-scores, naming the worker and the first step.

    Promise: none is raised while every canary is scored as it is labelled; chance has no part in it, so `alpha` is 0
    and nothing is taken from the gold alarm's. Void if a canary's own label is wrong, which is reported at the first
    call. It speaks of the verifier, not of gold: what was paid since the last canary that passed may be false.
    It resolves when the run is rolled back to its onset or before, or when an operator calls it false; then it is
    raised again only after that kind of canary has passed once. Judges are opinions and have a warning instead.

    >>> canary = Canary()
    >>> paid = [Reading(0, t, "verifier.wrong_paid_share", float(t == 7), 2) for t in range(9)]
    >>> raised = next(filter(None, map(canary.update, paid)))
    >>> raised.tier, raised.onset_low, raised.onset, raised.step
    ('alarm', 7, 7, 7)
    """

    fact: ClassVar[Literal[True]] = True
    alpha: float = field(default=0.0, init=False)
    name: str = field(default="canary", init=False, repr=False)
    tier: Tier = field(default="alarm", init=False)
    watches: tuple[str, ...] = field(default=(f"{WORKER}*", *WORDS), init=False, repr=False)
    _open: Alarm | None = field(default=None, init=False, repr=False)
    _passed: dict[str, tuple[int, int]] = field(default_factory=dict, init=False, repr=False)  # newest, by reading
    _waits: set[str] = field(default_factory=set, init=False, repr=False)  # for one that passes, before it may speak
    _failed: dict[str, tuple[int, int]] = field(default_factory=dict, init=False, repr=False)  # newest, by worker

    def update(self, reading: Reading) -> Alarm | None:
        at = (reading.attempt, reading.step)
        if reading.name.startswith(WORKER):
            if reading.value > 0.0:
                self._failed[reading.name.removeprefix(WORKER)] = at
            return None
        if not reading.value > 0.0:
            self._passed[reading.name] = at
            self._waits.discard(reading.name)
            return None
        if self._open is not None or reading.name in self._waits:
            return None
        before = self._passed.get(reading.name)
        low = before[1] + 1 if before is not None and before[1] < reading.step else reading.step
        self._open = Alarm(
            attempt=reading.attempt,
            name=reading.name,
            detector=self.name,
            tier=self.tier,
            direction="up",
            step=reading.step,
            data_step=reading.step,
            onset=reading.step,
            onset_low=low,
            onset_high=reading.step,
            evidence=float(round(reading.value * reading.n)),
            threshold=0.0,
            summary=f"{WORDS[reading.name]} in {self._where(at)}, first at step {reading.step} "
            f"({round(reading.value * reading.n)} of {reading.n} canaries); {_meaning(before is None, low, reading)}",
        )
        return self._open

    def dismiss(self, step: int) -> Alarm | None:
        """As any, and that kind of canary has to pass once before another is raised."""
        if self._open is not None:
            self._waits.add(self._open.name)
        return super().dismiss(step)

    def _where(self, at: tuple[int, int]) -> str:
        workers = [worker for worker, failed in self._failed.items() if failed == at]
        more = f" and {len(workers) - 3} more" if len(workers) > 3 else ""
        return f"worker {', '.join(workers[:3])}{more}" if workers else "an unknown worker"


def _meaning(first: bool, low: int, reading: Reading) -> str:
    if first:
        return "no canary has passed before: your canary or your verifier is wrong"
    return f"rewards since step {low} may be false: the verifier is broken or was tampered with"
