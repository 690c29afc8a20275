"""Gold of prompts that are new at each step: a lower level warns, and only what compares answers to a prompt alarms."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.records import Alarm, Reading
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.detectors.new_prompts import NewPromptsFall

GROUPS, ANSWERS = 16, 8


def readings(levels: list[float], *, seed: int = 0, again: bool = False) -> list[Reading]:
    """Gold along a run whose prompts are new at each step, or come back."""
    rng, made = np.random.default_rng([15, seed]), []
    for step, level in enumerate(levels):
        keys = np.arange(GROUPS) + (0 if again else GROUPS * step)
        gold = rng.binomial(ANSWERS, level, GROUPS) / ANSWERS
        made.append(
            Reading(
                0, step, "gold.prompts", float(gold.mean()), GROUPS * ANSWERS, None, tuple(gold.tolist()),
                keys=tuple(keys.tolist()),
            )
        )  # fmt: skip
    return made


def raised(test: GoldLossTest | NewPromptsFall, run: list[Reading]) -> list[Alarm]:
    return [alarm for alarm in map(test.update, run) if alarm is not None]


FALL = [0.85] * 60 + [0.45] * 60


def test_a_level_of_new_prompts_that_is_lower_warns_and_does_not_alarm() -> None:
    assert raised(GoldLossTest(), readings(FALL)) == []
    (warning,) = raised(NewPromptsFall(), readings(FALL))
    assert (warning.name, warning.tier, warning.resolved) == ("gold.prompts", "warning", None)
    assert 60 <= warning.step < 70
    assert "no prompt is known to come back, so a harder mix would look the same" in warning.summary
    assert "with chance" not in warning.summary  # a bound that does not hold here is not quoted


def test_prompts_that_come_back_alarm_and_do_not_warn() -> None:
    (alarm,) = raised(GoldLossTest(), readings(FALL, again=True))
    assert (alarm.name, alarm.tier) == ("gold.prompts", "alarm")
    assert raised(NewPromptsFall(), readings(FALL, again=True)) == []


def test_a_slope_confirms_the_loss_with_all_the_money_that_was_kept_for_the_level() -> None:
    rng, test, alarms = np.random.default_rng(3), GoldLossTest(), []
    for step, reading in enumerate(readings(FALL)):
        us = np.where(rng.random(8) < (0.35 if step < 60 else 0.75), -1.0, 1.0)
        slope = Reading(0, step, "gold.slope", float(us.mean()), 8, None, tuple(us.tolist()))
        alarms += raised(test, [slope, reading])
    assert [(alarm.name, alarm.tier) for alarm in alarms] == [("gold.slope", "alarm")]
    level, slope_only = GoldLossTest(), GoldLossTest()
    for step, reading in enumerate(readings([0.6] * 20)):
        slope = Reading(0, step, "gold.slope", 0.0, 8, None, (0.0,) * 8)
        raised(level, [slope, reading])
        raised(slope_only, [slope])
    assert np.isclose(level.evidence, slope_only.evidence)


def test_a_level_that_comes_back_resolves_the_warning_and_a_plateau_raises_none() -> None:
    opened, resolved = raised(NewPromptsFall(), readings([0.7] * 60 + [0.4] * 20 + [0.8] * 60))
    assert (opened.resolved, resolved.step) == (None, opened.step)
    assert 80 < (resolved.resolved or 0) < 130
    for seed in range(20):
        assert raised(NewPromptsFall(), readings([0.6] * 120, seed=seed)) == []
