"""Baseline detectors, run on the same runs and with the same number of labels.

Four groups: rules on the level of gold, tests of its slope that are not valid, rules of existing tools that read no
gold, and oracles.
"""

from __future__ import annotations

from tiltmeter_lab.baselines.geometry import GEOMETRY
from tiltmeter_lab.baselines.levels import LEVELS
from tiltmeter_lab.baselines.oracles import ORACLES
from tiltmeter_lab.baselines.rule import SHARE, BaselineRule, RuleInput, first_alarm
from tiltmeter_lab.baselines.slopes import SLOPES

BASELINES: tuple[BaselineRule, ...] = LEVELS + SLOPES + GEOMETRY + ORACLES

__all__ = ["BASELINES", "GEOMETRY", "LEVELS", "ORACLES", "SHARE", "SLOPES", "BaselineRule", "RuleInput", "first_alarm"]
