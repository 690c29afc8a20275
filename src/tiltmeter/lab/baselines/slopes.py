"""Rules that read the slope of gold along the reward, without what makes the reading valid."""

from __future__ import annotations

from functools import partial

import numpy as np

from tiltmeter.lab.baselines.seen import Baseline, Seen
from tiltmeter.lab.baselines.wealth import BLOCK, evidence
from tiltmeter.lab.baselines.windows import by_step, trailing
from tiltmeter.lab.world import Floats

#: Labels before a z is taken for normal.
ENOUGH = 30


def products(seen: Seen) -> Floats:
    """x = A (g - 1/2) of every label, A = reward minus the mean of the others over the group's standard deviation."""
    assert seen.advantage is not None
    unbiased = seen.group_size / (seen.group_size - 1.0)
    return np.asarray(unbiased * seen.advantage[seen.label_step, seen.label_row] * (seen.label - 0.5), np.float64)


def slope_z(seen: Seen, width: int | None) -> Floats:
    """Minus z of the mean of x over the whole run, or over the last steps, looked at after every step."""
    x = products(seen)
    sums = [by_step(seen.label_step, x**power, seen.steps) for power in (0, 1, 2)]
    if width is None:
        count, total, square = (np.cumsum(series) for series in sums)
    else:
        count, total, square = (trailing(series, width).sum(1) for series in sums)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = total / count
        z = mean / np.sqrt((square / count - mean**2) / (count - 1.0))
    return np.where((count >= ENOUGH) & np.isfinite(z), -z, np.nan)


def uncentred(seen: Seen, clip: float, normalise: bool) -> Floats:
    """Log evidence of the slope test with advantages clipped and not centred again: its null is not the one it names.

    Skewed rewards leave the clipped advantages a mean below zero, and mean gold leaks into the slope. Raw advantages
    are in units of the mean standard deviation of the first block's groups, and bet on from the second block on.
    """
    assert seen.advantage is not None
    assert seen.group_sd is not None
    unbiased = seen.group_size / (seen.group_size - 1.0)
    advantage = unbiased * seen.advantage[seen.label_step, seen.label_row]
    begin = 0 if normalise else BLOCK
    if not normalise:
        scale = float(seen.group_sd[:BLOCK].mean()) or 1.0
        advantage = advantage * seen.group_sd[seen.label_step, seen.label_row // seen.group_size] / scale
    u = np.clip(advantage, -clip, clip) * (seen.label - 0.5) / (clip / 2.0)
    known = seen.label_step >= begin
    return evidence(u[known], seen.label_step[known], seen.steps, begin)


_NEEDS = ("advantage", "group_sd")
_Z = "z-test of the slope, nominal 1%, looked at after every step"
_CLIP = "slope e-process, advantages clipped without centring again"

SLOPES: tuple[Baseline, ...] = (
    Baseline("slope_z", "slope", _Z, 2.3263, partial(slope_z, width=None), True, _NEEDS),
    Baseline(
        "slope_z_recent", "slope", f"{_Z}, last {BLOCK} steps", 2.3263, partial(slope_z, width=BLOCK), True, _NEEDS
    ),
    *(
        Baseline(name, "slope", _CLIP, float(np.log(100.0)), partial(uncentred, clip=clip, normalise=own), True, _NEEDS)
        for name, clip, own in (("uncentred", 1.5, True), ("uncentred_raw", 3.0, False))
    ),
)
