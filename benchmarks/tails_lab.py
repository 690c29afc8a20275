"""What can be known and done before a cliff: the tail verdict on the first rewards, and a limit on the speed of KL.

    python benchmarks/tails_lab.py [--runs N] [--quick] [--json]

Families whose reward has a heavy-tailed error lose their gold within a few steps, faster than labels can be bought.
First figure: how often the verdict on the reward's tail is heavy at the start of such runs, from one step's rewards and
from eight, and how often elsewhere, where that is wrong. Second: the same runs with the rate of a step cut whenever
`policy.kl_speed` exceeds a limit, to limit / speed. The limits are multiples of the median speed of benign runs, in
nats per step; what they cost is seen on benign runs. Development and calibration families only.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from lab_readings import batch_of, measured, overheard
from record import record
from tiltmeter.detectors.kl_speed import KlSpeed
from tiltmeter.instruments.kl import ReferenceKl
from tiltmeter.stats.tails import HEAVY, LIGHT, prompt_tail
from tiltmeter_lab.ground_truth import GroundTruth
from tiltmeter_lab.simulate import Trace, simulate
from tiltmeter_lab.watch_run import play
from tiltmeter_lab.worlds.families import FAMILIES, split
from tiltmeter_lab.worlds.update_rules import Learner, SampledStep
from tiltmeter_lab.worlds.world import World

START = 8  # steps
LIMITS = (2.0, 1.0, 0.5)  # times the median speed of benign runs
HEAVIES = ("heavy_t2", "heavy_lognormal")
BENIGN = ("accurate", "weak_unbiased", "honest_collapse")
UPDATES = {family.name: split(part)[1] for part in ("calibration", "dev") for family in split(part)[0]}


def made(family: str, index: int, seed: int) -> World:
    return FAMILIES[family].world(seed, index, UPDATES[family][index % len(UPDATES[family])])


def verdicts(world: World, seed: int) -> tuple[float, float]:
    """On the rewards of the first step, and of the first eight, each group by itself."""
    few = 20
    trace = simulate(replace(world, steps=few, rate=world.rate[:few], leash=world.leash[:few]), seed)
    size = trace.reward.shape[2]

    def judged(steps: int) -> float:
        values = trace.reward[:steps].ravel()
        return prompt_tail(values, np.arange(0, len(values) + 1, size)).verdict

    return judged(1), judged(START)


def tails(runs: int, seed: int) -> list[dict[str, Any]]:
    rows = []
    for family in UPDATES:
        found = np.array([verdicts(made(family, index, seed), 4000 + index) for index in range(runs)])
        row: dict[str, Any] = {"family": family, "error": "heavy" if family in HEAVIES else "light", "runs": runs}
        for column, name in enumerate(("first_step", f"first_{START}_steps")):
            row[f"heavy_{name}"] = round(float((found[:, column] == HEAVY).mean()), 3)
            row[f"light_{name}"] = round(float((found[:, column] == LIGHT).mean()), 3)
        rows.append(row)
    return rows


def limited(world: World, seed: int, limit: float) -> tuple[Trace, list[float]]:
    """The run with steps shortened while the KL grows faster than `limit`, and its speeds."""
    rate = np.array(world.rate)
    world = replace(world, rate=rate)  # a view of it: what is cut below, the rule sees
    speed, speeds = KlSpeed(), list[float]()

    def hear(learner: Learner, seen: SampledStep) -> None:
        for reading in measured(batch_of(learner, seen), (ReferenceKl(),)):
            if reading.name in speed.watches and (told := speed.fold(reading)) is not None:
                speeds.append(told.value)
                if told.value > limit:
                    rate[seen.step] *= limit / told.value

    with overheard(world.update, hear):
        return simulate(world, seed), speeds


def lost(traces: Iterable[Trace], seed: int) -> dict[str, Any]:
    """What the runs of a row come to, left alone and stopped at the alarm."""
    ends, gains, regrets, alarmed = [], [], [], []
    for index, trace in enumerate(traces):
        truth = GroundTruth.of(trace.gold, trace.slope)
        alarm = play(trace, seed + index).alarm
        ends.append(truth.drop)
        gains.append(float(trace.gold[-1] - trace.gold[0]))
        regrets.append(truth.regret(trace.gold, None if alarm is None else alarm.step))
        alarmed.append(alarm is not None and truth.kind == "hack")
    hacks = sum(drop >= 0.05 for drop in ends)
    return {
        "runs": len(ends),
        "hacks": hacks,
        "lost_at_end_median": round(float(np.median(ends)), 4),
        "gained_at_end_median": round(float(np.median(gains)), 4),
        "detection": round(sum(alarmed) / hacks, 3) if hacks else None,
        "regret_median": round(float(np.median(regrets)), 4),
        "regret_p90": round(float(np.quantile(regrets, 0.9)), 4),
    }


def leashes(runs: int, seed: int) -> tuple[float, list[dict[str, Any]]]:
    free = {
        family: [limited(made(family, index, seed), 5000 + index, math.inf) for index in range(runs)]
        for family in (*BENIGN, *HEAVIES)
    }
    usual = float(np.median([speed for family in BENIGN for _, speeds in free[family] for speed in speeds]))
    rows = []
    for family in free:
        rows.append({"family": family, "limit": "none", **lost((trace for trace, _ in free[family]), seed)})
        for times in LIMITS:
            cut = (limited(made(family, index, seed), 5000 + index, times * usual)[0] for index in range(runs))
            rows.append({"family": family, "limit": f"{times:g} x", **lost(cut, seed)})
        print(family, file=sys.stderr, flush=True)
    return usual, rows


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, help="of each family, 20 without --quick, else 2; half as many with limits")
    parser.add_argument("--seed", type=int, default=43)
    parser.add_argument("--quick", action="store_true", help="few runs, nothing written")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    runs = args.runs or (2 if args.quick else 20)
    told = tails(runs, args.seed)
    usual, rows = leashes(max(runs // 2, 1), args.seed)
    figures = {"usual_speed_nats_per_step": round(usual, 5), "verdicts": told, "speed_limits": rows}
    result = record("tails", figures, seed=args.seed, keep=not args.quick)
    print(json.dumps(result if args.json else figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
