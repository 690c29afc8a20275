"""How fast the policy leaves the reference."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tiltmeter.data.records import Reading


@dataclass
class KlSpeed:
    """Change of the KL to the reference (`k3`) per step, in nats, over the last `window` steps that have one.

    A learning rate too high can show here before the level looks alarming. The steps after warm-up are fast in healthy
    runs too.

    Formula: (K_t - K_s) / (t - s), s the step `window` readings back
    Source: own

    >>> speed = KlSpeed(window=2)
    >>> [speed.fold(Reading(0, step, "policy.kl.k3", kl, 8)) for step, kl in enumerate([0.0, 1.0, 4.0])][-1].value
    2.0
    """

    window: int = 10
    name: str = field(default="policy.kl_speed", init=False)
    watches: tuple[str, ...] = field(default=("policy.kl.k3",), init=False)
    _past: list[Reading] = field(default_factory=list, init=False, repr=False)

    def fold(self, reading: Reading) -> Reading | None:
        self._past = [*self._past[-self.window :], reading]
        first = self._past[0]
        if len(self._past) <= self.window or first.step >= reading.step:
            return None
        slope = (reading.value - first.value) / (reading.step - first.step)
        return replace(reading, name=self.name, value=slope, n=len(self._past), stderr=None)
