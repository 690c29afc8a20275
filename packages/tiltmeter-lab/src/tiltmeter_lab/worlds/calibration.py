"""Calibrate learning rates and severities of simulated runs, so that they are comparable across update rules.

A rate means something else under every rule (the plain gradient hardly moves rare answers, the exact tilt moves all
alike), so a family sets no rates. It sets the final KL of its run or the step of its peak; a dry run of the
rule's expected update finds the total rate, and where asked the severity, that does so; and a path drawn at random
spreads the total over the steps. Only gold, reward and KL are looked at here, never a detector.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tiltmeter_lab.worlds.linear_policy import expected_linear_update
from tiltmeter_lab.worlds.update_rules import FLAT, LAMBDA, Learner, two_stage_table
from tiltmeter_lab.worlds.world import Floats, World

#: Root mean square of what each dry step adds to the log-probabilities of likely answers: short at first, because some
#: worlds turn at once.
STRIDES = np.geomspace(0.005, 0.35, 48)


@dataclass(frozen=True, eq=False)
class ExpectedRun:
    """The expected path of a policy: its probabilities and its KL after a total rate of `total`."""

    total: Floats
    kl: Floats
    policy: Floats  # points x prompts x answers

    def gold(self, table: Floats) -> Floats:
        return np.asarray(np.einsum("kpy,py->k", self.policy, table) / len(table), np.float64)

    def total_for_kl(self, kl: float) -> float:
        """The total rate that takes the policy this far from the reference."""
        return float(np.interp(kl, self.kl, self.total))


def dry_run(world: World) -> ExpectedRun:
    """Dry run: steps of fixed lengths along the expected update, without the KL penalty."""
    learner = Learner(world)
    total, kls, policies = [0.0], [], []
    for stride in STRIDES:
        policy, logs = learner.policy()
        policies.append(policy)
        kls.append(float((policy * (logs - learner.start)).sum(1).mean()))
        gain = expected_update(world, policy)
        length = float(np.sqrt((policy * (gain - (policy * gain).sum(1, keepdims=True)) ** 2).sum(1).mean()))
        # The rate is bounded where nearly nothing is left to learn.
        rate = stride / max(length, 0.05)
        learner.logits += rate * gain
        total.append(total[-1] + rate)
    return ExpectedRun(np.array(total[:-1]), np.maximum.accumulate(kls), np.array(policies))


def expected_update(world: World, policy: Floats) -> Floats:
    """What a rule adds to the logits per unit of rate, on average over what it may sample."""
    if world.features is not None:
        return expected_linear_update(world, policy)
    mean = (policy * world.proxy).sum(1, keepdims=True)
    centred = world.proxy - mean
    if world.update == "tilt":
        return np.asarray(centred / world.scale, np.float64)
    variance = (policy * centred**2).sum(1, keepdims=True)
    if world.update == "natural":
        return np.asarray(centred / np.maximum(np.sqrt(variance), FLAT * world.scale), np.float64)
    if world.update == "gradient":
        return np.asarray(centred / world.scale * policy / (policy**2).sum(1, keepdims=True), np.float64)
    if world.update == "ppo":
        return np.asarray(centred / _batch_std(world, policy, centred), np.float64)
    if not world.normalise:
        return np.asarray(centred / world.scale, np.float64)
    # An answer is part of the group by which it is standardised: alone among equals it has sqrt(group_size - 1).
    spread = np.sqrt(variance + (world.noise * world.scale) ** 2 + centred**2 / world.group_size)
    return np.asarray(centred / np.maximum(spread, FLAT * world.scale), np.float64)


def _batch_std(world: World, policy: Floats, centred: Floats) -> float:
    """Divisor of `ppo`: the standard deviation of both decisions' generalised advantages over the batch."""
    chance, gain = two_stage_table(policy), two_stage_table(centred)
    first = chance.sum(2, keepdims=True)
    lead = (chance * gain).sum(2, keepdims=True) / np.maximum(first, 1e-300)
    between, within = (first * lead**2).sum((1, 2)).mean(), (chance * (gain - lead) ** 2).sum((1, 2)).mean()
    noise = (world.noise * world.scale) ** 2
    return max(float(np.sqrt((between + (1 + LAMBDA**2) * (within + noise)) / 2)), FLAT * world.scale)


