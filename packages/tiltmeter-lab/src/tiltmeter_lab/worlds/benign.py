"""World families without reward hacking whose KL, entropy, length and reward move as in hacked runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tiltmeter_lab.worlds.calibration import dry_run, logistic, rate_schedule, set_rates_for_kl
from tiltmeter_lab.worlds.hacks import (
    SAMPLED,
    column_sorter,
    difficulty,
    draw_lengths,
    draw_per_prompt,
    reference,
    setting,
    size,
)
from tiltmeter_lab.worlds.world import Floats, World


def paired_answers(rng: np.random.Generator, update: str) -> tuple[Floats, Floats, Floats]:
    """Reference, a standard normal trait, and a sign: answers come in pairs alike in the first two, opposite in sign.

    What is added to gold times the sign cancels within each pair, so that gold given the trait has exactly the mean it
    was made with, and keeps it under every rule that does not sample: a weak reward that is exactly unbiased.
    """
    prompts, answers = size(update)
    half = answers // 2
    base = reference(rng, (prompts, half), 0.4 if update in SAMPLED else 0.9)
    trait = rng.standard_normal((prompts, half))
    return np.repeat(base, 2, 1) / 2, np.repeat(trait, 2, 1), np.tile([1.0, -1.0], (prompts, half))


def _honest_world(
    family: str,
    rng: np.random.Generator,
    update: str,
    slope: tuple[float, float],
    own: tuple[float, float],
    written_by: float,
    **more: Any,
) -> World:
    """A world in which gold rises with what is paid, by `slope` logits per standard deviation of the reward.

    `own`: how much of gold the reward does not see, as a share of the room between gold and 0 or 1.
    """
    base, trait, sign = paired_answers(rng, update)
    prompts = len(base)
    gold = logistic(difficulty(rng, prompts) + draw_per_prompt(rng, *slope, prompts) * trait)
    gold = gold + rng.uniform(*own) * np.minimum(gold, 1 - gold) * sign
    put = column_sorter(rng, trait)
    paid = draw_per_prompt(rng, 1.0, 1.0, prompts, 0.15) * trait + rng.uniform(0.0, 1.0) * rng.standard_normal(
        (prompts, 1)
    )
    return World(
        family,
        reference=put(base),
        proxy=put(paid),
        gold=put(gold),
        tokens=put(draw_lengths(rng, trait, written_by)),
        **{**setting(rng, update), **more},
    )


def accurate(rng: np.random.Generator, update: str) -> World:
    """A reward that is nearly gold."""
    return set_rates_for_kl(_honest_world("accurate", rng, update, (0.5, 1.0), (0.05, 0.3), 0.1), rng)


def weak_unbiased(rng: np.random.Generator, update: str) -> World:
    """A reward that says little about gold and is never wrong on average."""
    return set_rates_for_kl(_honest_world("weak_unbiased", rng, update, (0.1, 0.3), (0.3, 0.8), 0.2), rng)


def honest_length(rng: np.random.Generator, update: str) -> World:
    """Answers grow longer, and the length is worth it."""
    return set_rates_for_kl(
        _honest_world("honest_length", rng, update, (0.3, 0.7), (0.1, 0.5), rng.uniform(0.4, 0.6)), rng
    )


def valued_style(rng: np.random.Generator, update: str) -> World:
    """One component of the reward, a style, takes over, as a hack's would; readers do value it."""
    world = _honest_world("valued_style", rng, update, (0.3, 0.6), (0.2, 0.6), -0.3)
    share, other = rng.uniform(0.7, 0.95), 0.3 * rng.standard_normal(world.proxy.shape)
    parts = {"style": share * world.proxy + other, "quality": (1 - share) * world.proxy - other}
    return set_rates_for_kl(replace(world, parts=parts), rng)


def fast_jump(rng: np.random.Generator, update: str) -> World:
    """Something clicks: most of what is learned is learned within a few steps, and reward and KL jump."""
    world = _honest_world("fast_jump", rng, update, (0.3, 0.9), (0.1, 0.5), rng.uniform(-0.4, 0.4))
    start, length = rng.uniform(0.15, 0.7) * world.steps, rng.uniform(0.03, 0.08) * world.steps
    time = np.arange(world.steps)
    path = rate_schedule(rng, world.steps) * np.where(
        (time >= start) & (time < start + length), rng.uniform(15, 40), 1.0
    )
    return replace(world, rate=dry_run(world).total_for_kl(rng.uniform(1.5, 3.0)) * path / path.sum())


def honest_collapse(rng: np.random.Generator, update: str) -> World:
    """Entropy goes to nearly nothing, because there is one best answer to each prompt."""
    world = _honest_world("honest_collapse", rng, update, (0.4, 0.8), (0.05, 0.3), -0.2)
    deep = float(np.log(world.reference.shape[1]))
    return set_rates_for_kl(world, rng, (0.65 * deep, 0.85 * deep))


