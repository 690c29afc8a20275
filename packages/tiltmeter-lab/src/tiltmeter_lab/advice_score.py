"""Stop advice scored afterwards, against true gold of every saved checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class AdviceScore:
    """Advice scored afterwards: true gold at the advised, last, highest-reward and truly best checkpoint."""

    advised: float
    last: float
    best_proxy: float
    best: float


def score_advice(
    advised: int | None, checkpoints: Sequence[int], gold: Mapping[int, float], proxy: Mapping[int, float]
) -> AdviceScore:
    """Score advice afterwards: true gold at the advised checkpoint and at those one would keep without advice.

    `gold` and `proxy` are curves by step, interpolated where a checkpoint lies between. No advice (None) means the last
    checkpoint.

    >>> true = {0: 0.4, 50: 0.8, 100: 0.3}
    >>> score = score_advice(50, [25, 50, 75, 100], true, {0: 0.0, 100: 1.0})
    >>> score.advised, score.last, score.best_proxy, score.best
    (0.8, 0.3, 0.3, 0.8)
    """
    steps = sorted(checkpoints)
    if not steps:
        raise ValueError("no checkpoint, so none could be kept: pass the steps at which the model was saved")
    true, paid = ({at: _at(curve, at) for at in steps} for curve in (gold, proxy))
    checkpoint = steps[-1] if advised is None else advised
    return AdviceScore(
        _at(gold, checkpoint), true[steps[-1]], true[max(steps, key=lambda at: (paid[at], at))], max(true.values())
    )


def _at(curve: Mapping[int, float], step: int) -> float:
    steps = sorted(curve)
    return float(np.interp(step, steps, [curve[at] for at in steps]))
