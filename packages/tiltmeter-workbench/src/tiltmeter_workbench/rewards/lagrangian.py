"""`constrained`: maximise one reward while others stay above a floor, with learnt Lagrange multipliers as weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiltmeter.gold.guards.composed_reward import (
    Agree,
    Bounds,
    ComposedReward,
    Floats,
    OnInfra,
    Part,
    PartScores,
    Rows,
    agree_or_local,
    part_bounds,
)


@dataclass
class Lagrangian:
    """(objective + Σ λ_k c_k) / (1 + Σ λ_k), and the multipliers λ, which rise while E[c_k] is below its floor."""

    floors: Mapping[str, float]
    rate: float
    ceiling: float
    agree: Agree
    multipliers: dict[str, float]

    def __call__(self, part_scores: PartScores, rows: Rows) -> Floats:
        whole = 1.0 + sum(self.multipliers.values())
        total = part_scores["objective"].copy()
        for name, multiplier in self.multipliers.items():
            total += multiplier * part_scores[name]
        self._ascend(part_scores, rows)
        return total / whole

    def _ascend(self, part_scores: PartScores, rows: Rows) -> None:
        """One step of dual ascent. The rows of this call were scored with the multipliers before it."""
        counts = [float(np.isfinite(part_scores[name]).sum()) for name in self.floors]
        sums = [float(np.nansum(part_scores[name])) for name in self.floors]
        totals = list(self.agree([*counts, *sums]))
        new_multipliers = dict(self.multipliers)
        for k, (name, floor) in enumerate(self.floors.items()):
            rows.log(f"constrained/{name}/multiplier", self.multipliers[name])
            if not totals[k] > 0.0:
                continue  # no row was scored at this step
            mean = totals[k + len(self.floors)] / totals[k]
            rows.log(f"constrained/{name}/mean", mean)
            new_multipliers[name] = min(max(new_multipliers[name] + self.rate * (floor - mean), 0.0), self.ceiling)
        if not rows.evaluating:
            self.multipliers = new_multipliers

    def state(self) -> dict[str, Any]:
        return {"multipliers": dict(self.multipliers)}

    def restore(self, state: Mapping[str, Any]) -> None:
        if set(state["multipliers"]) != set(self.floors):
            raise ValueError(f"the state has multipliers of {sorted(state['multipliers'])}, not {sorted(self.floors)}")
        self.multipliers = {name: float(state["multipliers"][name]) for name in self.floors}


def constrained(
    objective: Part,
    constraints: Mapping[str, tuple[Part, float]],
    *,
    rate: float = 0.05,
    ceiling: float = 10.0,
    start: float = 0.0,
    agree: Agree | None = None,
    name: str = "constrained",
    on_infra: OnInfra = "none",
) -> ComposedReward:
    """Maximise E[objective] subject to E[c_k] >= t_k for each constraint `name: (part, t)`.

    A fixed weight sets an exchange rate between rewards, which is hard to choose; a floor is a constraint. The weights
    are Lagrange multipliers: after each call λ_k goes up by `rate` (t_k - mean c_k), down when
    there is slack, between 0 and `ceiling`. The reward is (objective + Σ λ_k c_k) / (1 + Σ λ_k), so that its size does
    not grow with them. The multipliers are in `reward.rule.multipliers` and go to the trainer's log; `save` and `load`
    carry them over a resume.

    What voids it: a floor that no policy reaches drives its multiplier to the ceiling, where it stays (watch for it);
    a `rate` that is large against the policy's own speed makes both swing; parts on very different scales make one
    multiplier the size of the other's noise. A row is None when any part is.

    >>> good = lambda completions, **_: [1.0, 1.0]
    >>> polite = lambda completions, **_: [0.0, 0.5]
    >>> reward = constrained(good, {"polite": (polite, 0.75)}, rate=2.0)
    >>> reward(completions=["a", "b"]), reward.rule.multipliers, reward(completions=["a", "b"])
    ([1.0, 1.0], {'polite': 1.0}, [0.5, 0.75])
    """
    if not constraints or "objective" in constraints:
        raise ValueError('constrained needs at least one constraint, and none may be named "objective"')
    floors = {key: float(floor) for key, (_, floor) in constraints.items()}
    if not all(map(math.isfinite, floors.values())) or not rate > 0.0 or not 0.0 <= start <= ceiling < math.inf:
        raise ValueError("floors must be finite, rate above 0, and start lie between 0 and ceiling")
    parts = {"objective": objective, **{key: part for key, (part, _) in constraints.items()}}
    rule = Lagrangian(
        floors, float(rate), float(ceiling), agree_or_local(agree, name), dict.fromkeys(floors, float(start))
    )
    settings = (sorted(floors.items()), rule.rate, rule.ceiling, float(start))
    return ComposedReward(name, parts, rule, bounds=_bounds(parts), settings=settings, on_infra=on_infra)


def _bounds(parts: Mapping[str, Part]) -> Bounds:
    """The reward is a mean of the parts with weights that are at least 0."""
    ends = [part_bounds(part) for part in parts.values()]
    lows, highs = [low for low, _ in ends if low is not None], [high for _, high in ends if high is not None]
    return min(lows) if len(lows) == len(ends) else None, max(highs) if len(highs) == len(ends) else None
