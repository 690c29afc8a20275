"""Several rewards as one function, so that a part that could not run is not paid as 0."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tiltmeter.rewards.parts import Bounds, Floats, Made, OnInfra, Part, Rows, Told, by_name, limits


@dataclass(frozen=True)
class Weighted:
    """Σ_k w_k r_k; an optional part that does not apply adds nothing, one that broke unscores the row."""

    weights: Mapping[str, float]
    optional: frozenset[str]

    def __call__(self, told: Told, rows: Rows) -> Floats:
        total = np.zeros(len(rows))
        for name, weight in self.weights.items():
            scores = told[name]
            if name in self.optional:
                scores = np.where(np.isnan(scores) & ~told.broken[name], 0.0, scores)
            total += weight * scores
        return total


def combine(
    parts: Mapping[str, Part] | Sequence[Part],
    weights: Mapping[str, float] | None = None,
    *,
    optional: Iterable[str] = (),
    name: str = "combine",
    on_infra: OnInfra = "none",
) -> Made:
    """The weighted sum of several rewards, None for a row that any of them did not score.

    Given to TRL separately, a part that answers None is counted as 0: a verifier that is down is then a verifier that
    says "wrong", beside a style reward that still pays. `weights` default to 1. A part in `optional` may answer None
    because it does not apply, and then adds nothing; if it broke, the row is None all the same. `told` has the parts'
    scores before weighting.

    >>> def right(completions, answer, **_): return [float(c == a) for c, a in zip(completions, answer)]
    >>> def short(completions, **_): return [None if not c else -float(len(c)) for c in completions]
    >>> reward = combine({"right": right, "short": short}, weights={"short": 0.1})
    >>> reward(completions=["4", ""], answer=["4", "4"]), reward.components
    ([0.9, None], ('right', 'short'))
    >>> combine([right, short], optional=["short"])(completions=["4", ""], answer=["4", "4"])
    [0.0, 0.0]
    """
    known, given, free = by_name(parts), dict(weights or {}), frozenset(optional)
    if not known:
        raise ValueError("there is nothing to combine")
    if unknown := sorted((set(given) | free) - set(known)):
        raise ValueError(f"{unknown} are no parts; the parts are {list(known)}")
    full = {part: float(given.get(part, 1.0)) for part in known}
    if not all(map(math.isfinite, full.values())):
        raise ValueError("weights must be finite")
    return Made(
        name,
        known,
        Weighted(full, free),
        bounds=_bounds(known, full, free),
        settings=(sorted(full.items()), sorted(free)),
        on_infra=on_infra,
    )


def _bounds(parts: Mapping[str, Part], weights: Mapping[str, float], optional: frozenset[str]) -> Bounds:
    """Of the sum; None where a part does not say. A part that may be absent can also add 0."""
    least = most = 0.0
    for name, weight in weights.items():
        low, high = limits(parts[name])
        if weight == 0.0:
            continue
        ends = weight * (-math.inf if low is None else low), weight * (math.inf if high is None else high)
        least += min(*ends, 0.0) if name in optional else min(ends)
        most += max(*ends, 0.0) if name in optional else max(ends)
    return least if math.isfinite(least) else None, most if math.isfinite(most) else None
