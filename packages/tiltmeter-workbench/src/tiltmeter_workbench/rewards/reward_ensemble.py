"""`ensemble`: several reward models as one, by minimum, mean, median or mean minus disagreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
from tiltmeter_workbench.stats.ensembles import Rule, combined

#: Mean and standard deviation of each member, in order, on fixed answers; or how many first rows give them.
MemberScales = Sequence[tuple[float, float]] | int


@dataclass
class EnsembleRule:
    """The rule of the ensemble over its members, each on its own scale."""

    rule: Rule
    penalty: float
    first: int  # rows that give the scale; 0: it is given, or there is none
    agree: Agree
    means: Floats
    stds: Floats
    _sums: Floats = field(default_factory=lambda: np.zeros((0, 3)))  # members x (rows, sum, sum of squares)

    def __call__(self, part_scores: PartScores, rows: Rows) -> Floats:
        table = part_scores.table()
        means, stds = self.means, self.stds
        if self.first and not (len(self._sums) and self._sums[:, 0].min() >= self.first):
            sums = self._add_rows(table)
            means, stds = _scale(sums)
            if not rows.evaluating:
                self._sums, self.means, self.stds = sums, means, stds
        return combined((table - means[:, None]) / stds[:, None], self.rule, self.penalty)

    def _add_rows(self, table: Floats) -> Floats:
        finite = np.isfinite(table)
        scores = np.where(finite, table, 0.0)
        new = np.stack([finite.sum(axis=1), scores.sum(axis=1), np.square(scores).sum(axis=1)], axis=1)
        new = np.array(self.agree(new.ravel().tolist()), np.float64).reshape(new.shape)
        return new + (self._sums if len(self._sums) else 0.0)

    def state(self) -> dict[str, Any]:
        return {"sums": self._sums.tolist()} if len(self._sums) else {}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._sums = np.array(state["sums"], np.float64)
        self.means, self.stds = _scale(self._sums)


def _scale(sums: Floats) -> tuple[Floats, Floats]:
    """Mean and standard deviation of each member; 1 for one that did not vary."""
    rows = np.maximum(sums[:, 0], 1.0)
    means = sums[:, 1] / rows
    stds = np.sqrt(np.maximum(sums[:, 2] / rows - np.square(means), 0.0))
    return means, np.where(stds > 1e-7 * np.abs(means), stds, 1.0)


def ensemble(
    parts: Mapping[str, Part] | Sequence[Part],
    rule: Rule = "min",
    penalty: float = 1.0,
    *,
    scale: MemberScales | None = None,
    agree: Agree | None = None,
    name: str = "ensemble",
    on_infra: OnInfra = "none",
) -> ComposedReward:
    """One reward from several members by `min`, `mean`, `median`, `mean_minus_std` or `mean_minus_variance`.

    Where members disagree, at least one is wrong, and that is where a policy goes. `min` pays what the most sceptical
    member pays; the last two take `penalty` times the population spread off the mean (Coste et al. 2023, arXiv
    2310.02743). What it cannot do: errors that all members share, as they do when trained on the same pairs from the
    same base, pass unseen (Eisenstein et al. 2023, arXiv 2312.09244). A row that a member did not score is None.

    Members must be on one scale: give `scale` the mean and standard deviation of each, in order, on fixed answers,
    or a number of first rows from which to take them. These are then frozen: a scale that followed the policy would
    hide its progress. Until they are, the scale is that of the rows so far; a member that never varied keeps
    its own. The members' components are named "ensemble.0", or by their keys, so that a watched run can tell how far
    they disagree (`reward.disagreement`, from three members on).

    >>> ones = lambda completions, **_: [1.0 for _ in completions]
    >>> size = lambda completions, **_: [float(len(c)) for c in completions]
    >>> reward = ensemble([ones, size], "min")
    >>> reward(completions=["", "abc"]), reward.components
    ([0.0, 1.0], ('ensemble.0', 'ensemble.1'))
    >>> ensemble({"a": ones, "b": size}, "mean_minus_std", penalty=0.5)(completions=["abc"])
    [1.5]
    """
    keyed = parts.items() if isinstance(parts, Mapping) else enumerate(parts)
    members = {f"{name}.{str(key).replace('.', '_')}": part for key, part in keyed}
    combined(np.zeros((len(members), 0)), rule, penalty)  # raises for an unknown rule or no member, before training
    means, stds, first = np.zeros(len(members)), np.ones(len(members)), 0
    if isinstance(scale, int):
        first = scale
        if first < 2:
            raise ValueError("a scale needs at least 2 first rows")
    elif scale is not None:
        if len(scale) != len(members) or any(not std > 0.0 for _, std in scale):
            raise ValueError(f"scale needs the mean and a standard deviation above 0 of each of {len(members)} members")
        means, stds = np.array([mean for mean, _ in scale], float), np.array([std for _, std in scale], float)
    combiner = EnsembleRule(rule, float(penalty), first, agree_or_local(agree, name) if first else list, means, stds)
    fixed = () if first else (means.tolist(), stds.tolist())
    bounds: Bounds = (None, None) if first else _bounds(combiner, [part_bounds(part) for part in members.values()])
    return ComposedReward(
        name, members, combiner, bounds=bounds, settings=(rule, float(penalty), first, fixed), on_infra=on_infra
    )


def _bounds(combiner: EnsembleRule, ends: Sequence[Bounds]) -> Bounds:
    """All rules but the last two rise with every member; the spread only takes away."""
    low = np.array([np.nan if end[0] is None else end[0] for end in ends])
    high = np.array([np.nan if end[1] is None else end[1] for end in ends])
    calm: Rule = "mean" if combiner.rule in ("mean_minus_std", "mean_minus_variance") else combiner.rule
    both = np.stack([low, high], axis=1)
    least, most = combined((both - combiner.means[:, None]) / combiner.stds[:, None], calm).tolist()
    down = None if least != least or calm != combiner.rule else least
    return down, None if most != most or combiner.penalty < 0.0 else most
