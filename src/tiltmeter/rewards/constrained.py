"""As much of one reward as possible while others stay above a floor: multipliers instead of guessed weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tiltmeter.rewards.parts import Agree, Bounds, Floats, Made, OnInfra, Part, Rows, Told, alone, limits


@dataclass
class Lagrangian:
    """(objective + Σ λ_k c_k) / (1 + Σ λ_k), and the multipliers λ, which rise while E[c_k] is below its floor."""

    floors: Mapping[str, float]
    rate: float
    ceiling: float
    agree: Agree
    multipliers: dict[str, float]

    def __call__(self, told: Told, rows: Rows) -> Floats:
        whole = 1.0 + sum(self.multipliers.values())
        total = told["objective"].copy()
        for name, multiplier in self.multipliers.items():
            total += multiplier * told[name]
        self._ascend(told, rows)
        return total / whole

    def _ascend(self, told: Told, rows: Rows) -> None:
        """One step of dual ascent. The rows of this call were scored with the multipliers before it."""
        counts = [float(np.isfinite(told[name]).sum()) for name in self.floors]
        sums = [float(np.nansum(told[name])) for name in self.floors]
        agreed = list(self.agree([*counts, *sums]))
        moved = dict(self.multipliers)
        for k, (name, floor) in enumerate(self.floors.items()):
            rows.log(f"constrained/{name}/multiplier", self.multipliers[name])
            if not agreed[k] > 0.0:
                continue  # nothing is known of it at this step
            mean = agreed[k + len(self.floors)] / agreed[k]
            rows.log(f"constrained/{name}/mean", mean)
            moved[name] = min(max(moved[name] + self.rate * (floor - mean), 0.0), self.ceiling)
        if not rows.evaluating:
            self.multipliers = moved

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
) -> Made:
    """Maximise E[objective] subject to E[c_k] >= t_k for each constraint `name: (part, t)`.

    A fixed weight says how much of one thing is worth how much of another, which nobody knows; a floor says what is
    not for sale. Lagrange multipliers do the rest: after each call λ_k goes up by `rate` (t_k - mean c_k), down when
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
    rule = Lagrangian(floors, float(rate), float(ceiling), alone(agree, name), dict.fromkeys(floors, float(start)))
    settings = (sorted(floors.items()), rule.rate, rule.ceiling, float(start))
    return Made(name, parts, rule, bounds=_bounds(parts), settings=settings, on_infra=on_infra)


def _bounds(parts: Mapping[str, Part]) -> Bounds:
    """The reward is a mean of the parts with weights that are at least 0."""
    ends = [limits(part) for part in parts.values()]
    lows, highs = [low for low, _ in ends if low is not None], [high for _, high in ends if high is not None]
    return min(lows) if len(lows) == len(ends) else None, max(highs) if len(highs) == len(ends) else None
