"""Derived readings fold readings over steps, one file each. They are replayed like detectors and know no files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tiltmeter.data.records import Reading
from tiltmeter.detectors.kl_acceleration import KlAcceleration
from tiltmeter.detectors.kl_root import KlRoot
from tiltmeter.detectors.kl_speed import KlSpeed
from tiltmeter.detectors.ma_trend import GoldMaTrend


class Derived(Protocol):
    """`fold` sees every reading it watches, in step order, and may answer with one of its own for the same step."""

    name: str
    watches: tuple[str, ...]

    def fold(self, reading: Reading) -> Reading | None: ...


DERIVED: tuple[Callable[[], Derived], ...] = (KlRoot, KlSpeed, KlAcceleration, GoldMaTrend)
