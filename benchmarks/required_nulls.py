"""False alarms at the boundary null, where gold has nothing to do with the reward: tests that hold and tests that fail.

    python benchmarks/required_nulls.py [--runs N] [--quick] [--json]

Every run has 200 looks of 10 labels, groups of 8, money put in ten times, alpha 1%. Rewards are normal, lognormal or
Student's t with 2 degrees of freedom; a label is good with chance 0.5, 0.8 or 0.95, whatever the reward. So the
covariance of gold and reward is exactly zero, and every alarm is false. Compared are:

    purse              one answer drawn by its positive advantage, one by its negative, 5 pairs a look; bets as shipped
    pair               the same pairs with fixed instalments
    weighted           one answer of a group, drawn by |advantage|
    recentred          one answer drawn uniformly, advantages clipped at 1.5 and centred again
    uncentred          the same without centring again
    uncentred_raw      advantages in units of a scale measured before the run, clipped at 3, not centred again
    peeked_z           a z-test of the slope at nominal 1%, looked at 200 times, from 30 labels on

The first four are promised to alarm in at most 1% of runs. The last three are what one would write down first. The
purse is slower to compute, so it has half as many runs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from record import record, show
from tiltmeter.stats.betting import GRID, add_instalment, initial_wealth
from tiltmeter.stats.intervals import upper_bound
from tiltmeter.stats.wealth import Wealth

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LOOKS, LABELS, SIZE, BLOCK = 200, 10, 8, 20
ALPHA, Z = 0.01, 2.3263
REWARDS = ("normal", "lognormal", "t2")
GOLDS = (0.5, 0.8, 0.95)
HOLDS = ("purse", "pair", "weighted", "recentred")
FAILS = ("uncentred", "uncentred_raw", "peeked_z")
CHUNK = 100


def rewards(kind: str, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    drawn = rng.standard_normal(shape)
    if kind == "lognormal":
        return np.exp(drawn)
    # Half a chi square with 2 degrees of freedom is a standard exponential.
    return drawn / np.sqrt(rng.standard_exponential(shape)) if kind == "t2" else drawn


def drawn_by(weight: Floats, rng: np.random.Generator) -> Ints:
    """One index of each group, with chance in proportion to its weight."""
    climbing = np.cumsum(weight, axis=-1)
    aim = rng.random(weight.shape[:-1]) * climbing[..., -1]
    return np.asarray((climbing <= aim[..., None]).sum(-1).clip(0, SIZE - 1), np.int64)


def at(values: Floats, index: Ints) -> Floats:
    return np.take_along_axis(values, index[..., None], axis=-1)[..., 0]


def bets(reward: Floats, gold: Floats, scale: float, rng: np.random.Generator) -> Iterator[tuple[str, Floats]]:
    """The u of every test, runs x looks x labels; of the z-test its x."""
    spread = reward.std(-1, keepdims=True)
    centred = (reward - reward.mean(-1, keepdims=True)) * SIZE / (SIZE - 1)
    advantage = centred / spread
    weight = np.abs(advantage).mean(-1)
    pairs = slice(0, LABELS // 2)
    half = advantage[:, :, pairs]
    up, down = (drawn_by(np.maximum(side, 0.0), rng) for side in (half, -half))
    difference = at(gold[:, :, pairs], up) - at(gold[:, :, pairs], down)
    yield "pair", weight[:, :, pairs] * (SIZE - 1) / SIZE * difference
    chosen = drawn_by(np.abs(advantage), rng)
    bound = SIZE / (2.0 * (SIZE - 1.0))
    yield "weighted", weight * np.sign(at(advantage, chosen)) * (at(gold, chosen) - 0.5) / bound
    # The answers of a group are exchangeable, so the first is as good as one drawn uniformly.
    label = gold[..., 0] - 0.5
    clipped = np.clip(advantage, -1.5, 1.5)
    # |A'| <= 2 C (1 - 1 / G) and |g - 1/2| <= 1/2.
    yield "recentred", (clipped[..., 0] - clipped.mean(-1)) * label / (1.5 * (1.0 - 1.0 / SIZE))
    yield "uncentred", clipped[..., 0] * label / 0.75
    yield "uncentred_raw", np.clip(centred[..., 0] / scale, -3.0, 3.0) * label / 1.5
    yield "peeked_z", advantage[..., 0] * label


def alarms(u: Floats) -> NDArray[np.bool_]:
    """Which runs ever reach 1 / alpha, with bets and instalments as `stats.betting` has them."""
    wealth = np.tile(initial_wealth(), (len(u), 1))
    gains = np.stack([np.log((1.0 - stake * u).prod(-1)) for stake in GRID], axis=-1)
    found = np.zeros(len(u), bool)
    for look in range(u.shape[1]):
        if look % BLOCK == 0:
            wealth = add_instalment(wealth, 1 + look // BLOCK)
        wealth = wealth + gains[:, look]
        top = wealth.max(1)
        found |= top + np.log(np.exp(wealth - top[:, None]).sum(1)) >= np.log(1.0 / ALPHA)
    return found


def purse_alarms(u: Floats) -> NDArray[np.bool_]:
    """Which runs ever reach 1 / alpha with the purse that the alarm uses."""
    return np.array([_emptied(run) for run in u])


def _emptied(run: Floats) -> bool:
    purse = Wealth()
    for look, us in enumerate(run):
        purse.place("gold.slope", look, us.tolist())
        if purse.evidence >= np.log(1.0 / ALPHA):
            return True
    return False


def z_alarms(x: Floats) -> NDArray[np.bool_]:
    """Which runs ever have a mean of x below zero at nominal 1%."""
    count = LABELS * np.arange(1.0, LOOKS + 1.0)
    mean, square = (np.cumsum((x**power).sum(-1), axis=1) / count for power in (1, 2))
    z = mean / np.sqrt((square - mean**2) / (count - 1.0))
    return np.asarray((z[:, count >= 30] < -Z).any(1))


def cell(kind: str, good: float, runs: int, rng: np.random.Generator) -> dict[str, int]:
    """False alarms of every test among so many runs."""
    scale = float(rewards(kind, rng, (2_000, SIZE)).std(1).mean())
    found = dict.fromkeys((*HOLDS, *FAILS), 0)
    for begin in range(0, runs, CHUNK):
        shape = (min(CHUNK, runs - begin), LOOKS, LABELS, SIZE)
        reward = rewards(kind, rng, shape)
        gold = (rng.random(shape, np.float32) < good).astype(np.float64)
        for name, u in bets(reward, gold, scale, rng):
            found[name] += int((z_alarms(u) if name == "peeked_z" else alarms(u)).sum())
            if name == "pair" and begin < runs // 2:
                found["purse"] += int(purse_alarms(u).sum())
    return found


def measure(runs: int, seed: int) -> dict[str, object]:
    started = time.process_time()
    cells = []
    for index, (kind, good) in enumerate((kind, good) for kind in REWARDS for good in GOLDS):
        counts = cell(kind, good, runs, np.random.Generator(np.random.Philox(key=[seed, index])))
        tried = dict.fromkeys(counts, runs) | {"purse": max(runs // 2 // CHUNK, 1) * min(CHUNK, runs)}
        bounds = {f"{name}_upper95": round(upper_bound(counts[name], tried[name]), 5) for name in HOLDS}
        shares = {name: round(count / tried[name], 5) for name, count in counts.items()}
        cells.append({"reward": kind, "mean_gold": good, **shares, **bounds})
        print(cells[-1], file=sys.stderr, flush=True)

    def rates(name: str) -> list[float]:
        return [float(str(row[name])) for row in cells]

    return {
        "runs_per_cell": runs,
        "looks": LOOKS,
        "labels": LOOKS * LABELS,
        "restarts": LOOKS // BLOCK,
        "alpha": ALPHA,
        **{f"{name}_worst": max(rates(name)) for name in (*HOLDS, *FAILS)},
        **{f"{name}_worst_upper95": max(rates(f"{name}_upper95")) for name in HOLDS},
        "peeked_z_least": min(rates("peeked_z")),
        "cells": cells,
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=4_000, help="per reward and mean gold")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="100 runs, and nothing written")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    runs = 100 if asked.quick else asked.runs
    result = record("required_nulls", measure(runs, asked.seed), seed=asked.seed, keep=runs >= 4_000)
    show(result, as_json=asked.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
