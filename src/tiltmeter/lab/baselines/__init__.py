"""Every rule that a user would otherwise pick, on the same runs and at the same number of labels.

In four groups: rules on levels of gold, tests of its slope without what makes them valid, rules of existing tools that
read no gold, and what could be had with what nobody has.
"""

from __future__ import annotations

from tiltmeter.lab.baselines.geometry import GEOMETRY
from tiltmeter.lab.baselines.levels import LEVELS
from tiltmeter.lab.baselines.oracles import ORACLES
from tiltmeter.lab.baselines.seen import SHARE, Baseline, Seen, first
from tiltmeter.lab.baselines.slopes import SLOPES

BASELINES: tuple[Baseline, ...] = LEVELS + SLOPES + GEOMETRY + ORACLES

__all__ = ["BASELINES", "GEOMETRY", "LEVELS", "ORACLES", "SHARE", "SLOPES", "Baseline", "Seen", "first"]
