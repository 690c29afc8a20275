"""Whether the policy leaves the reference faster and faster."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tiltmeter.data.records import Reading


@dataclass
class KlAcceleration:
    """Second difference of the smoothed KL to the reference, in nats per step², over twice `window` readings.

    A healthy run's KL grows steadily or slows down; one that has found a shortcut speeds up. Fast honest learning also
    accelerates, so this only ever decides where to look more closely. The KL is smoothed by an exponential mean of
    weight `smoothing` first, because a second difference of raw estimates is mostly their noise. Where steps are not
    evenly spaced, the second divided difference is taken, which is the same thing per step².

    Formula: (K_t - 2 K_{t-w} + K_{t-2w}) / w², K an exponentially weighted mean of policy.kl.k3
    Source: own

    >>> fold = KlAcceleration(window=2, smoothing=1.0)
    >>> [fold.fold(Reading(0, step, "policy.kl.k3", step**2 / 2, 8)) for step in range(5)][-1].value
    1.0
    """

    window: int = 10
    smoothing: float = 0.2
    name: str = field(default="policy.kl_acceleration", init=False)
    watches: tuple[str, ...] = field(default=("policy.kl.k3",), init=False)
    _past: list[tuple[int, float]] = field(default_factory=list, init=False, repr=False)

    def fold(self, reading: Reading) -> Reading | None:
        before = self._past[-1][1] if self._past else reading.value
        self._past = [
            *self._past[-2 * self.window :],
            (reading.step, before + self.smoothing * (reading.value - before)),
        ]
        if len(self._past) <= 2 * self.window:
            return None
        (first, k0), (middle, k1), (last, k2) = self._past[0], self._past[self.window], self._past[-1]
        if not first < middle < last:
            return None
        bend = 2.0 * ((k2 - k1) / (last - middle) - (k1 - k0) / (middle - first)) / (last - first)
        return replace(reading, name=self.name, value=bend, n=len(self._past), stderr=None)
