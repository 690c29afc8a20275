"""Update rules of a linear-softmax policy: all prompts share a few parameters, as in a network and unlike in a table.

The log-probability of answer y to prompt p is, up to a constant, that of the reference plus features(p, y) · θ. What is
learnt on one prompt therefore moves the answers to every other. Each rule wants the same advantages as its namesake on
tables, and turns them into a step of θ: `tilt` and `natural` by the best fit of the advantages (the natural gradient),
the others along the plain gradient, as optimisers of networks do, exact or sampled.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tiltmeter_lab.worlds.update_rules import (
    EPOCHS,
    FLAT,
    Ints,
    Learner,
    SampledStep,
    advantages,
    clipped_gradient,
    log_softmax,
    mean_towards,
)
from tiltmeter_lab.worlds.world import Floats, World

RIDGE = 1e-3  # of the features' mean square, where they cannot be told apart any more


@dataclass
class LinearLearner(Learner):
    """A policy whose logits are those of the reference plus features times θ; and PPO's value of each prompt."""

    value: Floats = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.value = np.zeros(len(self.start))


def linear_update(learner: Learner, batch: SampledStep) -> None:
    """One step of the world's rule. The logits move by features times a step of θ, and so stay what θ can express."""
    assert isinstance(learner, LinearLearner)
    world, rate = learner.world, learner.world.rate[batch.step]
    mix = np.full(len(batch.policy), 1.0 / len(batch.policy)) if world.mix is None else world.mix[batch.step]
    if world.update in ("tilt", "natural", "gradient"):
        learner.logits += rate * expected_linear_update(world, batch.policy, mix, batch.proxy)
        return
    cells = (np.repeat(batch.prompt, world.group_size), batch.answer.ravel())
    if world.update == "grpo":
        gain = advantages(batch.reward, world.normalise, world.scale).ravel()
        learner.logits += rate * _along_gradient(world, batch.policy, mix, cells, gain)
        return
    reward = batch.reward.ravel() / world.scale
    gain = reward - learner.value[cells[0]]
    mean_towards(learner.value, (cells[0],), reward)
    gain = (gain - gain.mean()) / max(float(gain.std()), FLAT)
    for _ in range(EPOCHS):
        logs = log_softmax(learner.logits)
        pull = clipped_gradient(np.exp(logs[cells] - batch.logs[cells]), gain)
        learner.logits += rate / EPOCHS * _along_gradient(world, np.exp(logs), mix, cells, pull)


def expected_linear_update(
    world: World, policy: Floats, mix: Floats | None = None, proxy: Floats | None = None
) -> Floats:
    """What a rule adds to the logits per unit of rate, on average over what it may sample."""
    proxy = world.proxy if proxy is None else proxy
    mix = np.full(len(policy), 1.0 / len(policy)) if mix is None else mix
    centred = proxy - (policy * proxy).sum(1, keepdims=True)
    variance = (policy * centred**2).sum(1, keepdims=True)
    noise = (world.noise * world.scale) ** 2
    spread: Floats | float = world.scale
    if world.update == "natural":
        spread = np.sqrt(variance)
    elif world.update == "grpo" and world.normalise:
        # An answer is part of the group by which it is standardised: alone among equals it has sqrt(group_size - 1).
        spread = np.sqrt(variance + noise + centred**2 / world.group_size)
    elif world.update == "ppo":
        spread = float(np.sqrt(variance.mean() + noise))
    gain = centred / np.maximum(spread, FLAT * world.scale)
    weight = mix[:, None] * policy
    shifted = _centred_features(world, policy)
    pull = np.einsum("py,pyk,py->k", weight, shifted, gain)
    if world.update not in ("tilt", "natural"):
        return np.asarray(shifted @ (pull / _unit(weight, shifted)), np.float64)
    square = np.einsum("py,pyk,pyl->kl", weight, shifted, shifted)
    square += RIDGE * _unit(weight, shifted) * np.eye(len(square))
    return np.asarray(shifted @ np.linalg.solve(square, pull), np.float64)


def _along_gradient(world: World, policy: Floats, mix: Floats, cells: tuple[Ints, Ints], gain: Floats) -> Floats:
    """The plain policy gradient of sampled answers, as a move of the logits."""
    shifted = _centred_features(world, policy)
    pull = (shifted[cells] * gain[:, None]).mean(0)
    return np.asarray(shifted @ (pull / _unit(mix[:, None] * policy, shifted)), np.float64)


def _centred_features(world: World, policy: Floats) -> Floats:
    assert world.features is not None
    return np.asarray(world.features - np.einsum("py,pyk->pk", policy, world.features)[:, None], np.float64)


def _unit(weight: Floats, shifted: Floats) -> float:
    """The mean square of a feature, so that `rate` means about the same as in a table."""
    return float(np.maximum(np.einsum("py,pyk->", weight, shifted**2) / shifted.shape[2], 1e-9))
