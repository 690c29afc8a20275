"""Tiltmeter as one of prime-rl's monitors: whether a rising reward still means a better policy.

For `src/prime_rl/monitors/tiltmeter.py`. What is recorded and measured is in the package `tiltmeter`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prime_rl.monitors.base import Monitor
from prime_rl.utils.config import BaseConfig

from tiltmeter.adapters.prime_rl import STEPS_WAITING, PrimeRLMonitor


class TiltmeterMonitorConfig(BaseConfig):
    """`[monitors.tiltmeter]`"""

    directory: Path | None = None
    """Where the run is kept; `OUTPUT_DIR/tiltmeter` if not given."""

    gold: str | dict[str, Any] | None = None
    """What a rollout is really worth, which training does not see: `checks.py:function`, `judge.toml`, or `auto`; or
    the fields of `tiltmeter.Gold`, as `{source = "judge.toml", share = 0.05}`."""

    act: str | dict[str, Any] | None = None
    """What may be changed: the fields of `tiltmeter.Act`, as `{screen = "acts"}`: a rollout that is flagged and would
    gain leaves the update."""


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
            act=self.config.act,
        )
        self.steps_waiting = getattr(run_config, "max_off_policy_steps", STEPS_WAITING)
