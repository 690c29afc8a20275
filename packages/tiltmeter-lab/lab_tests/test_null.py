"""The promise of the alarm on runs in which gold is not being lost, through the parts that ship."""

from __future__ import annotations

from functools import cache
from math import log

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.sizes import size

from tiltmeter.data.records import Floats, Reading
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.gold.sampler import Sampler
from tiltmeter_lab.baselines.rule import RuleInput
from tiltmeter_lab.baselines.slopes import uncentred
from tiltmeter_lab.simulate import Trace
from tiltmeter_lab.watch_run import WatchResult, play

Coins = NDArray[np.bool_]

RUNS, STEPS, GROUPS, SIZE, SHARE = 60, 40, 12, 8, 0.2
LEVELS = (0.01, 0.05, 0.2)  # a chance of at most this much to ever reach its inverse
REWARDS = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "lognormal": lambda rng, shape: rng.lognormal(0.0, 1.5, shape),
    "t2": lambda rng, shape: rng.standard_t(2, shape),
}


def most(runs: int, chance: float) -> int:
    """A number of runs that a chance of this size exceeds less than once in a thousand times."""
    counts = np.random.default_rng(0).binomial(runs, chance, 200_000)
    return int(np.quantile(counts, 0.999))


def made(reward: Floats, label: Coins, prompts: int = 40, seed: int = 0) -> Trace:
    """A run as the proving ground has it, from rewards and labels alone."""
    steps, groups, _ = reward.shape
    prompt = np.random.default_rng(seed).integers(0, prompts, (steps, groups))
    unknown = np.zeros(steps)
    return Trace(prompt, reward, label.astype(np.float64), None, {}, unknown, unknown, unknown, unknown, unknown)


def boundary(kind: str, gold: float, seed: int) -> Trace:
    """Labels that have nothing to do with the reward: slope zero, level constant, the edge of every null."""
    rng = np.random.default_rng([seed, len(kind)])
    shape = (STEPS, GROUPS, SIZE)
    return made(REWARDS[kind](rng, shape), rng.random(shape) < gold, seed=seed)


@cache
def highest(kind: str, gold: float, delay: int) -> Floats:
    """The largest evidence of each run."""
    seeds = range(RUNS)
    return np.array([play(boundary(kind, gold, seed), seed, SHARE, delay=delay).evidence for seed in seeds])


def check(evidence: Floats) -> None:
    for level in LEVELS:
        assert (evidence >= log(1.0 / level)).sum() <= most(len(evidence), level)


EDGES = (("normal", 0.5, 0), ("lognormal", 0.95, 0), ("t2", 0.8, 0), ("lognormal", 0.8, 5))[: size(2, 4)]


@pytest.mark.parametrize(("kind", "gold", "delay"), EDGES)
def test_at_the_edge_of_the_null_alarms_are_as_rare_as_promised(kind: str, gold: float, delay: int) -> None:
    check(highest(kind, gold, delay))


def test_over_all_edges_together_alarms_are_as_rare_as_promised() -> None:
    check(np.concatenate([highest(*edge) for edge in EDGES]))


def test_clipped_advantages_that_are_not_centred_again_break_the_promise_on_the_same_runs() -> None:
    """Rewards with a long tail and mostly good answers: mean gold leaks into what claims to be a slope."""
    traces = [boundary("lognormal", 0.95, seed) for seed in range(RUNS)]
    evidence = [uncentred(RuleInput.of(trace, 0, 0.5), 1.5, True).max() for trace in traces]
    with pytest.raises(AssertionError):
        check(np.array(evidence))
    check(highest("lognormal", 0.95, 0))


def fair(rng: np.random.Generator, count: int, skew: float) -> tuple[float, ...]:
    """Values of mean zero: a likely small loss for the bettor and a rare large gain, or the other way round."""
    rare, common = (1.0, -skew) if rng.random() < 0.5 else (-1.0, skew)
    hit = rng.random(count) < skew / (1.0 + skew)
    return tuple(np.where(hit, rare, common).tolist())


def adversary(seed: int) -> float:
    """The largest evidence against a run that chooses how much it shows, and how, by the evidence so far."""
    rng, gold_test, largest = np.random.default_rng(seed), GoldLossTest(alpha=1e-9), 0.0
    for step in range(60):
        ahead = gold_test.evidence > 0.5
        for name in ("gold.slope", "gold.duel"):
            count = int(rng.integers(1, 4)) if ahead else int(rng.integers(4, 25))
            us = fair(rng, count, 1.0 if ahead else float(rng.choice([0.05, 0.3, 1.0])))
            if not ahead and rng.random() < 0.3:
                us = tuple(abs(u) for u in us)  # lulls the belief: a healthy step, when there is nothing to lose
            if rng.random() < 0.8:
                gold_test.update(Reading(0, step, name, float(np.mean(us)), count, None, us))
                largest = max(largest, gold_test.evidence)
    return largest


def test_a_run_that_reacts_to_the_evidence_gains_nothing_by_it() -> None:
    check(np.array([adversary(seed) for seed in range(100)]))


def audited(seed: int) -> float:
    """Rewards whose spread, skew and dead groups react to what the audit found, with labels of their own."""
    rng, sampler, gold_test, largest = np.random.default_rng(seed), Sampler(SHARE, STEPS), GoldLossTest(alpha=1e-9), 0.0
    starts, prompts = np.arange(0, GROUPS * SIZE + 1, SIZE), list(range(GROUPS))
    for step in range(STEPS):
        tail = 2.0 if gold_test.evidence > 0.2 else 0.5
        advantage = rng.lognormal(0.0, tail, GROUPS * SIZE)
        advantage[np.repeat(rng.random(GROUPS) < (0.5 if gold_test.evidence > 0.2 else 0.1), SIZE)] = 0.0
        advantage[rng.random(GROUPS * SIZE) < 0.05] = np.nan
        if gold_test.evidence < 0.0 and rng.random() < 0.2:
            sampler.boost()
        found: dict[str, list[float]] = {"slope": [], "duel": []}
        for bet in sampler.draw(0, step, advantage, starts, prompts, rng):
            up, down = rng.random(2) < 0.7
            found[bet.purpose].append(bet.weight * (float(up) - float(down)))
        sampler.close(found["slope"], found["duel"])
        for name, us in found.items():
            if us:
                gold_test.update(Reading(0, step, f"gold.{name}", float(np.mean(us)), len(us), None, tuple(us)))
                largest = max(largest, gold_test.evidence)
    return largest


def test_a_reward_that_reacts_to_the_audit_gains_nothing_by_it() -> None:
    check(np.array([audited(seed) for seed in range(60)]))


def turned(seed: int, delay: int) -> WatchResult:
    """From step 15 on the better paid answer is the worse one, mostly."""
    rng = np.random.default_rng(seed)
    reward = rng.normal(size=(60, GROUPS, SIZE))
    lean = np.where(np.arange(60) < 15, 0.15, -0.2)[:, None, None]
    return play(made(reward, rng.random(reward.shape) < 0.5 + lean * reward), seed, SHARE, delay=delay)


def test_labels_that_come_late_find_the_same_turn_later() -> None:
    waits = []
    for delay in (0, 5):
        alarms = [turned(seed, delay).alarm for seed in range(12)]
        steps = [alarm.step for alarm in alarms if alarm is not None]
        assert len(steps) >= 11
        assert min(steps) > 15
        waits.append(float(np.median(steps)) + delay)  # the step of the data, and how long its labels took
    assert waits[0] + 3 <= waits[1] <= waits[0] + 20
