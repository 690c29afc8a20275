"""Slope tests of gold along the reward that are not anytime-valid, or test another null."""

from __future__ import annotations

from functools import partial

import numpy as np

from tiltmeter_lab.baselines.rule import BaselineRule, RuleInput
from tiltmeter_lab.baselines.wealth import BLOCK, evidence
from tiltmeter_lab.baselines.windows import by_step, trailing
from tiltmeter_lab.worlds.world import Floats

#: Labels before a z is taken for normal.
MIN_LABELS = 30


def products(run: RuleInput) -> Floats:
    """x = A (g - 1/2) of every label, A = reward minus the mean of the others over the group's standard deviation."""
    assert run.advantage is not None
    unbiased = run.group_size / (run.group_size - 1.0)
    return np.asarray(unbiased * run.advantage[run.label_step, run.label_row] * (run.label - 0.5), np.float64)


def slope_z(run: RuleInput, width: int | None) -> Floats:
    """Minus z of the mean of x over the whole run, or over the last steps, looked at after every step."""
    x = products(run)
    sums = [by_step(run.label_step, x**power, run.steps) for power in (0, 1, 2)]
    if width is None:
        count, total, square = (np.cumsum(series) for series in sums)
    else:
        count, total, square = (trailing(series, width).sum(1) for series in sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / count
        z = mean / np.sqrt((square / count - mean**2) / (count - 1.0))
    return np.where((count >= MIN_LABELS) & np.isfinite(z), -z, np.nan)


def uncentred(run: RuleInput, clip: float, normalise: bool) -> Floats:
    """Log evidence of the slope test with advantages clipped and not centred again: its null is not the one it names.

    Skewed rewards leave the clipped advantages a mean below zero, and mean gold leaks into the slope. Raw advantages
    are in units of the mean standard deviation of the first block's groups, and bet on from the second block on.
    """
    assert run.advantage is not None
    assert run.group_sd is not None
    unbiased = run.group_size / (run.group_size - 1.0)
    advantage = unbiased * run.advantage[run.label_step, run.label_row]
    begin = 0 if normalise else BLOCK
    if not normalise:
        scale = float(run.group_sd[:BLOCK].mean()) or 1.0
        advantage = advantage * run.group_sd[run.label_step, run.label_row // run.group_size] / scale
    u = np.clip(advantage, -clip, clip) * (run.label - 0.5) / (clip / 2.0)
    usable = run.label_step >= begin
    return evidence(u[usable], run.label_step[usable], run.steps, begin)


_NEEDS = ("advantage", "group_sd")
_Z = "z-test of the slope, nominal 1%, looked at after every step"
_CLIP = "slope e-process, advantages clipped without centring again"

SLOPES: tuple[BaselineRule, ...] = (
    BaselineRule("slope_z", "slope", _Z, 2.3263, partial(slope_z, width=None), True, _NEEDS),
    BaselineRule(
        "slope_z_recent", "slope", f"{_Z}, last {BLOCK} steps", 2.3263, partial(slope_z, width=BLOCK), True, _NEEDS
    ),
    *(
        BaselineRule(
            name, "slope", _CLIP, float(np.log(100.0)), partial(uncentred, clip=clip, normalise=own), True, _NEEDS
        )
        for name, clip, own in (("uncentred", 1.5, True), ("uncentred_raw", 3.0, False))
    ),
)
