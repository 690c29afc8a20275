"""Control worlds: pairs that differ in gold alone, and pairs whose KL, entropy and length trends are random."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tiltmeter_lab.worlds.calibration import logistic, set_severity
from tiltmeter_lab.worlds.hacks import (
    SAMPLED,
    difficulty,
    draw_lengths,
    draw_per_prompt,
    length,
    mode_collapse,
    reference,
    requires_loss,
    setting,
    size,
    weak_rm,
)
from tiltmeter_lab.worlds.world import Floats, World


def rising_gold(world: World, rng: np.random.Generator) -> Floats:
    """Gold for a world's answers that grows with what they are paid, prompt by prompt."""
    mean = (world.reference * world.proxy).sum(1, keepdims=True)
    spread = np.sqrt((world.reference * (world.proxy - mean) ** 2).sum(1, keepdims=True))
    slope = draw_per_prompt(rng, 0.2, 0.7, len(mean))
    return logistic(difficulty(rng, len(mean)) + slope * (world.proxy - mean) / np.maximum(spread, 1e-9))


def matched_pair(rng: np.random.Generator, update: str) -> tuple[World, World]:
    """A hack and a healthy run with the same reference, reward, lengths, rates and settings: only gold differs.

    Run with the same seed, they give the same rollouts, rewards, KL and entropy, bit for bit; so whatever a statistic
    without gold says of the one, it says of the other.

    >>> hack, healthy = matched_pair(np.random.default_rng(0), "tilt")
    >>> bool((hack.proxy == healthy.proxy).all()), bool((hack.gold == healthy.gold).all())
    (True, False)
    """
    makers = (length, weak_rm, mode_collapse)
    hack = replace(makers[int(rng.integers(len(makers)))](rng, update), family="twin_hack")
    return hack, replace(hack, family="twin_benign", gold=rising_gold(hack, rng))


def random_sign_pair(rng: np.random.Generator, update: str) -> tuple[World, World]:
    """A hack and a healthy run in which the direction of every geometric feature is random.

    Answers grow longer or shorter, entropy falls or first rises (the reference then prefers what is paid least), and
    one component of the reward gains or loses share. The coins are tossed for each run apart, so no sign tells a hack.
    """
    # Both are drawn and calibrated as hacks, so that tables and rates carry no information either.
    hack, other = (_random_sign_world(rng, update) for _ in range(2))
    return replace(hack, family="signed_hack"), replace(other, family="signed_benign", gold=rising_gold(other, rng))


def _random_sign_world(rng: np.random.Generator, update: str) -> World:
    signs = np.where(rng.random(3) < 0.5, 1.0, -1.0)
    # Tossed once: a world drawn again keeps its signs, or those that fall more easily would be chosen.
    return requires_loss(lambda rng, update: _signed_world(rng, update, signs))(rng, update)


def _signed_world(rng: np.random.Generator, update: str, signs: Floats) -> tuple[World, float]:
    dims = size(update)
    longer, spreads, first = signs
    quality, error = rng.standard_normal(dims), rng.standard_normal(dims)
    paid = rng.uniform(0.7, 1.0) * quality + error
    base = reference(rng, dims, 0.4 if update in SAMPLED else 0.9)
    back = (0.8 if update in SAMPLED else 1.4) * (spreads > 0)
    base *= np.exp(-back * paid / paid.std())
    base /= base.sum(1, keepdims=True)
    other = -first * paid + 0.3 * rng.standard_normal(dims)
    world = World(
        "signed",
        reference=base,
        proxy=paid,
        gold=np.full(dims, 0.5),
        tokens=draw_lengths(rng, longer * paid, 0.4),
        parts={"one": paid - other, "other": other},
        **setting(rng, update),
    )
    harm = draw_per_prompt(rng, 1.0, 1.0, dims[0]) * np.maximum(error + 0.75 * back - rng.uniform(0.5, 1.0), 0.0) ** 2
    return set_severity(world, (difficulty(rng, dims[0]), quality, harm), rng)
