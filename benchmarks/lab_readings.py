"""Runs of the proving ground as a live run would show them: the built-in instruments on the sampled rollouts.

An answer is one token here: its log-probabilities are those of the whole answer, its length is the world's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from tiltmeter.data.batches import from_columns
from tiltmeter.data.records import Reading, RolloutBatch
from tiltmeter.instruments import Instrument
from tiltmeter.instruments.entropy import PolicyEntropy
from tiltmeter.instruments.kl import ReferenceKl
from tiltmeter.instruments.length_mean import LengthMean
from tiltmeter.instruments.reward_mean import RewardMean
from tiltmeter.instruments.reward_spread import RewardSpread
from tiltmeter.instruments.spread_share import SpreadShare
from tiltmeter.monitor.panel import missing_columns, readings
from tiltmeter_lab.simulate import Trace, simulate
from tiltmeter_lab.worlds.update_rules import RULES, Learner, SampledStep
from tiltmeter_lab.worlds.world import World

INSTRUMENTS: tuple[Instrument, ...] = (
    ReferenceKl(),
    PolicyEntropy(),
    LengthMean(),
    RewardMean(),
    RewardSpread(),
    SpreadShare(),
)


@contextmanager
def overheard(update: str, hear: Callable[[Learner, SampledStep], None]) -> Iterator[None]:
    """Every step that this rule learns from is shown to `hear` first, which may still change the step's rate."""
    rule = RULES[update]

    def heard(learner: Learner, seen: SampledStep) -> None:
        hear(learner, seen)
        rule(learner, seen)

    RULES[update] = heard
    try:
        yield
    finally:
        RULES[update] = rule


def batch_of(learner: Learner, seen: SampledStep) -> RolloutBatch:
    """The step as a trainer would hand it over."""
    world, size = learner.world, seen.answer.shape[1]
    cells = (seen.prompt[:, None], seen.answer)
    entropy = -np.einsum("ij,ij->i", seen.policy, seen.logs)[seen.prompt]
    batch = from_columns(
        seen.step,
        np.repeat(np.arange(len(seen.prompt)), size),
        reward=seen.reward.ravel(),
        rewards={name: part[cells].ravel() for name, part in world.parts.items()},
        length=np.ones(seen.answer.size, np.int64),
        logprob=seen.logs[cells].reshape(-1, 1),
        ref_logprob=learner.start[cells].reshape(-1, 1),
        entropy=np.repeat(entropy, size).reshape(-1, 1),
    )
    length = None if world.tokens is None else world.tokens[cells].ravel().astype(np.int64)
    return replace(batch, length=length)


def measured(batch: RolloutBatch, parts: Iterable[Instrument] = INSTRUMENTS) -> list[Reading]:
    return [reading for part in parts if not missing_columns(part, batch) for reading in readings(part, batch, None)]


def watched(world: World, seed: int) -> tuple[Trace, list[Reading]]:
    """The run, and every reading that a warning may watch, in order."""
    found: list[Reading] = []
    with overheard(world.update, lambda learner, seen: found.extend(measured(batch_of(learner, seen)))):
        trace = simulate(world, seed)
    return trace, found
