"""Warns that gold is lower where prompts are new at each step: a harder mix of prompts would look the same."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import exp, log

import numpy as np

from tiltmeter.data.records import Alarm, Reading, Tier
from tiltmeter.detectors.level_stakes import LEVEL
from tiltmeter.detectors.recovery import PromptsBack
from tiltmeter.stats.betting import alpha_share
from tiltmeter.stats.level_drop import LevelDropTest


@dataclass
class NewPromptsFall:
    """A warning that gold of prompts that do not come back is lower than in an earlier window.

    Promise: while the prompts of all steps are drawn from one pool and gold does not fall, the chance of any such
    warning in a lineage is at most `alpha` (`stats.level_drop`). A curriculum voids it, so this is no alarm: only what
    compares answers to one prompt confirms a loss, as slopes, duels and prompts that come back do. It is silent where
    prompts come back. Resolved once gold is back by a test of its own.

    >>> fall, rng = NewPromptsFall(), np.random.default_rng(0)
    >>> def step_gold(step): return (rng.binomial(8, 0.7 if step < 40 else 0.4, 16) / 8).tolist()
    >>> steps = [Reading(0, step, "gold.prompts", 0.5, 128, None, tuple(step_gold(step)),
    ...                  keys=tuple(range(16 * step, 16 * step + 16))) for step in range(60)]
    >>> raised = next(alarm for alarm in map(fall.update, steps) if alarm)
    >>> raised.tier, 40 <= raised.step < 50, raised.summary[-35:]
    ('warning', True, 'so a harder mix would look the same')
    """

    alpha: float = 0.01
    name: str = field(default="new_prompts_fall", init=False, repr=False)
    tier: Tier = field(default="warning", init=False)
    watches: tuple[str, ...] = field(default=(LEVEL,), init=False, repr=False)
    _test: LevelDropTest = field(default_factory=LevelDropTest, init=False, repr=False)
    _open: Alarm | None = field(default=None, init=False, repr=False)
    _back: PromptsBack | None = field(default=None, init=False, repr=False)
    _arming: int = field(default=1, init=False, repr=False)

    def update(self, reading: Reading) -> Alarm | None:
        if not reading.keys or self._test.paired:
            return None
        if self._open is not None:
            return self._resolve_if_back(self._open, reading)
        size = reading.n // len(reading.keys)
        self._test.place(reading.step, np.array(reading.keys), np.array(reading.values), size)
        threshold = log(1.0 / alpha_share(self.alpha, self._arming))
        if self._test.paired or self._test.evidence < threshold:
            return None
        self._open = self._alarm(reading, threshold)
        self._back = PromptsBack(self._test, 0.0)
        return self._open

    def _alarm(self, reading: Reading, threshold: float) -> Alarm:
        peak, fell, half = (min(step, reading.step) for step in self._test.drop_steps())
        return Alarm(
            attempt=reading.attempt,
            name=LEVEL,
            detector=self.name,
            tier=self.tier,
            direction="down",
            step=reading.step,
            data_step=reading.step,
            onset=fell,
            onset_low=min(peak, fell),
            onset_high=max(half, fell),
            evidence=self._test.evidence,
            threshold=threshold,
            summary=f"gold is lower since about step {fell} (odds {exp(min(self._test.evidence, 50.0)):.0f} to 1 if "
            "prompts are alike): no prompt is known to come back, so a harder mix would look the same",
        )

    def _resolve_if_back(self, alarm: Alarm, reading: Reading) -> Alarm | None:
        assert self._back is not None
        self._back.place(reading)
        if not self._back.is_won:
            return None
        self._open, self._back, self._test = None, None, LevelDropTest()
        self._arming += 1
        return replace(alarm, resolved=reading.step)
