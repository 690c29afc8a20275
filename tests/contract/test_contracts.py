"""Every built-in against its contract, found through the same tuples the product uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tiltmeter import derived, detectors, instruments
from tiltmeter.config import Config
from tiltmeter.detectors import Detector
from tiltmeter.detectors.ledger import Ledger
from tiltmeter.detectors.limit import Limit
from tiltmeter.instruments.gold_slope import GoldSlope
from tiltmeter.records import Reading
from tiltmeter.testing import check_derived, check_detector, check_instrument


def _title(part: Any) -> str:
    return repr(part()) if part in detectors.BUILTIN else part.__name__


@pytest.mark.parametrize("make", instruments.BUILTIN, ids=_title)
def test_instrument_keeps_its_contract(make: Callable[[], instruments.Instrument]) -> None:
    check_instrument(make)


@pytest.mark.parametrize("make", derived.BUILTIN, ids=_title)
def test_derived_reading_keeps_its_contract(make: Callable[[], derived.Derived]) -> None:
    check_derived(make)


@pytest.mark.parametrize("make", detectors.BUILTIN, ids=_title)
def test_detector_keeps_its_contract(make: Callable[[], Detector]) -> None:
    check_detector(make)


def test_every_part_is_named_once_and_watches_what_exists() -> None:
    config = Config.standard()
    names = [part.name for part in config.instruments] + [make().name for make in config.derived]
    assert len(names) == len(set(names))
    watched = {name for fold in config.derived for name in fold().watches}
    watched |= {name for detector in config.detectors for name in detector().watches}
    for name in watched:
        assert any(name == known or name.startswith(f"{known}.") for known in names), f"nothing measures {name}"


def _at_the_limit(rng: np.random.Generator, name: str = "reward.dead_share", limit: float = 0.5) -> Iterator[Reading]:
    """The hardest null: a mean exactly at the limit, in large jumps, 400 looks."""
    for step, value in enumerate(rng.random(400) < limit):
        yield Reading(0, step, name, float(value), 8)


def _no_slope(rng: np.random.Generator) -> Iterator[Reading]:
    """Slope exactly zero with heavy-tailed rewards and mostly good gold, computed by the instrument itself."""
    from tiltmeter.batches import from_columns
    from tiltmeter.panel import readings

    slope = GoldSlope()
    group = np.repeat(np.arange(8), 8)
    for step in range(150):
        reward = rng.lognormal(0.0, 1.5, 64)
        batch = from_columns(step, group, reward=reward, gold=(rng.random(64) < 0.9).astype(float))
        yield from readings(slope, batch, None)


def test_the_warning_keeps_its_promise_at_the_limit_itself() -> None:
    check_detector(lambda: Limit("reward.dead_share", 0.5, alpha=0.05), _at_the_limit, runs=400)


def test_the_alarm_keeps_its_promise_at_slope_zero() -> None:
    check_detector(lambda: Ledger(alpha=0.05), _no_slope, runs=200)


def test_a_promise_that_is_broken_is_noticed() -> None:
    """The same check must refute a detector whose threshold is that of a single look."""
    from tiltmeter.errors import ContractError

    def eager() -> Detector:
        detector = Limit("reward.dead_share", 0.5, alpha=0.05)
        detector._arming = -3  # spends more than alpha
        return detector

    with pytest.raises(ContractError, match="null runs"):
        check_detector(eager, _at_the_limit, runs=400)
