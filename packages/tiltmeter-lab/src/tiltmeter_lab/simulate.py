"""Simulate a run of a world: what a monitor can observe, and the exact gold, KL and slope."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tiltmeter_lab.worlds.linear_policy import LinearLearner, linear_update
from tiltmeter_lab.worlds.update_rules import RULES, SampledStep, make_learner
from tiltmeter_lab.worlds.world import Floats, World

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Trace:
    """One run. The first axis is the step; `label` is the gold label of each rollout, if it were requested.

    Exact, from the tables: `gold`, `proxy`, `kl`, `entropy` of the policy that made the step's answers, and `slope`,
    the change of gold per unit of standardised reward that the next update follows.
    """

    prompt: Ints  # steps x groups
    reward: Floats  # steps x groups x group_size
    label: Floats
    tokens: Floats | None
    parts: dict[str, Floats]  # mean of each component of the reward by step
    gold: Floats
    proxy: Floats
    kl: Floats
    entropy: Floats
    slope: Floats
    normalised: bool = True  # the optimiser's advantages are divided by their group's standard deviation


def simulate(world: World, seed: int) -> Trace:
    """Simulate a run. Rollouts and labels have separate random streams: if only gold differs, rollouts do not.

    >>> tables = {"reference": [[0.25] * 4], "proxy": [[0.0, 1.0, 2.0, 3.0]], "gold": [[0.2, 0.6, 0.9, 0.1]]}
    >>> world = World("toy", **tables, steps=60)
    >>> trace = simulate(world, seed=1)
    >>> trace.reward.shape, bool(trace.gold.max() > trace.gold[-1]), bool(trace.kl[0] == 0)
    ((60, 64, 8), True, True)
    """
    draws, coins = (np.random.Generator(np.random.Philox(key=[seed, stream])) for stream in (0, 1))
    prompts = len(world.reference)
    learner = make_learner(world) if world.features is None else LinearLearner(world)
    rule = RULES[world.update] if world.features is None else linear_update
    equal = np.full(prompts, 1.0 / prompts)
    shape = (world.steps, world.groups, world.group_size)
    prompt = np.empty(shape[:2], np.int64)
    reward, label, answers = np.empty(shape), np.empty(shape), np.empty(shape, np.int64)
    exact = np.empty((5, world.steps))
    parts = {name: np.empty(world.steps) for name in world.parts}
    noise = world.noise * world.scale
    for step in range(world.steps):
        mix = equal if world.mix is None else world.mix[step]
        proxy = world.proxy if world.later is None or step < world.later[0] else world.later[1]
        policy, logs = learner.policy()
        exact[:, step] = _exact(world, policy, logs, proxy, mix, learner.start)
        chosen = draws.choice(prompts, world.groups, p=mix)
        answer = _sample_answers(policy[chosen], draws.random(shape[1:]))
        cells = (chosen[:, None], answer)
        paid = proxy[cells] + (noise * draws.standard_normal(shape[1:]) if noise else 0.0)
        prompt[step], reward[step], answers[step] = chosen, paid, answer
        worth = world.gold[cells]
        label[step] = worth if world.labels == "value" else coins.random(shape[1:]) < worth
        for name, part in world.parts.items():
            parts[name][step] = part[cells].mean()
        rule(learner, SampledStep(step, policy, logs, proxy, chosen, answer, paid))
    tokens = None if world.tokens is None else world.tokens[prompt[:, :, None], answers]
    gold, mean, kl, entropy, slope = exact
    return Trace(prompt, reward, label, tokens, parts, gold, mean, kl, entropy, slope, world.normalised)


def _exact(world: World, policy: Floats, logs: Floats, proxy: Floats, mix: Floats, start: Floats) -> tuple[float, ...]:
    """Gold, proxy, KL, entropy and slope of a policy, by summation."""

    def sums(table: Floats) -> Floats:
        return np.asarray(np.einsum("ij,ij->i", policy, table), np.float64)

    mean = sums(proxy)
    centred = proxy - mean[:, None]
    spread = np.sqrt(sums(centred**2)) if world.normalised else np.full_like(mean, world.scale)
    # A prompt whose answers are all paid alike has no slope; dividing by next to nothing would only show rounding.
    slope = np.where(spread > 1e-6 * (1 + np.abs(mean)), sums(centred * world.gold), 0.0) / np.maximum(spread, 1e-6)
    values = (sums(world.gold), mean, sums(logs - start), -sums(logs), slope)
    return tuple(float(mix @ value) for value in values)


def _sample_answers(policy: Floats, uniform: Floats) -> Ints:
    """For each row of probabilities, the answers that uniform numbers pick."""
    rows = np.arange(len(policy))[:, None]
    cumulative = np.cumsum(policy, axis=1)
    cumulative /= cumulative[:, -1:]
    # One sorted array for all rows: row k lies in (k, k + 1].
    positions = np.searchsorted((cumulative + rows).ravel(), (uniform + rows).ravel(), side="left")
    return np.asarray(positions.reshape(uniform.shape) - rows * policy.shape[1], np.int64).clip(0, policy.shape[1] - 1)
