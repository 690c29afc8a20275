"""`gate`: a learned reward that is paid only where a verifier passes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tiltmeter.gold.guards.composed_reward import (
    Bounds,
    ComposedReward,
    Floats,
    OnInfra,
    Part,
    PartScores,
    Rows,
    part_bounds,
)


@dataclass(frozen=True)
class GateRule:
    """The learned reward where the check reaches the threshold, else the score `otherwise`."""

    threshold: float
    otherwise: float

    def __call__(self, part_scores: PartScores, rows: Rows) -> Floats:
        check = part_scores["check"]
        return np.where(np.isnan(check), np.nan, np.where(check >= self.threshold, part_scores["then"], self.otherwise))


def gate(
    check: Part,
    then: Part,
    otherwise: float = 0.0,
    *,
    threshold: float = 0.5,
    name: str = "gate",
    on_infra: OnInfra = "none",
) -> ComposedReward:
    """The learned reward `then` for rows whose `check` reaches the threshold, `otherwise` for those that fail it.

    Style, length and tone can then raise the reward of a right answer, but never that of a wrong one. Choose
    `otherwise` below what `then` pays (shape or clip it first), or failing is worth more than passing badly. A row that
    the check did not score is None: nobody knows on which side of the gate it belongs. Where the check fails, what
    `then` says does not matter, nor whether it broke. Both parts are asked about all rows.

    >>> def right(completions, **_): return [None if c == "?" else c == "4" for c in completions]
    >>> def style(completions, **_): return [0.7 for _ in completions]
    >>> gate(right, style)(completions=["4", "5", "?"])
    [0.7, 0.0, None]
    """
    parts = {"check": check, "then": then}
    rule = GateRule(float(threshold), float(otherwise))
    return ComposedReward(
        name, parts, rule, bounds=_bounds(then, otherwise), settings=(rule.threshold, rule.otherwise), on_infra=on_infra
    )


def _bounds(then: Part, otherwise: float) -> Bounds:
    low, high = part_bounds(then)
    return None if low is None else min(low, otherwise), None if high is None else max(high, otherwise)
