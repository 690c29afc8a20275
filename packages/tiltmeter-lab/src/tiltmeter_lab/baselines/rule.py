"""The input of a baseline rule, and the rule itself.

Labels are spent evenly: the same number at every step, of answers drawn uniformly from the step's rollouts. KL and
entropy are those of the whole answer, in nats, and exact: free of the noise of a trainer's own estimates, which favours
the rules that read them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from tiltmeter_lab.simulate import Ints, Trace
from tiltmeter_lab.worlds.world import Floats

Group = Literal["level", "slope", "geometry", "oracle"]
SHARE = 0.02


def _no_steps() -> Ints:
    return np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class RuleInput:
    """What a monitoring rule reads of a run. A missing series is None; rules that need it give no score.

    `of` makes one from a run of the proving ground; a log of another tool gives the series that it has.

    >>> seen = RuleInput(proxy=np.linspace(0.3, 0.8, 500), gold=np.full(500, 0.5))
    >>> seen.kl is None, seen.steps
    (True, 500)
    """

    proxy: Floats  # mean reward of each step
    gold: Floats  # mean label of each step; NaN where nothing was labelled
    kl: Floats | None = None
    entropy: Floats | None = None
    reward: Floats | None = None  # steps x rollouts
    advantage: Floats | None = None  # steps x rollouts: reward in units of its group's standard deviation, mean 0
    reward_sd: Floats | None = None  # of all rollouts of a step
    group_sd: Floats | None = None  # steps x groups
    length: Floats | None = None  # mean of each step
    lengths: Floats | None = None  # steps x rollouts
    parts: dict[str, Floats] = field(default_factory=dict)  # mean of each component of the reward by step
    group_size: int = 1
    label_step: Ints = field(default_factory=_no_steps)  # one entry per label, in the order of asking
    label_row: Ints = field(default_factory=_no_steps)  # which rollout of its step
    label: Floats = field(default_factory=lambda: np.zeros(0))
    hidden: Trace | None = None  # for oracles alone

    @property
    def steps(self) -> int:
        return len(self.proxy)

    @classmethod
    def of(cls, trace: Trace, seed: int, share: float = SHARE) -> RuleInput:
        """A run with this share of its rollouts labelled; a fraction of a label is carried to the next step.

        >>> from tiltmeter_lab.simulate import simulate
        >>> from tiltmeter_lab.worlds.world import World
        >>> world = World("toy", reference=[[0.5, 0.5]], proxy=[[0.0, 1.0]], gold=[[1.0, 0.0]], groups=5, steps=20)
        >>> seen = RuleInput.of(simulate(world, 0), seed=0)
        >>> seen.label_step[:5].tolist(), len(seen.label)
        ([1, 2, 3, 4, 6], 16)
        """
        steps, groups, size = trace.reward.shape
        rows = groups * size
        rng = np.random.Generator(np.random.Philox(key=[seed, 2]))
        # A little above the product: 0.02 * 50 labels must not fall short of 1 by rounding.
        due = np.floor(share * rows * np.arange(steps + 1) + 1e-9).astype(np.int64)
        counts = np.minimum(np.diff(due), rows)
        row = np.concatenate([rng.choice(rows, count, replace=False) for count in counts] or [_no_steps()])
        step = np.repeat(np.arange(steps), counts)
        label = trace.label.reshape(steps, rows)[step, row]
        total = np.bincount(step, label, steps)
        spread = trace.reward.std(2)
        # A group whose rewards are equal up to rounding teaches nothing.
        dead = spread < 1e-9 * (1 + np.abs(trace.reward).max(2))
        centred = trace.reward - trace.reward.mean(2, keepdims=True)
        advantage = np.where(dead[..., None], 0.0, centred / np.where(dead, 1.0, spread)[..., None])
        reward = trace.reward.reshape(steps, rows)
        lengths = None if trace.tokens is None else trace.tokens.reshape(steps, rows)
        return cls(
            proxy=reward.mean(1),
            gold=np.divide(total, counts, out=np.full(steps, np.nan), where=counts > 0),
            kl=trace.kl,
            entropy=trace.entropy,
            reward=reward,
            advantage=advantage.reshape(steps, rows),
            reward_sd=reward.std(1),
            group_sd=spread,
            length=None if lengths is None else lengths.mean(1),
            lengths=lengths,
            parts=trace.parts,
            group_size=size,
            label_step=step,
            label_row=row,
            label=label,
            hidden=trace,
        )


@dataclass(frozen=True)
class BaselineRule:
    """A baseline rule: one score per step, higher = more suspicious, NaN = not enough data yet.

    It alarms at the first step whose score exceeds a threshold: `published`, or one chosen on benign runs so that rules
    are compared at equal false alarms. A rule of several conditions is one score whose crossing of `published` is the
    rule as published.
    """

    name: str
    group: Group
    source: str  # who uses it
    published: float
    rule: Callable[[RuleInput], Floats]
    gold: bool  # whether it reads labels
    needs: tuple[str, ...] = ()  # fields of `RuleInput` without which it gives no score

    def score(self, run: RuleInput) -> Floats:
        """The rule's number for every step; NaN throughout where the run lacks what the rule reads."""
        if any(getattr(run, name) is None for name in self.needs):
            return np.full(run.steps, np.nan)
        return self.rule(run)


def first_alarm(score: Floats, threshold: float) -> int | None:
    """The first step whose score exceeds the threshold.

    >>> first_alarm(np.array([np.nan, 0.1, 0.4, 0.2]), 0.3), first_alarm(np.array([0.1]), 0.3)
    (2, None)
    """
    above = np.asarray(score) > threshold
    return int(np.argmax(above)) if above.any() else None
