"""World families in which gold falls although the slope inside prompts does not turn: the policy shares parameters.

Inside every prompt, what is paid is worth having, or has nothing to do with worth. Gold falls because of what one
prompt's reward does to the answers of another, or because one parameter moves two traits. An alarm that tests inside
prompts is blind to that, and rightly silent: its null is true. Held out: no detector was tuned on them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tiltmeter_lab.worlds.calibration import logistic, set_rates_for_kl, set_rates_for_turn
from tiltmeter_lab.worlds.hacks import difficulty, draw_lengths, draw_per_prompt, reference, requires_loss, setting
from tiltmeter_lab.worlds.world import Floats, World

SHAPE = (24, 96)  # prompts and answers
SPARE = 3  # parameters that have nothing to do with reward or gold
PACE = (0.6, 1.8)  # KL at the end, where gold does not say how far to go


def _traits(rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """Two traits of each answer, and further ones, all independent inside a prompt."""
    return rng.standard_normal(SHAPE), rng.standard_normal(SHAPE), rng.standard_normal((*SHAPE, SPARE))


def _world(
    family: str,
    rng: np.random.Generator,
    update: str,
    proxy: Floats,
    worth: Floats,
    features: list[Floats],
    spare: Floats,
) -> World:
    return World(
        family,
        reference=reference(rng, SHAPE, 0.4),
        proxy=proxy,
        gold=logistic(worth),
        tokens=draw_lengths(rng, features[0], rng.uniform(-0.2, 0.2)),
        features=np.concatenate([np.stack(features, 2), spare], 2),
        **{**setting(rng, update), "noise": 0.0},
    )


def _part(rng: np.random.Generator, low: float, high: float) -> NDArray[np.bool_]:
    """Which prompts belong to a part of this share, as a column."""
    return (np.arange(SHAPE[0]) < round(SHAPE[0] * rng.uniform(low, high)))[:, None]


def _harm(rng: np.random.Generator, trait: Floats) -> Floats:
    """What a trait costs once there is too much of it, in logits of gold."""
    return np.asarray(
        draw_per_prompt(rng, 1.5, 3.5, SHAPE[0]) * np.maximum(trait - rng.uniform(0.5, 1.1), 0.0) ** 1.5, np.float64
    )


@requires_loss
def forgetting(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """Half of the prompts are mastered: all their answers are paid alike. What the others teach undoes them."""
    style, _, spare = _traits(rng)
    mastered = _part(rng, 0.45, 0.65)
    harm = _harm(rng, style)
    good = rng.uniform(1.0, 2.0) * np.tanh(style)
    worth = np.where(mastered, rng.uniform(1.0, 2.0) - harm, difficulty(rng, SHAPE[0]) + good)
    world = _world("forgetting", rng, update, np.where(mastered, 1.0, style), worth, [style], spare)
    return set_rates_for_turn(world, rng)


@requires_loss
def transfer(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """Two kinds of prompts, each paid for what it needs; what helps the one kind spoils the other."""
    style, care, spare = _traits(rng)
    other = _part(rng, 0.45, 0.65)
    harm = _harm(rng, style)
    good = rng.uniform(1.0, 2.0) * np.tanh(style)
    level = difficulty(rng, SHAPE[0])
    worth = level + np.where(other, 0.8 + rng.uniform(0.2, 0.5) * np.tanh(care) - harm, good)
    proxy = np.where(other, rng.uniform(0.3, 0.8) * care, style)
    return set_rates_for_turn(_world("transfer", rng, update, proxy, worth, [style, care], spare), rng)


@requires_loss
def bottleneck(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """One parameter moves two traits: one that is paid and worth having, and one that nobody pays and that harms."""
    quality, side, spare = _traits(rng)
    harm = _harm(rng, side)
    worth = difficulty(rng, SHAPE[0]) + rng.uniform(0.8, 1.6) * np.tanh(quality) - harm
    coupled = quality + rng.uniform(0.8, 1.6) * side
    return set_rates_for_turn(_world("bottleneck", rng, update, quality, worth, [coupled], spare), rng)


@requires_loss
def loud_parameter(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """A flaw that is paid little and easy to learn: a plain gradient follows it before its price shows inside prompts.

    The natural gradient weighs it as it is paid, so that under it gold turns with the slope.
    """
    quality, side, spare = _traits(rng)
    worth = difficulty(rng, SHAPE[0]) + rng.uniform(0.8, 1.6) * np.tanh(quality) - _harm(rng, side)
    proxy = quality + rng.uniform(0.3, 0.5) * side
    return set_rates_for_turn(
        _world("loud_parameter", rng, update, proxy, worth, [quality, rng.uniform(1.2, 1.8) * side], spare), rng
    )


def helpful_transfer(rng: np.random.Generator, update: str) -> World:
    """Two kinds of prompts, and what helps the one helps the other a little."""
    style, care, spare = _traits(rng)
    other = _part(rng, 0.4, 0.7)
    good = draw_per_prompt(rng, 0.5, 1.5, SHAPE[0]) * np.tanh(style)
    worth = difficulty(rng, SHAPE[0]) + np.where(other, 0.3 * good + rng.uniform(0.2, 0.5) * np.tanh(care), good)
    proxy = np.where(other, rng.uniform(0.3, 0.8) * care, style)
    return set_rates_for_kl(_world("helpful_transfer", rng, update, proxy, worth, [style, care], spare), rng, PACE)


def boundary_shared(rng: np.random.Generator, update: str) -> World:
    """Gold that differs between prompts alone: nothing that is learnt changes it, and the reward rises."""
    style, care, spare = _traits(rng)
    worth = np.broadcast_to(difficulty(rng, SHAPE[0]), SHAPE)
    return set_rates_for_kl(_world("boundary_shared", rng, update, style + care, worth, [style], spare), rng, PACE)