def rate_schedule(rng: np.random.Generator, steps: int) -> Floats:
    """A path of rates that sums to one: constant, warmed up, decaying, or both."""
    time = np.arange(steps) / steps
    path = np.ones(steps)
    if rng.random() < 0.4:
        path *= np.minimum(1.0, (time + 1 / steps) / rng.uniform(0.02, 0.15))
    if rng.random() < 0.5:
        path *= 1 - rng.uniform(0.2, 0.7) * time
    return np.asarray(path / path.sum(), np.float64)


def set_rates_for_kl(world: World, rng: np.random.Generator, kl: tuple[float, float] = (1.0, 3.0)) -> World:
    """The world with rates under which its policy is expected to end at a drawn KL from the reference."""
    return replace(world, rate=dry_run(world).total_for_kl(rng.uniform(*kl)) * rate_schedule(rng, world.steps))


def set_rates_for_turn(
    world: World,
    rng: np.random.Generator,
    drop: tuple[float, float] = (0.1, 0.3),
    at: tuple[float, float] = (0.15, 0.6),
) -> tuple[World, float]:
    """The world with rates at which its gold is expected to fall by a drawn amount after a peak inside `at`.

    The range of the peak has precedence: a world that falls too fast or too little for the amount drawn falls by less
    or more. The second value is the loss to expect. Sampling moves it; `ground_truth.py` says what a run was.
    """
    expected_run, path = dry_run(world), rate_schedule(rng, world.steps)
    gold = expected_run.gold(world.gold)
    peak = max(int(np.argmax(gold)), 1)
    after = gold[peak] - gold[peak:]
    low = np.flatnonzero(after >= min(rng.uniform(*drop), 0.95 * after.max()))
    early, late = np.cumsum(path)[(np.array(at) * world.steps).astype(int)]
    total = np.clip(
        expected_run.total[peak + low[0]], expected_run.total[peak] / late, expected_run.total[peak] / early
    )
    return replace(world, rate=total * path), float(gold[peak] - np.interp(total, expected_run.total, gold))


def set_severity(
    world: World,
    worth: tuple[Floats, Floats, Floats],
    rng: np.random.Generator,
    drop: tuple[float, float] = (0.1, 0.3),
    at: tuple[float, float] = (0.15, 0.6),
    rise: float = 0.06,
) -> tuple[World, float]:
    """The world with gold logistic(level + strength (good - severity harm)) that rises, turns and falls as drawn.

    `worth` is (level, good, harm). The run goes to a drawn KL. Of a grid of severities and strengths it takes the one
    whose expected gold comes nearest to falling by a drawn amount after a peak near a drawn step, with a rise before
    it. The second value is the loss to expect.
    """
    level, good, harm = worth
    expected_run, path = dry_run(world), rate_schedule(rng, world.steps)
    is_tabular = world.update in ("gradient", "grpo", "ppo")
    # The plain gradient ends on a handful of answers per prompt, whose gold is chance; sampling makes the loss less.
    end = expected_run.total_for_kl(rng.uniform(*((1.0, 2.5) if is_tabular else (1.5, 3.0))))
    turn_at, target_drop = rng.uniform(*at), rng.uniform(*drop) + (0.03 if is_tabular else 0.0)
    near = np.unique(
        np.searchsorted(expected_run.total, np.linspace(0.0, end, 25)).clip(max=len(expected_run.total) - 1)
    )
    points, steps = (
        expected_run.policy[near],
        np.searchsorted(np.cumsum(path) * end, expected_run.total[near]) / world.steps,
    )
    best, chosen, loss = np.inf, world.gold, 0.0
    for strength in (0.7, 1.0, 1.4, 2.0, 2.8):
        for severity in np.geomspace(0.05, 4.0, 12):
            gold = logistic(level + strength * (good - severity * harm))
            course = np.einsum("kpy,py->k", points, gold) / len(gold)
            peak = int(np.argmax(course))
            short = max(target_drop - (course[peak] - course[-1]), 0.0), max(rise - (course[peak] - course[0]), 0.0)
            miss = (
                10 * short[0]
                + 10 * short[1]
                + abs(steps[peak] - turn_at)
                + abs(course[peak] - course[-1] - target_drop)
            )
            if miss < best:
                best, chosen, loss = miss, gold, float(course[peak] - course[-1])
    return replace(world, gold=chosen, rate=end * path), loss


def logistic(value: Floats) -> Floats:
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(value, -50.0, 50.0))), np.float64)
