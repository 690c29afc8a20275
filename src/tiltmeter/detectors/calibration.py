"""What warnings share whose level was measured on benign runs: that measurement, and how one is opened and resolved."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import resources
from math import inf
from typing import Any

from tiltmeter.data.records import Alarm, Direction, Reading, Tier

#: By key: the level, the share of benign runs that ever passed it, its upper bound, and on how many it was measured.
CALIBRATION: dict[str, dict[str, Any]] = json.loads(
    resources.files("tiltmeter.detectors").joinpath("calibration.json").read_text(encoding="utf-8")
)


def calibration_of(key: str) -> dict[str, Any]:
    """Level and rate, which `benchmarks/warning_rates.py` writes. What was not calibrated never warns.

    >>> calibration_of("policy.unheard up")
    {'level': inf}
    """
    entry = CALIBRATION.get(key, {"level": inf})
    return {name: entry[name] for name in ("level", "rate", "alpha", "runs") if name in entry}


class CalibratedWarning:
    """Compares a statistic with a level: above it an alarm is opened, one quiet block below it resolves the alarm.

    A base of dataclasses, which have these fields, each in the order in which its `repr` states them.
    """

    level: float
    rate: float
    alpha: float
    cause: str
    block: int
    tier: Tier
    name: str
    highest: float  # of the statistic so far: what calibration reads
    _open: Alarm | None
    _quiet: int

    def compare(self, reading: Reading, statistic: float, onset: int, direction: Direction, what: str) -> Alarm | None:
        """The alarm that this statistic opens or resolves; `what` is how its sentence begins."""
        self.highest = max(self.highest, statistic)
        if self._open is not None:
            return self._resolve(reading, statistic) if reading.name == self._open.name else None
        if statistic <= self.level:
            return None
        self._quiet = 0
        self._open = Alarm(
            attempt=reading.attempt,
            name=reading.name,
            detector=self.name,
            tier=self.tier,
            direction=direction,
            step=reading.step,
            data_step=reading.step,
            onset=onset,
            onset_low=onset,
            onset_high=reading.step,
            evidence=statistic,
            threshold=self.level,
            summary=f"{reading.name} {what}; usual innocent cause: {self.cause} ({self.rate:.1%} of benign runs do "
            f"this; at most {self.alpha:.1%})".replace("%", " %"),
        )
        return self._open

    def _resolve(self, reading: Reading, statistic: float) -> Alarm | None:
        assert self._open is not None
        self._quiet = self._quiet + 1 if statistic <= self.level else 0
        if self._quiet < self.block:
            return None
        resolved = replace(self._open, resolved=reading.step)
        self._open = None
        return resolved
