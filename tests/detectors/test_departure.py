"""The calibrated warning: it speaks of dynamics, not of levels, and says how often it is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from tiltmeter import detectors
from tiltmeter.data.records import Alarm, Reading
from tiltmeter.detectors.calibration import CALIBRATION
from tiltmeter.detectors.departure import Departure, calibrated_departure
from tiltmeter.monitor.parts import Config
from tiltmeter.testing import check_detector

NAME = "policy.entropy"


def series(values: Iterable[float], name: str = NAME) -> list[Reading]:
    return [Reading(0, step, name, float(value), 64) for step, value in enumerate(values)]


def raised(detector: Departure, readings: Iterable[Reading]) -> list[Alarm]:
    return [alarm for alarm in map(detector.update, readings) if alarm is not None]


def falling(steps: int, turn: int, pace: float = 0.02, seed: int = 0) -> np.ndarray:
    """A reading that drifts down slowly, and from `turn` on ten times as fast."""
    noise = 0.01 * np.random.default_rng(seed).standard_normal(steps)
    time = np.arange(steps)
    return np.asarray(3.0 - pace / 10 * time - 0.9 * pace * np.maximum(time - turn, 0) + noise)


def test_a_change_of_pace_is_seen_and_a_steady_drift_is_not() -> None:
    (found,) = raised(Departure(NAME, "down", 5.0), series(falling(200, turn=140)))
    assert 140 <= found.step < 160
    assert 130 <= found.onset <= found.step
    assert found.tier == "warning"
    assert not raised(Departure(NAME, "down", 5.0), series(falling(400, turn=400)))


def test_only_the_direction_asked_for_counts() -> None:
    values = falling(200, turn=140)
    assert not raised(Departure(NAME, "up", 5.0), series(values))
    assert raised(Departure(NAME, "up", 5.0), series(-values))


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_units_do_not_matter(factor: float) -> None:
    one, other = Departure(NAME, "down", math.inf), Departure(NAME, "down", math.inf)
    values = falling(200, turn=140)
    raised(one, series(values))
    raised(other, series(factor * values + 7.0 * factor))
    assert other.highest == pytest.approx(one.highest, rel=1e-6)


@pytest.mark.parametrize(
    "values",
    [
        np.ones(300),
        np.concatenate([np.zeros(30), np.arange(100.0)]),
        0.1 + 1e-17 * np.arange(200),
        np.full(300, 1e308) * np.resize([1.0, -1.0], 300),
        np.concatenate([np.tile([1.0, 2.0], 20), np.full(60, 1e308)]),
        np.random.default_rng(0).random(19),
    ],
    ids=["constant", "flat at first", "equal up to rounding", "huge", "suddenly huge", "too few"],
)
def test_no_series_divides_by_zero_or_overflows(values: np.ndarray) -> None:
    with np.errstate(all="raise"):
        for alarm in raised(Departure(NAME, "up", 5.0), series(values)):
            assert math.isfinite(alarm.evidence)
    if values.max() < 1e300:
        assert not raised(Departure(NAME, "up", 5.0), series(values))


def test_missing_readings_are_no_change() -> None:
    values = falling(200, turn=200)
    kept = [reading for reading in series(values) if reading.step % 7]
    holes = [replace(reading, value=math.nan) if reading.step % 7 == 0 else reading for reading in series(values)]
    one, other = Departure(NAME, "down", math.inf), Departure(NAME, "down", math.inf)
    raised(one, kept)
    raised(other, holes)
    assert one.highest == other.highest < 5.0


def test_one_quiet_block_resolves_it_and_it_may_come_again() -> None:
    first = falling(200, turn=150)
    still = first[-1] + 0.01 * np.random.default_rng(1).standard_normal(100)
    opened, resolved = raised(Departure(NAME, "down", 5.0), series(np.concatenate([first, still])))
    assert opened.resolved is None
    assert resolved == replace(opened, resolved=resolved.resolved)
    assert resolved.resolved is not None
    assert resolved.resolved >= opened.step + 20


def test_a_name_with_a_star_follows_each_reading_by_itself() -> None:
    rng = np.random.default_rng(0)
    steady = 0.5 + 0.02 * rng.standard_normal(200)
    taken = steady + np.where(np.arange(200) > 150, 0.3, 0.0)
    names = ("reward.spread_share.style", "reward.spread_share.quality")
    pairs = zip(series(taken, names[0]), series(1 - taken, names[1]), strict=True)
    found = raised(Departure("reward.spread_share.*", "up", 5.0), [one for pair in pairs for one in pair])
    assert [alarm.name for alarm in found if alarm.resolved is None] == [names[0]]


def test_the_summary_gives_the_rate_its_bound_and_an_innocent_cause() -> None:
    detector = Departure(NAME, "down", 5.0, rate=0.047, alpha=0.075, cause="a task that is mastered")
    (found,) = raised(detector, series(falling(200, turn=140)))
    assert "(4.7 % of benign runs do this; at most 7.5 %)" in found.summary
    assert "a task that is mastered" in found.summary
    assert NAME in found.summary


def test_settings_and_levels_are_part_of_the_configuration() -> None:
    standard = Config.standard()
    for setting in ({"level": 4.0}, {"alpha": 0.01}, {"rate": 0.01}, {"warmup": 30}, {"cause": "else"}):
        one = Departure(NAME, "down", 5.0)
        assert repr(replace(one, **setting)) != repr(one)
    fewer = tuple(make for make in standard.detectors if not isinstance(make(), Departure))
    assert replace(standard, detectors=fewer).digest != standard.digest


def test_the_contract_holds() -> None:
    check_detector(lambda: Departure(NAME, "down", 4.0))
    check_detector(lambda: Departure("reward.spread_share.*", "up", 4.0))


def test_a_warm_up_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 4"):
        Departure(NAME, "up", 5.0, warmup=1)


def test_every_built_in_warning_is_calibrated_and_every_level_is_used() -> None:
    built = [part for part in (make() for make in detectors.BUILTIN) if isinstance(part, Departure)]
    assert {part.key for part in built} == {key for key in CALIBRATION if "steadily" not in key}
    for part in built:
        assert 0.0 <= part.rate <= part.alpha < 0.2
        assert 2.0 < part.level < 30.0
        assert part.runs >= 20
        assert part.cause != "honest learning"


def test_a_reading_without_a_level_never_warns() -> None:
    assert not raised(
        calibrated_departure("policy.unheard", "up", "nothing")(), series(np.arange(300.0) ** 3, "policy.unheard")
    )


def test_healthy_noise_rarely_warns_at_the_level_of_a_built_in() -> None:
    """Under plain noise the levels, set on runs that move, are seldom reached: 300 looks each."""
    rng = np.random.default_rng(3)
    built = [part for part in (make() for make in detectors.BUILTIN) if isinstance(part, Departure)]
    noisy = [series(rng.standard_normal(300), built[0].reading) for _ in range(40)]
    lowest = min(built, key=lambda part: part.level)
    assert sum(bool(raised(replace(lowest, reading=built[0].reading), one)) for one in noisy) <= 6


def test_a_batch_too_small_for_the_rate_is_not_looked_at() -> None:
    def warned(n: int) -> bool:
        detector = Departure(NAME, "up", 4.0, fewest=256)
        values = [0.01 * (t % 3) + (0.2 * (t - 80) if t > 80 else 0.0) for t in range(120)]
        return any(detector.update(Reading(0, t, NAME, value, n)) for t, value in enumerate(values))

    assert warned(256)
    assert not warned(255)
