"""What could be had with what nobody has: the exact slope of gold, or a label for every rollout."""

from __future__ import annotations

import numpy as np

from tiltmeter.lab.baselines.seen import Baseline, Seen
from tiltmeter.lab.baselines.wealth import evidence
from tiltmeter.lab.world import Floats


def oracle(seen: Seen) -> Floats:
    """Minus the exact slope."""
    assert seen.hidden is not None
    return -seen.hidden.slope


def oracle_all(seen: Seen) -> Floats:
    """Log evidence of the slope test when every rollout has its label: one bet per group, on its whole covariance."""
    assert seen.hidden is not None
    assert seen.advantage is not None
    advantage = seen.advantage.reshape(seen.hidden.label.shape)
    # |mean of A (g - 1/2)| is at most half of mean |A|, and mean |A| at most 1, since the mean of A squared is 1.
    u = 2.0 * (advantage * (seen.hidden.label - 0.5)).mean(2)
    step = np.repeat(np.arange(seen.steps), u.shape[1])
    return evidence(u.ravel(), step, seen.steps)


ORACLES: tuple[Baseline, ...] = (
    # Rounding leaves a slope of exactly zero a little below it.
    Baseline("oracle", "oracle", "the exact slope at every step", 1e-9, oracle, True, ("hidden",)),
    Baseline(
        "oracle_all",
        "oracle",
        "slope e-process, every rollout labelled",
        float(np.log(100.0)),
        oracle_all,
        True,
        ("hidden", "advantage"),
    ),
)
