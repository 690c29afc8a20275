"""Tiltmeter as one of prime-rl's monitors: whether a rising reward still means a better policy.

For `src/prime_rl/monitors/tiltmeter.py`. What is recorded and measured is in the package `tiltmeter`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prime_rl.monitors.base import Monitor
from prime_rl.utils.config import BaseConfig

from tiltmeter.adapters.lost_share import MOST_LOST
from tiltmeter.adapters.prime_rl import STEPS_WAITING, PrimeRLMonitor
from tiltmeter.rundir.requests import Mode


class TiltmeterMonitorConfig(BaseConfig):
    """`[monitors.tiltmeter]`"""

    directory: Path | None = None
    """Where the run is kept; `OUTPUT_DIR/tiltmeter` if not given."""

    gold: str | None = None
    """What a rollout is really worth, which training does not see: `checks.py:function`, `judge.toml`, or `auto`."""

    gold_share: float | None = None
    """Of the rollouts that are labelled; as many as a second a step allows if not given."""

    screen: str | None = None
    """What flags a rollout: `acts` or `checks.py:flagged`. One that is flagged and would gain leaves the update."""

    most_lost: float = MOST_LOST
    """Of the rollouts, that the screen may leave out before it ends itself."""

    mode: Mode = "advise"
    """`act`: the screen is on from the first step; `advise`: it waits for a person."""


class TiltmeterMonitor(PrimeRLMonitor, Monitor):
    """Every rollout once, with the step that trains on it. Nothing waits: rows are made on a thread of its own."""

    config: TiltmeterMonitorConfig

    def __init__(self, config: TiltmeterMonitorConfig) -> None:
        Monitor.__init__(self, config)

    async def init(self, output_dir: Path, run_config: Any = None, **kwargs: Any) -> None:
        """Opens the run, and raises for what cannot work: a configured monitor must work."""
        PrimeRLMonitor.__init__(
            self,
            self.config.directory or output_dir / "tiltmeter",
            gold=self.config.gold,
            gold_share=self.config.gold_share,
            screen=self.config.screen,
            most_lost=self.config.most_lost,
            mode=self.config.mode,
        )
        self.steps_waiting = getattr(run_config, "max_off_policy_steps", STEPS_WAITING)
