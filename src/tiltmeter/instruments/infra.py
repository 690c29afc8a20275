"""Rewards that failed for reasons that are not the policy's."""

from __future__ import annotations

import numpy as np

from tiltmeter.data.baseline import Baseline
from tiltmeter.data.records import FLAGS, Floats, RolloutBatch
from tiltmeter.data.stops import is_trusted


class InfraFailures:
    """Share of completions for which the reward, or one of its components, raised instead of answering. A trajectory
    that ended by a failure of its environment is counted in `stop.untrusted` and not here.

    A judge that times out or a sandbox that is full looks like a drop in the number of scored rows and, where failures
    are counted as 0, like a worse policy. Mend the machine before reading anything else. The trap: a policy can cause
    such failures too, for example with answers that make the verifier hang.

    Formula: 1[the flag of the reward or of any component of row i is "infra", and its end can be trusted]
    Source: own

    >>> from tiltmeter.data.batches import from_columns
    >>> InfraFailures().measure(from_columns(0, [0, 0, 0], reward=[1.0, None, TimeoutError("judge")]), None).tolist()
    [0.0, 0.0, 1.0]
    """

    name = "reward.infra_share"
    grain = "rollout"
    needs = ("group",)
    bounds = (0.0, 1.0)
    by_env = True

    def measure(self, batch: RolloutBatch, baseline: Baseline | None) -> Floats:
        if batch.reward is None and not batch.rewards:
            return np.full(len(batch), np.nan)
        failed = np.zeros(len(batch), bool)
        for name in ("reward", *(f"rewards.{component}" for component in batch.rewards)):
            if name in batch.flags:
                failed |= batch.flags[name] == FLAGS.index("infra")
        if batch.stop is not None:
            failed &= np.array([is_trusted(stop) for stop in batch.stop], bool)  # typed: a step may have no rows
        return failed.astype(np.float64)
