"""When an alarm about gold ends by itself: gold is back, and what raised the alarm is over; and when it must not."""

from __future__ import annotations

from collections.abc import Iterator
from math import log

import numpy as np

from tiltmeter.data.records import Alarm, Reading
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.stats.betting import alpha_share

PROMPTS, GROUPS, ANSWERS = 60, 16, 8


def prompts_of(step: int, gold: np.ndarray, keys: np.ndarray, attempt: int = 0) -> Reading:
    return Reading(
        attempt, step, "gold.prompts", float(gold.mean()), len(gold) * ANSWERS, None, tuple(gold.tolist()),
        keys=tuple(keys.tolist()),
    )  # fmt: skip


def level_readings(levels: list[float], seed: int = 0, first: int = 0) -> Iterator[Reading]:
    """Gold of returning prompts along a run."""
    rng = np.random.default_rng([3, seed, first])
    for step, level in enumerate(levels, first):
        keys = rng.permutation(PROMPTS)[:GROUPS]
        yield prompts_of(step, rng.binomial(ANSWERS, level, GROUPS) / ANSWERS, keys)


def slopes(us: list[float], first: int = 0, seed: int = 0) -> Iterator[Reading]:
    rng = np.random.default_rng([4, seed, first])
    for step, mean in enumerate(us, first):
        values = tuple(np.where(rng.random(8) < (1 - mean) / 2, -1.0, 1.0).tolist())
        yield Reading(0, step, "gold.slope", float(np.mean(values)), 8, None, values)


def ends(readings: Iterator[Reading] | list[Reading], test: GoldLossTest) -> list[Alarm]:
    return [alarm for alarm in map(test.update, readings) if alarm is not None]


def path(*parts: tuple[float, int]) -> list[float]:
    return [level for level, steps in parts for _ in range(steps)]


def test_a_dip_that_comes_back_ends_its_alarm_and_the_next_one_costs_more() -> None:
    test = GoldLossTest()
    raised, ended = ends(level_readings(path((0.6, 40), (0.4, 15), (0.7, 60))), test)
    assert raised.resolved is None
    assert ended.recovery_step == ended.resolved
    assert 55 < (ended.recovery_step or 0) < 100
    assert test.standing is None
    again = ends(level_readings(path((0.7, 30), (0.3, 40)), first=115), test)[0]
    assert again.step > 145
    assert again.threshold > log(1.0 / alpha_share(0.01, 2)) - 1e-9 > raised.threshold


def test_gold_that_stays_low_or_comes_back_in_part_ends_nothing() -> None:
    for after in (0.4, 0.48):
        for seed in range(3):
            alarms = ends(level_readings(path((0.6, 40), (0.4, 15), (after, 200)), seed), GoldLossTest())
            assert [alarm.resolved for alarm in alarms] == [None]


def test_easier_prompts_do_not_hide_that_the_old_ones_are_still_worse() -> None:
    rng, readings = np.random.default_rng(6), []
    for step in range(160):
        keys = rng.permutation(PROMPTS)[:GROUPS]
        chance = np.full(GROUPS, 0.6 if step < 40 else 0.4)
        if step >= 55:
            keys[3:], chance[3:] = rng.integers(1000, 10**6, GROUPS - 3), 0.95
        readings.append(prompts_of(step, rng.binomial(ANSWERS, chance) / ANSWERS, keys))
    assert [alarm.resolved for alarm in ends(readings, GoldLossTest())] == [None]


