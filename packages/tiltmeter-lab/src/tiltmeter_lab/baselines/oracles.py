"""Oracle baselines: the exact slope of gold, or a label for every rollout."""

from __future__ import annotations

import numpy as np

from tiltmeter_lab.baselines.rule import BaselineRule, RuleInput
from tiltmeter_lab.baselines.wealth import evidence
from tiltmeter_lab.worlds.world import Floats


def oracle(run: RuleInput) -> Floats:
    """Minus the exact slope."""
    assert run.hidden is not None
    return -run.hidden.slope


def oracle_all(run: RuleInput) -> Floats:
    """Log evidence of the slope test when every rollout has its label: one bet per group, on its whole covariance."""
    assert run.hidden is not None
    assert run.advantage is not None
    advantage = run.advantage.reshape(run.hidden.label.shape)
    # |mean of A (g - 1/2)| is at most half of mean |A|, and mean |A| at most 1, since the mean of A squared is 1.
    u = 2.0 * (advantage * (run.hidden.label - 0.5)).mean(2)
    step = np.repeat(np.arange(run.steps), u.shape[1])
    return evidence(u.ravel(), step, run.steps)


ORACLES: tuple[BaselineRule, ...] = (
    # Rounding leaves a slope of exactly zero a little below it.
    BaselineRule("oracle", "oracle", "the exact slope at every step", 1e-9, oracle, True, ("hidden",)),
    BaselineRule(
        "oracle_all",
        "oracle",
        "slope e-process, every rollout labelled",
        float(np.log(100.0)),
        oracle_all,
        True,
        ("hidden", "advantage"),
    ),
)
