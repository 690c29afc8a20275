"""The warning of a steady fall: it comes on one, names how far, keeps silent on noise, and has a measured rate."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest

from tiltmeter import detectors
from tiltmeter.data.records import Alarm, Reading
from tiltmeter.detectors.calibration import CALIBRATION
from tiltmeter.detectors.decline import Decline, calibrated_decline
from tiltmeter.detectors.departure import Departure
from tiltmeter.monitor.parts import Config
from tiltmeter.testing import check_detector

NAME = "policy.entropy"


def series(values: Iterable[float], name: str = NAME) -> list[Reading]:
    return [Reading(0, step, name, float(value), 64) for step, value in enumerate(values)]


def raised(detector: Decline | Departure, readings: Iterable[Reading]) -> list[Alarm]:
    return [alarm for alarm in map(detector.update, readings) if alarm is not None]


def falling(steps: int, left: float, noise: float = 0.02, seed: int = 0) -> np.ndarray:
    """From 2 nats to a part of it, at one pace all the way."""
    return 2.0 * left ** (np.arange(steps) / steps) + noise * np.random.default_rng(seed).standard_normal(steps)


def built_in() -> Decline:
    (part,) = (part for part in (make() for make in detectors.BUILTIN) if isinstance(part, Decline))
    return part


def test_a_fall_at_one_pace_warns_where_a_change_of_pace_says_nothing() -> None:
    values = falling(200, left=0.15)
    (found,) = raised(built_in(), series(values))
    assert 100 < found.step < 200
    assert found.onset == 0
    assert not raised(Departure(NAME, "down", CALIBRATION[f"{NAME} down"]["level"]), series(values))


def test_it_says_how_far_since_when_and_how_often_healthy_runs_do_this() -> None:
    (found,) = raised(Decline((NAME,), 1.0, rate=0.068, alpha=0.12, cause="mastery"), series(falling(200, left=0.2)))
    assert "has fallen steadily since step 0, to 3" in found.summary
    assert "(6.8 % of benign runs do this; at most 12.0 %)" in found.summary
    assert "mastery" in found.summary


@pytest.mark.parametrize("left", [1.0, 0.5])
def test_no_fall_and_a_fall_to_half_are_no_warning(left: float) -> None:
    assert not raised(built_in(), series(falling(300, left)))


def test_a_fall_that_comes_back_is_not_steady() -> None:
    once = falling(60, left=0.2)
    assert not raised(built_in(), series(np.concatenate([once, once[::-1], once, once[::-1], once])[60:]))


def test_the_trainers_own_entropy_is_enough_and_both_are_one_warning() -> None:
    values = falling(200, left=0.1)
    assert raised(built_in(), series(values, "training.entropy"))
    both = zip(series(values), series(values, "training.entropy"), strict=True)
    assert len(raised(built_in(), [one for pair in both for one in pair])) == 1


def test_missing_negative_and_few_readings_never_warn() -> None:
    assert not raised(built_in(), series([math.nan] * 100))
    assert not raised(built_in(), series(-falling(200, left=0.1)))
    assert not raised(built_in(), series(falling(20, left=0.01)))


def test_a_warning_ends_when_entropy_is_back() -> None:
    values = np.concatenate([falling(100, left=0.1), np.full(300, 2.0)])
    opened, resolved = raised(built_in(), series(values))
    assert opened.resolved is None
    assert resolved.resolved is not None


def test_the_built_in_one_is_calibrated_and_part_of_the_configuration() -> None:
    part = built_in()
    assert part.key in CALIBRATION
    assert 0.0 <= part.rate <= part.alpha < 0.2
    assert part.runs >= 100
    assert repr(part) in {repr(make()) for make in Config.standard().detectors}
    assert not raised(calibrated_decline("policy.unheard", cause="nothing")(), series(falling(300, left=0.001)))


def test_the_contract_holds() -> None:
    check_detector(lambda: Decline((NAME, "training.entropy"), 1.0))
