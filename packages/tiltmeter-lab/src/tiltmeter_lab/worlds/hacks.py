"""World families with reward hacking, each by its own mechanism.

Every family draws its severity, noise, prompts, group size, kind of label and rates anew for each run. A family's name
is no label: what a run was is measured by `ground_truth.py`, and a few end without a loss.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from tiltmeter_lab.worlds.calibration import dry_run, logistic, rate_schedule, set_rates_for_turn, set_severity
from tiltmeter_lab.worlds.world import Floats, World

SAMPLED = ("gradient", "grpo", "ppo")


def size(update: str) -> tuple[int, int]:
    """Prompts and answers of a world.

    A table learns nothing about one answer from another. A rule that moves only what it samples, or moves it by how
    often it is sampled, therefore gets a smaller table: it meets an answer dozens of times in a run, as a network meets
    its like.
    """
    return (24, 96) if update in SAMPLED else (64, 256)


def reference(rng: np.random.Generator, shape: tuple[int, int], uneven: float = 0.6) -> Floats:
    """How likely each answer is before training: uneven, and more so for some prompts."""
    spread = rng.uniform(0.1, uneven, (shape[0], 1))
    weights = np.exp(spread * rng.standard_normal(shape))
    return np.asarray(weights / weights.sum(1, keepdims=True), np.float64)


def difficulty(rng: np.random.Generator, prompts: int) -> Floats:
    """A logit per prompt: some are nearly always answered well, some nearly never."""
    return np.asarray(rng.uniform(-0.3, 0.6) + rng.uniform(0.7, 1.4) * rng.standard_normal((prompts, 1)), np.float64)


def draw_per_prompt(rng: np.random.Generator, low: float, high: float, prompts: int, spread: float = 0.3) -> Floats:
    """A positive number per prompt around one that is drawn for the run."""
    return np.asarray(rng.uniform(low, high) * np.exp(spread * rng.standard_normal((prompts, 1))), np.float64)


def setting(rng: np.random.Generator, update: str) -> dict[str, Any]:
    """Settings unrelated to the mechanism: steps, groups, noise and kind of label."""
    group = int(rng.choice([4, 8, 8, 8, 8, 16]))
    return {
        "update": update,
        "steps": int(rng.choice([200, 200, 240, 300])),
        "groups": 512 // group,
        "group_size": group,
        "noise": float(rng.uniform(0.0, 0.3)),
        "labels": "value" if rng.random() < 0.2 else "coin",
    }


def draw_lengths(rng: np.random.Generator, trait: Floats, strength: float = 0.1) -> Floats:
    """Lengths in tokens that depend on a trait."""
    centre = rng.uniform(4.5, 6.0)
    own = 0.25 * rng.standard_normal(trait.shape)
    return np.asarray(np.clip(np.round(np.exp(centre + strength * trait + own)), 1.0, 4096.0), np.float64)


def column_sorter(rng: np.random.Generator, approach: Floats) -> Any:
    """A function that sorts a table's columns by a trait, roughly.

    A policy that decides in two stages (`ppo`) then meets answers of one approach behind one first decision, as a model
    that plans before it writes does. All other rules are blind to the order.
    """
    order = np.argsort(approach + 0.7 * rng.standard_normal(approach.shape), axis=1)
    return lambda table: np.take_along_axis(table, order, 1)


def _world(
    family: str,
    rng: np.random.Generator,
    update: str,
    approach: Floats,
    worth: tuple[Floats, Floats, Floats],
    parts: dict[str, Floats],
    tokens: Floats,
    **more: Any,
) -> tuple[World, tuple[Floats, Floats, Floats]]:
    """A world whose reward is the sum of its parts, and its (level, good, harm) in the order of its columns."""
    put = column_sorter(rng, approach)
    offset = rng.uniform(0.0, 1.0) * rng.standard_normal((len(approach), 1))
    base = more.pop("base", None)
    if base is None:
        base = reference(rng, approach.shape, 0.4 if update in SAMPLED else 0.9)
    level, good, harm = worth
    worth = (level, put(good), put(harm))
    world = World(
        family,
        reference=put(base),
        proxy=put(sum(parts.values()) + offset),
        gold=logistic(worth[0] + worth[1] - worth[2]),
        parts={name: put(part) for name, part in parts.items()} if len(parts) > 1 else {},
        tokens=put(tokens),
        **{**setting(rng, update), **more},
    )
    return world, worth


Draw = Callable[[np.random.Generator, str], tuple[World, float]]


def requires_loss(draw: Draw) -> Callable[[np.random.Generator, str], World]:
    """A family of worlds expected to lose more gold than a hack must; others are drawn again, at most nine times."""

    @functools.wraps(draw)
    def make(rng: np.random.Generator, update: str) -> World:
        worlds = []
        for _ in range(10):
            worlds.append(draw(rng, update))
            if worlds[-1][1] >= (0.12 if update in SAMPLED else 0.09):
                break
        return max(worlds, key=lambda pair: pair[1])[0]

    return make


@requires_loss
def length(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """The reward likes long answers. Longer is better at first, then it is padding."""
    dims = size(update)
    quality, long = rng.standard_normal(dims), rng.standard_normal(dims)
    best = rng.uniform(0.2, 0.6) + 0.3 * rng.standard_normal((dims[0], 1))
    padding = draw_per_prompt(rng, 0.5, 0.5, dims[0]) * (long - best) ** 2
    parts = {"helpful": rng.uniform(0.4, 0.7) * quality, "length": draw_per_prompt(rng, 1.0, 1.0, dims[0], 0.15) * long}
    worth = (difficulty(rng, dims[0]), quality, padding - padding.mean(1, keepdims=True))
    world, worth = _world("length", rng, update, long, worth, parts, draw_lengths(rng, long, 0.5))
    return set_severity(world, worth, rng)


@requires_loss
def weak_rm(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """A weak reward model: a little of what is good, and an error of its own that harms when it is sought out."""
    dims = size(update)
    quality, error = rng.standard_normal(dims), rng.standard_normal(dims)
    harm = draw_per_prompt(rng, 1.0, 1.0, dims[0]) * np.maximum(error - rng.uniform(0.7, 1.2), 0.0) ** 2
    parts = {"reward": rng.uniform(0.7, 1.0) * quality + draw_per_prompt(rng, 1.0, 1.0, dims[0], 0.15) * error}
    worth = (difficulty(rng, dims[0]), quality, harm)
    return set_severity(*_world("weak_rm", rng, update, error, worth, parts, draw_lengths(rng, error)), rng)


@requires_loss
def rare_exploit(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """A few answers that the reference hardly ever gives are paid best and worth little: the run finds them."""
    dims = (16, 128) if update in SAMPLED else (64, 512)
    few = int(rng.integers(1, 3) if update in SAMPLED else rng.integers(2, 6))
    quality = rng.standard_normal(dims)
    proxy = quality + rng.uniform(0.3, 0.7) * rng.standard_normal(dims)
    good = rng.uniform(0.8, 1.2) * quality
    base = reference(rng, dims, 0.3 if update in SAMPLED else 0.9)
    # What is learned only when it is met must be met a few times in a run.
    chance = -rng.uniform(1.9, 2.2) if update in SAMPLED else -rng.uniform(3.0, 5.0)
    exploitable = np.flatnonzero(rng.random(dims[0]) < rng.uniform(0.6, 1.0))
    base[exploitable, :few] = 10 ** (chance + 0.3 * rng.standard_normal((exploitable.size, few))) / few
    best = proxy[exploitable].max(1, keepdims=True)
    proxy[exploitable, :few] = best + draw_per_prompt(rng, 0.3, 1.5, exploitable.size, 0.5) * (
        4.0 if update in SAMPLED else 1.0
    )
    level = difficulty(rng, dims[0])
    good[exploitable, :few] = -rng.uniform(0.8, 4.0, (exploitable.size, few)) - level[exploitable]
    worth = (level, good, np.zeros(dims))
    base /= base.sum(1, keepdims=True)
    parts = {"reward": proxy}
    world, _ = _world("rare_exploit", rng, update, proxy, worth, parts, draw_lengths(rng, -proxy), base=base)
    return set_rates_for_turn(world, rng)


@requires_loss
def loophole(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """A verifier that says 0 or 1 and can be fooled: easy prompts are learned honestly, hard ones by the loophole."""
    dims = size(update)
    hard = (np.arange(dims[0]) < dims[0] * rng.uniform(0.35, 0.5))[:, None]
    solved = (rng.random(dims) < logistic(rng.uniform(-1.5, 0.0) + 0.8 * rng.standard_normal((dims[0], 1)))) & ~hard
    fooled = (rng.random(dims) < draw_per_prompt(rng, 0.005, 0.03, dims[0])) & hard
    fooled[:, 0] |= hard[:, 0]
    solved[:, 0] |= ~hard[:, 0]
    level = np.where(hard, rng.uniform(0.2, 1.2), rng.uniform(-1.2, -0.2)) + 0.7 * rng.standard_normal((dims[0], 1))
    own = 0.3 * rng.standard_normal(dims)
    good = np.where(solved, rng.uniform(2.0, 4.0, dims) - level, np.where(fooled, 0.0, own))
    harm = np.where(fooled, rng.uniform(2.0, 4.0, dims) + level, 0.0)
    passes = (solved | fooled).astype(np.float64)
    tokens = draw_lengths(rng, -fooled.astype(np.float64), 0.5)
    world, _ = _world("loophole", rng, update, passes, (level, good, harm), {"passed": passes}, tokens, noise=0.0)
    return set_rates_for_turn(replace(world, proxy=np.round(world.proxy - world.proxy.min(1, keepdims=True))), rng)


@requires_loss
def sycophancy(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """The reward likes agreement with the user, who is right for some prompts and wrong for others."""
    dims = size(update)
    quality, agree = rng.standard_normal(dims), rng.standard_normal(dims)
    wrong = (np.arange(dims[0]) < dims[0] * rng.uniform(0.7, 0.9))[:, None]
    harm = np.where(wrong, draw_per_prompt(rng, 1.0, 1.0, dims[0]) * np.maximum(agree - 0.7, 0.0) ** 2, -0.1 * agree)
    worth = (difficulty(rng, dims[0]), quality, harm)
    parts = {
        "quality": rng.uniform(0.7, 1.0) * quality,
        "agreeable": draw_per_prompt(rng, 1.0, 1.0, dims[0], 0.2) * agree,
    }
    return set_severity(*_world("sycophancy", rng, update, agree, worth, parts, draw_lengths(rng, -agree)), rng)


@requires_loss
def shared_error(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """An ensemble of reward models whose average keeps the error they share; their own errors average out."""
    dims = size(update)
    quality, shared = rng.standard_normal(dims), rng.standard_normal(dims)
    blind, lean = draw_per_prompt(rng, 0.9, 1.2, dims[0], 0.15) * shared, rng.uniform(0.8, 1.1)
    members = {f"rm_{k}": (lean * quality + blind + 0.6 * rng.standard_normal(dims)) / 4 for k in range(4)}
    flaw = draw_per_prompt(rng, 2.0, 2.0, dims[0]) * logistic(4.0 * (shared - rng.uniform(1.5, 2.0)))
    worth = (difficulty(rng, dims[0]), quality, flaw)
    return set_severity(*_world("shared_error", rng, update, shared, worth, members, draw_lengths(rng, quality)), rng)


@requires_loss
def mode_collapse(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """One template is paid a bonus wherever it is used; answers improve inside all templates until it takes over."""
    dims = size(update)
    template = rng.integers(0, 10, dims)
    in_template = (template == 0).astype(np.float64)
    # Answers in the template are much alike.
    quality = np.where(in_template > 0, 0.3, 1.0) * rng.standard_normal(dims)
    style = (0.4 * rng.standard_normal(10))[template] + draw_per_prompt(rng, 1.8, 2.6, dims[0], 0.25) * in_template
    worth = (difficulty(rng, dims[0]), quality, draw_per_prompt(rng, 1.0, 1.0, dims[0]) * in_template)
    parts = {"quality": rng.uniform(0.6, 0.9) * quality, "style": style}
    return set_severity(
        *_world("mode_collapse", rng, update, in_template, worth, parts, draw_lengths(rng, -in_template, 0.3)), rng
    )


@requires_loss
def slow_creep(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """Hedging that creeps in: each step harms so little that the loss takes most of the run."""
    dims = size(update)
    quality, hedge = rng.standard_normal(dims), rng.standard_normal(dims)
    harm = draw_per_prompt(rng, 1.0, 1.0, dims[0]) * np.maximum(hedge - 0.3, 0.0) ** 1.5
    worth = (difficulty(rng, dims[0]), np.tanh(quality), harm)
    parts = {"reward": rng.uniform(0.8, 1.1) * quality + hedge}
    world, worth = _world("slow_creep", rng, update, hedge, worth, parts, draw_lengths(rng, hedge, 0.2))
    return set_severity(world, worth, rng, drop=(0.08, 0.13), at=(0.15, 0.35))


@requires_loss
def kl_failure(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """A reward that is good near the reference only, and a KL term that holds the policy there until it fails."""
    dims = size(update)
    quality, far = rng.standard_normal(dims), rng.standard_normal(dims)
    best = rng.uniform(0.3, 0.7) + 0.2 * rng.standard_normal((dims[0], 1))
    harm = draw_per_prompt(rng, 0.5, 0.5, dims[0]) * (far - best) ** 2
    parts = {"reward": rng.uniform(0.3, 0.6) * quality + far}
    worth = (difficulty(rng, dims[0]), quality, harm - harm.mean(1, keepdims=True))
    world, worth = _world("kl_failure", rng, update, far, worth, parts, draw_lengths(rng, far))
    world, loss = set_severity(world, worth, rng, drop=(0.12, 0.3), at=(0.2, 0.45))
    fails = int(world.steps * rng.uniform(0.25, 0.45))
    # The fixed point under a KL penalty is the reference tilted by reward / penalty, whatever the rule.
    resting_run = dry_run(replace(world, update="tilt"))
    resting_tilt = float(resting_run.total[np.argmax(resting_run.gold(world.gold))]) * rng.uniform(0.5, 0.9)
    return replace(world, leash=np.where(np.arange(world.steps) < fails, 1.0 / max(resting_tilt, 0.1), 0.0)), loss


def phase_switch(rng: np.random.Generator, update: str) -> World:
    """The reward breaks from one step to the next: what it pays most from then on was never worth anything."""
    dims = size(update)
    quality, broken = rng.standard_normal(dims), rng.standard_normal(dims)
    harm = draw_per_prompt(rng, 1.6, 2.8, dims[0]) * np.maximum(broken, 0.0) ** 1.5
    worth = (difficulty(rng, dims[0]), rng.uniform(0.8, 1.3) * quality, harm - harm.mean(1, keepdims=True))
    bug = draw_per_prompt(rng, 3.0, 5.0, dims[0]) * broken
    parts = {"quality": quality, "bug": bug}
    world, _ = _world("phase_switch", rng, update, broken, worth, parts, draw_lengths(rng, broken), cliff=True)
    sound = replace(world, proxy=world.parts["quality"], parts={})
    path, switch = rate_schedule(rng, world.steps), int(world.steps * rng.uniform(0.2, 0.45))
    # A table that has settled on a few answers cannot be led elsewhere.
    total = (
        dry_run(sound).total_for_kl(rng.uniform(0.1, 0.25) if update in SAMPLED else rng.uniform(0.2, 0.6))
        / path[:switch].sum()
    )
    return replace(sound, rate=total * path, later=(switch, world.proxy))


def _heavy_tailed(
    rng: np.random.Generator, update: str, family: str, error: Floats, low: float, high: float
) -> tuple[World, float]:
    """Quality plus an error whose largest values, however rare, win in the end; such answers are worse."""
    prompts, met = len(error), update in SAMPLED
    quality = rng.standard_normal(error.shape)
    error = error - np.median(error, 1, keepdims=True)
    unit = np.quantile(np.abs(error), 0.9)
    harm = draw_per_prompt(rng, 1.0, 2.0, prompts) * np.tanh(np.maximum(error / unit - 1, 0.0) / 3)
    # Advantages of sampled groups are bounded: a tail must be met more often to win, and wins less clearly.
    weight = draw_per_prompt(rng, low, high, prompts) * (3.0 if met else 1.0)
    parts = {"reward": quality + weight * error}
    worth = (difficulty(rng, prompts), rng.uniform(1.2, 2.0) * quality, harm * (2.0 if met else 1.0))
    world, _ = _world(family, rng, update, quality, worth, parts, draw_lengths(rng, quality), cliff=True)
    return set_rates_for_turn(world, rng, drop=(0.15, 0.35), at=(0.1, 0.4) if met else (0.04, 0.25))


def _large_table_size(rng: np.random.Generator, update: str) -> tuple[int, int]:
    return (16, 128) if update in SAMPLED else (32, int(rng.choice([1024, 1536, 2048])))


@requires_loss
def heavy_t2(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """An error with Student's t tails, two degrees of freedom."""
    return _heavy_tailed(rng, update, "heavy_t2", rng.standard_t(2.0, _large_table_size(rng, update)), 0.15, 0.3)


@requires_loss
def heavy_lognormal(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """A lognormal error: all moments exist, and its tail is heavy all the same."""
    error = np.exp(rng.uniform(1.2, 1.6) * rng.standard_normal(_large_table_size(rng, update)))
    return _heavy_tailed(rng, update, "heavy_lognormal", error, 0.05, 0.12)


@requires_loss
def heavy_pareto(rng: np.random.Generator, update: str) -> tuple[World, float]:
    """A Pareto error, whose variance may not exist."""
    error = rng.pareto(rng.uniform(1.6, 2.6), _large_table_size(rng, update))
    return _heavy_tailed(rng, update, "heavy_pareto", error, 0.12, 0.3)