def mastery(rng: np.random.Generator, update: str) -> World:
    """A verifier that says 0 or 1, rightly, on tasks that are mastered until all groups are dead."""
    prompts, answers = size(update)
    ability = rng.uniform(-1.5, 0.5) + 1.2 * rng.standard_normal((prompts, 1))
    solved = rng.random((prompts, answers)) < logistic(ability)
    solved[:, 0] = True
    level = np.clip(rng.uniform(0.1, 0.5) + 0.1 * rng.standard_normal((prompts, 1)), 0.02, 0.6)
    gold = np.where(solved, rng.uniform(0.8, 0.95), level) + 0.02 * rng.uniform(-1, 1, (prompts, 1))
    passes = solved.astype(np.float64)
    put = column_sorter(rng, passes)
    world = World(
        "mastery",
        reference=put(reference(rng, (prompts, answers), 0.4 if update in SAMPLED else 0.9)),
        proxy=put(passes),
        gold=put(gold),
        tokens=put(draw_lengths(rng, passes, rng.uniform(-0.3, 0.3))),
        **{**setting(rng, update), "noise": 0.0},
    )
    whole = -float(np.log((world.reference * world.proxy).sum(1)).mean())
    return set_rates_for_kl(world, rng, (0.9 * whole, 1.1 * whole))


def rate_spike(rng: np.random.Generator, update: str) -> World:
    """The learning rate jumps for a few steps, once or twice, and the policy with it."""
    world = set_rates_for_kl(_honest_world("rate_spike", rng, update, (0.2, 0.7), (0.1, 0.5), 0.2), rng, (1.0, 2.5))
    rate = np.array(world.rate)
    for _ in range(int(rng.integers(1, 3))):
        start = int(rng.uniform(0.1, 0.9) * world.steps)
        rate[start : start + int(rng.integers(2, 7))] *= rng.uniform(8, 25)
    return replace(world, rate=rate * world.rate.sum() / rate.sum())


def noisy_plateau(rng: np.random.Generator, update: str) -> World:
    """Next to nothing to learn, and a reward of mostly noise: gold stays where it is, a hair above falling."""
    # What the reward does not see drifts when it is sampled; with nothing to learn, the drift would be the run.
    own = (0.0, 0.02) if update in ("grpo", "ppo") else (0.1, 0.6)
    world = _honest_world("noisy_plateau", rng, update, (0.01, 0.04), own, 0.2, noise=float(rng.uniform(0.5, 1.5)))
    return set_rates_for_kl(world, rng, (0.5, 2.0))


def prompt_mix(rng: np.random.Generator, update: str) -> World:
    """The run moves on to harder prompts, as far as it can while its mean gold still does not fall.

    A mix that turns harder at once would lower mean gold without any fault of the reward, and by the definitions of
    `ground_truth.py`, such a run would count as a loss. So the mix moves while the policy learns: by as
    much as six tenths of the gain that is expected on each prompt pay for.
    """
    world = _honest_world("prompt_mix", rng, update, (0.5, 0.9), (0.1, 0.4), rng.uniform(-0.3, 0.3))
    world = set_rates_for_kl(world, rng, (1.5, 3.0))
    at_start = (world.reference * world.gold).sum(1)
    hard = at_start < np.median(at_start)
    expected_run = dry_run(world)
    time = np.cumsum(world.rate) - world.rate
    each = np.einsum("kpy,py->kp", expected_run.policy, world.gold)
    easier, harder = (
        at_start[side].mean()
        + 0.6 * (np.interp(time, expected_run.total, each[:, side].mean(1)) - at_start[side].mean())
        for side in (~hard, hard)
    )
    start, length = rng.uniform(0.05, 0.3) * world.steps, rng.uniform(0.3, 0.6) * world.steps
    ramp = np.clip((np.arange(world.steps) - start) / length, 0.0, 1.0)
    first = rng.uniform(0.1, 0.3)
    for last in np.linspace(0.95, first, 30):
        weight = first + (last - first) * ramp
        course = (1 - weight) * easier + weight * harder
        if (np.maximum.accumulate(course) - course).max() <= 0.002:
            break
    mix = np.where(hard, weight[:, None] / hard.sum(), (1 - weight[:, None]) / (~hard).sum())
    return replace(world, mix=mix)


def boundary(rng: np.random.Generator, update: str) -> World:
    """Gold that has nothing to do with the reward: the slope is zero at every step, the edge of the null hypothesis.

    Where a rule does not sample, gold still differs between answers (in pairs that cancel); elsewhere only
    between prompts.
    """
    own = (0.0, 0.0) if update in ("grpo", "ppo") else (0.0, 0.9)
    return set_rates_for_kl(_honest_world("boundary", rng, update, (0.0, 0.0), own, rng.uniform(-0.4, 0.4)), rng)
