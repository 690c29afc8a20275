"""`combine`: the weighted sum of several rewards as one function, None where a part could not be scored."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
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
    name_parts,
    part_bounds,
)


@dataclass(frozen=True)
class WeightedSum:
    """Σ_k w_k r_k; an optional part that is None adds 0; a part with an outage makes the row None."""

    weights: Mapping[str, float]
    optional: frozenset[str]

    def __call__(self, part_scores: PartScores, rows: Rows) -> Floats:
        total = np.zeros(len(rows))
        for name, weight in self.weights.items():
            scores = part_scores[name]
            if name in self.optional:
                scores = np.where(np.isnan(scores) & ~part_scores.broken[name], 0.0, scores)
            total += weight * scores
        return total


def combine(
    parts: Mapping[str, Part] | Sequence[Part],
    weights: Mapping[str, float] | None = None,
    *,
    optional: Iterable[str] = (),
    name: str = "combine",
    on_infra: OnInfra = "none",
) -> ComposedReward:
    """The weighted sum of several rewards, None for a row that any of them did not score.

    If the parts are passed to TRL separately, TRL counts a None as 0: a verifier that is down then scores every answer
    as wrong, while a style reward still pays. `weights` default to 1. A part in `optional` may return None because it
    does not apply, and then adds nothing; after an outage the row is None all the same. `told` has the scores of the
    parts before weighting.

    >>> def right(completions, answer, **_): return [float(c == a) for c, a in zip(completions, answer)]
    >>> def short(completions, **_): return [None if not c else -float(len(c)) for c in completions]
    >>> reward = combine({"right": right, "short": short}, weights={"short": 0.1})
    >>> reward(completions=["4", ""], answer=["4", "4"]), reward.components
    ([0.9, None], ('right', 'short'))
    >>> combine([right, short], optional=["short"])(completions=["4", ""], answer=["4", "4"])
    [0.0, 0.0]
    """
    named_parts, given_weights, free = name_parts(parts), dict(weights or {}), frozenset(optional)
    if not named_parts:
        raise ValueError("there is nothing to combine")
    if unknown := sorted((set(given_weights) | free) - set(named_parts)):
        raise ValueError(f"{unknown} are no parts; the parts are {list(named_parts)}")
    full = {part: float(given_weights.get(part, 1.0)) for part in named_parts}
    if not all(map(math.isfinite, full.values())):
        raise ValueError("weights must be finite")
    return ComposedReward(
        name,
        named_parts,
        WeightedSum(full, free),
        bounds=_bounds(named_parts, full, free),
        settings=(sorted(full.items()), sorted(free)),
        on_infra=on_infra,
    )


def _bounds(parts: Mapping[str, Part], weights: Mapping[str, float], optional: frozenset[str]) -> Bounds:
    """Of the sum; None where a part does not say. A part that may be absent can also add 0."""
    least = most = 0.0
    for name, weight in weights.items():
        low, high = part_bounds(parts[name])
        if weight == 0.0:
            continue
        ends = weight * (-math.inf if low is None else low), weight * (math.inf if high is None else high)
        least += min(*ends, 0.0) if name in optional else min(ends)
        most += max(*ends, 0.0) if name in optional else max(ends)
    return least if math.isfinite(least) else None, most if math.isfinite(most) else None