def test_prompts_that_lack_a_label_count_as_worth_nothing() -> None:
    """A gold function that fails on the bad answers: groups of which every answer is labelled look as good as ever."""
    rng, readings = np.random.default_rng(7), list(level_readings(path((0.6, 40), (0.3, 15))))
    for step in range(55, 200):
        keys = rng.permutation(PROMPTS)[: GROUPS // 2]
        readings.append(prompts_of(step, rng.binomial(ANSWERS, 0.75, GROUPS // 2) / ANSWERS, keys))
    assert [alarm.resolved for alarm in ends(readings, GoldLossTest())] == [None]


def slope_run(after: float, level: float = 0.6) -> list[Reading]:
    """Slopes that turn at step 40 with a level that never falls; at step 70 they turn again."""
    of_level = level_readings(path((0.6, 70), (level, 80)))
    return [
        one for pair in zip(slopes(path((0.3, 40), (-0.4, 30), (after, 80))), of_level, strict=True) for one in pair
    ]


def test_a_slope_alarm_does_not_end_while_the_reward_still_pushes_gold_down() -> None:
    alarms = ends(slope_run(-0.2), GoldLossTest())
    assert [(alarm.name, alarm.resolved) for alarm in alarms] == [("gold.slope", None)]
    alarms = ends(slope_run(0.0), GoldLossTest())
    assert [(alarm.name, alarm.resolved) for alarm in alarms] == [("gold.slope", None)]


def test_a_slope_alarm_ends_when_the_reward_points_to_gold_again_and_gold_is_there() -> None:
    alarms = ends(slope_run(0.4, level=0.7), GoldLossTest())
    assert [alarm.name for alarm in alarms] == ["gold.slope"] * 2
    assert alarms[1].recovery_step is not None
    alarms = ends(slope_run(0.4, level=0.45), GoldLossTest())
    assert [alarm.resolved for alarm in alarms] == [None]


def test_audited_pairs_alone_end_no_alarm() -> None:
    alarms = ends(slopes(path((0.3, 40), (-0.5, 30), (0.5, 200))), GoldLossTest())
    assert [alarm.resolved for alarm in alarms] == [None]


def test_slopes_whose_labels_did_not_come_count_against_the_run() -> None:
    readings = []
    for one in slope_run(0.9, level=0.7):
        is_unknown = one.name == "gold.slope" and one.step >= 70
        readings.append(Reading(0, one.step, one.name, 1.0, 2, None, (1.0,) * 8) if is_unknown else one)
    assert [alarm.resolved for alarm in ends(readings, GoldLossTest())] == [None]


def test_an_evaluation_that_is_back_at_its_best_ends_its_alarm() -> None:
    for last, is_back in ((0.66, True), (0.5, False)):
        levels = path((0.6, 4), (0.4, 4), (last, 8))
        readings = [Reading(0, 20 * k, "eval.math", value, 4000) for k, value in enumerate(levels)]
        alarms = ends(readings, GoldLossTest())
        assert [alarm.recovery_step is not None for alarm in alarms] == [False, True][: 1 + is_back]


def test_an_evaluation_of_the_same_items_ends_its_alarm_too() -> None:
    rng, readings = np.random.default_rng(8), []
    chance = rng.uniform(0.2, 1.0, 200)
    for k, lost in enumerate(path((0.0, 3), (0.2, 3), (0.0, 6))):
        gold = rng.binomial(4, np.clip(chance - lost, 0.0, 1.0)) / 4
        readings.append(Reading(0, 20 * k, "eval.items", float(gold.mean()), 800, None, tuple(gold.tolist())))
    raised, ended = ends(readings, GoldLossTest())
    assert (raised.resolved, ended.recovery_step) == (None, ended.resolved)
    assert [alarm.resolved for alarm in ends(readings[:6] * 1, GoldLossTest())] == [None]


def test_a_rewind_that_leaves_the_alarm_open_takes_back_what_spoke_for_its_end() -> None:
    levels = list(level_readings(path((0.6, 40), (0.4, 15), (0.7, 60))))
    step = ends(levels, GoldLossTest())[1].resolved
    assert step is not None
    for attempt in (0, 1):
        test = GoldLossTest()
        assert len(ends(levels[:step], test)) == 1
        assert attempt == 0 or test.rewind(1, step) is None
        good = prompts_of(step, np.full(GROUPS, 0.75), np.arange(GROUPS), attempt)
        assert (test.update(good) is None) == (attempt == 1)
