"""`length_debiased` removes the reward's slope on length; `overlong` is a penalty near the length limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from tiltmeter.gold.guards.composed_reward import (
    Agree,
    ComposedReward,
    Floats,
    OnInfra,
    Part,
    PartScores,
    Rows,
    Unit,
    agree_or_local,
    function_name,
)

LEAST = 32  # completions, in groups whose lengths differ, before a slope is used


@dataclass
class LengthDebiasing:
    """r - b (length - mean length), with b and the mean length from the steps before this one."""

    unit: Unit
    decay: float
    least: int
    agree: Agree
    fixed_slope: float | None  # a fixed slope; None: it is estimated
    #: Of past steps, each step weighing `decay` times the next: Σ dx², Σ dx dy, completions in groups, Σ x, rows.
    sums: Floats = field(default_factory=lambda: np.zeros(5))

    @property
    def slope(self) -> float:
        """Reward per unit of length that is taken out at the next step."""
        if self.fixed_slope is not None:
            return self.fixed_slope
        squares, products, rows = self.sums[:3].tolist()
        return products / squares if rows >= self.least and squares > 0.0 else 0.0

    @property
    def middle(self) -> float:
        return float(self.sums[3] / self.sums[4]) if self.sums[4] > 0.0 else 0.0

    def __call__(self, part_scores: PartScores, rows: Rows) -> Floats:
        scores, lengths = next(iter(part_scores.scores.values())), rows.lengths(self.unit)
        new = np.array(self.agree(_sums(scores, lengths, rows.groups).tolist()), np.float64)
        has_past = self.sums[4] > 0.0
        # At the first step there is no past: the middle only shifts all rewards of a step alike.
        middle = self.middle if has_past else (float(new[3] / new[4]) if new[4] > 0.0 else 0.0)
        residuals = scores - self.slope * (lengths - middle)
        rows.log("length_debiased/slope", self.slope)
        if not rows.evaluating:
            self.sums = self.decay * self.sums + new
        return residuals

    def state(self) -> dict[str, Any]:
        return {"sums": self.sums.tolist()}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.sums = np.array(state["sums"], np.float64)


@dataclass(frozen=True)
class OverlongPenalty:
    """0 up to limit - buffer, then linear to -1 at the limit, -1 beyond."""

    limit: float
    buffer: float
    unit: Unit

    def __call__(self, part_scores: PartScores, rows: Rows) -> Floats:
        return np.clip((self.limit - self.buffer - rows.lengths(self.unit)) / self.buffer, -1.0, 0.0)


def length_debiased(
    part: Part,
    *,
    unit: Unit = "tokens",
    slope: float | None = None,
    decay: float = 0.9,
    least: int = LEAST,
    agree: Agree | None = None,
    name: str = "length_debiased",
    on_infra: OnInfra = "none",
) -> ComposedReward:
    """The reward minus its linear dependence on length: r - b (length - mean length).

    b is the least-squares slope of the reward on length among answers to the same prompt, Σ dx dy / Σ dx² over groups,
    from the steps before this one (each weighing `decay` times the next) and never from the rows that are being scored:
    the reward of an answer does not depend on the others of its step. Until `least` completions in groups of differing
    length were seen, nothing is taken out. Give `slope` to take out a known one for good, as one measured by a probe.

    What it removes is everything that goes with length, its true value included: if longer answers really are better,
    this reward does not pay for it. It removes a straight line; a reward that only pays for the first 200 tokens is
    still partly biased. Compare `length.slope` of the run before and after. Group answers by prompt: `prompts` is
    needed. `unit`: "tokens" (the trainer's `completion_ids`), "words" or "characters".

    >>> size = lambda completions, **_: [float(len(c)) for c in completions]
    >>> reward = length_debiased(size, unit="characters", least=2)
    >>> reward(["hi"] * 2, ["a", "aaa"]), reward.rule.slope, reward(["hi"] * 2, ["a", "aaa"])
    ([1.0, 3.0], 1.0, [2.0, 2.0])
    """
    _check_unit(unit)
    if not 0.0 < decay <= 1.0:
        raise ValueError("decay must lie above 0 and be at most 1")
    rule = LengthDebiasing(unit, float(decay), least, agree_or_local(agree, name), slope)
    return ComposedReward(
        name, {function_name(part): part}, rule, settings=(unit, rule.decay, least, slope), on_infra=on_infra
    )


def overlong(limit: int, buffer: int, *, unit: Unit = "tokens", name: str = "overlong") -> ComposedReward:
    """A penalty near the length limit: 0 up to limit - buffer, falling to -1 at the limit, and -1 beyond.

    A hard cut at the limit punishes a sound answer that was almost finished like one that never ends; this penalty
    grows gradually before the limit: soft overlong punishment of DAPO (Yu et al. 2025, arXiv 2503.14476). It does not
    affect answers that are too long but below the limit.

    >>> overlong(10, 4, unit="characters")(completions=["a" * n for n in (6, 7, 8, 10, 12)])
    [0.0, -0.25, -0.5, -1.0, -1.0]
    """
    _check_unit(unit)
    if not 0 < buffer <= limit:
        raise ValueError("buffer must lie above 0 and be at most limit")
    rule = OverlongPenalty(float(limit), float(buffer), unit)
    return ComposedReward(name, {}, rule, bounds=(-1.0, 0.0), settings=(rule.limit, rule.buffer, unit))


def _check_unit(unit: str) -> None:
    if unit not in get_args(Unit):
        raise ValueError(f"unit must be one of {', '.join(get_args(Unit))}, not {unit!r}")


def _sums(scores: Floats, lengths: Floats, groups: Any) -> Floats:
    """Σ dx², Σ dx dy and the completions behind them, over groups whose lengths differ; Σ x and rows, over all."""
    finite = np.isfinite(scores)
    x, y, group = lengths[finite], scores[finite], groups[finite]
    if not len(x):
        return np.zeros(5)
    counts = np.maximum(np.bincount(group), 1)
    dx = x - (np.bincount(group, x) / counts)[group]
    dy = y - (np.bincount(group, y) / counts)[group]
    differ = np.bincount(group, np.square(dx)) > 0.0
    return np.array([np.square(dx).sum(), (dx * dy).sum(), differ[group].sum(), x.sum(), len(x)], np.float64)
