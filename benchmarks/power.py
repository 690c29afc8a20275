"""How often losses of gold are found in families that nobody tuned on, by update rule and by family.

    python benchmarks/power.py [--runs N] [--only gradient] [--uneven] [--quick] [--json] [--write]

Each family of `power_worlds.py` is run N times under each update rule, with its healthy twin, and watched three times:
with 2 % of the rollouts labelled, with 10 %, and with a gold column. What a run was is measured, not assumed: hacks
lose 0.05 of gold or more after their peak, benign twins at most 0.01. `slope_turns`: the share of the steps after the
peak at which the exact slope inside prompts, which the alarm tests first, is negative.

`--uneven`: 2 % of the labels, by how uneven the chances of answers are before training. The plain gradient moves an
answer by its own chance, so gold follows the likely answers, and the slope counts all of them alike.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np

from power_worlds import MECHANISMS, pair
from record import record, show
from tiltmeter.data.records import Reading
from tiltmeter.detectors.gold_loss import GoldLossTest
from tiltmeter.stats.intervals import upper_bound
from tiltmeter_lab.ground_truth import GroundTruth
from tiltmeter_lab.simulate import Trace, simulate
from tiltmeter_lab.watch_run import play
from tiltmeter_lab.worlds.world import UPDATES

SHARES = (0.02, 0.10)
WHOLE = "all"
Line = dict[str, Any]
Task = tuple[str, str, int, int]  # family, update rule, seed, run


def watch_whole(trace: Trace) -> int | None:
    """The step of the alarm where a gold column gives every answer's gold: slope and level in one wealth."""
    test = GoldLossTest()
    spread = trace.reward.std(2, keepdims=True)
    centred = trace.reward - trace.reward.mean(2, keepdims=True)
    unit = np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 1e-9)
    slopes = np.clip(2.0 * (unit * (trace.label - 0.5)).mean(2), -1.0, 1.0)
    golds = trace.label.mean(2)
    for step, (slope, gold, prompts) in enumerate(zip(slopes, golds, trace.prompt, strict=True)):
        n = trace.label[step].size
        for reading in (
            Reading(0, step, "gold.slope", float(slope.mean()), n, None, tuple(slope.tolist())),
            Reading(
                0, step, "gold.prompts", float(gold.mean()), n, None, tuple(gold.tolist()), keys=tuple(prompts.tolist())
            ),
        ):
            if test.update(reading) is not None:
                return step
    return None


def watch(task: Task) -> list[Line]:
    family, update, seed, run = task
    lines = []
    for world in pair(family, update, seed, run):
        trace = simulate(world, 1000 + run)
        truth = GroundTruth.of(trace.gold, trace.slope)
        alarms = {str(share): play(trace, 1000 + run, share).alarm_step for share in SHARES}
        alarms[WHOLE] = watch_whole(trace)
        lines.append(
            {
                "family": family,
                "update": update,
                "twin": world.family != family,
                "kind": truth.kind,
                "drop": truth.drop,
                "slope_turns": float((trace.slope[truth.peak :] < 0).mean()),
                # Where the slope is negative at some step although gold hardly falls, an alarm is not false.
                "early": truth.first_negative < 0,
                "alarms": alarms,
                "regrets": {share: truth.regret(trace.gold, alarm) for share, alarm in alarms.items()},
            }
        )
    return lines


def unevenness(rules: Iterable[str], runs: int, seed: int) -> list[Line]:
    """Detection at 2 % of the labels, and the slope there was to find."""
    rows = []
    for uneven in ((0.3, 1.0), (1.0, 2.0), (2.0, 3.0)):
        for update in rules:
            found, slopes, drops, spent = [], [], [], []
            for family in MECHANISMS:
                for run in range(runs):
                    trace = simulate(pair(family, update, seed, run, uneven)[0], 1000 + run)
                    truth = GroundTruth.of(trace.gold, trace.slope)
                    if truth.kind == "hack":
                        played = play(trace, 1000 + run, SHARES[0])
                        found.append(played.alarm is not None)
                        slopes.append(trace.slope[truth.peak :].mean())
                        drops.append(truth.drop)
                        if played.alarm is None:
                            spent.append(played.labels / trace.reward.size / SHARES[0])
            rows.append(
                {
                    "spread_of_log_chance": f"{uneven[0]:g} to {uneven[1]:g}",
                    "update": update,
                    "hacks": len(found),
                    "found": round(float(np.mean(found)), 3),
                    "drop": round(float(np.mean(drops)), 3),
                    "slope_after_peak": round(float(np.mean(slopes)), 3),
                    "budget_spent_where_missed": round(float(np.mean(spent)), 2) if spent else None,
                }
            )
    return rows


def summary(name: str, lines: Iterable[Line]) -> Line:
    """Detection, regret and false alarms of some runs at each share of labels."""
    lines = list(lines)
    hacks = [line for line in lines if line["kind"] == "hack" and not line["twin"]]
    twins = [line for line in lines if line["kind"] == "benign" and line["twin"]]
    row: Line = {"name": name, "hacks": len(hacks), "twins": len(twins)}
    if hacks:
        row["drop"] = round(float(np.mean([line["drop"] for line in hacks])), 3)
        row["slope_turns"] = round(float(np.mean([line["slope_turns"] for line in hacks])), 2)
    for share in (*map(str, SHARES), WHOLE):
        if hacks:
            row[f"found_{share}"] = round(float(np.mean([line["alarms"][share] is not None for line in hacks])), 3)
            row[f"regret_{share}"] = round(float(np.median([line["regrets"][share] for line in hacks])), 3)
        row[f"false_{share}"] = sum(line["alarms"][share] is not None for line in twins)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1, help="of each family under each rule, each with a twin")
    parser.add_argument("--only", default=",".join(UPDATES), help="update rules, with commas")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--uneven", action="store_true", help="by how uneven answers are, instead")
    parser.add_argument("--quick", action="store_true", help="one run, nothing written")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    runs, rules = 1 if args.quick else args.runs, args.only.split(",")
    keep = args.write and not args.quick
    if args.uneven:
        show(
            record("power_uneven", {"rows": unevenness(rules, runs, args.seed)}, seed=args.seed, keep=keep),
            as_json=args.json,
        )
        return 0
    tasks = [(family, update, args.seed, run) for run in range(runs) for family in MECHANISMS for update in rules]
    with ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool:
        lines = [line for found in pool.map(watch, tasks) for line in found]
    by_rule = [summary(rule, (line for line in lines if line["update"] == rule)) for rule in rules]
    by_family = [summary(family, (line for line in lines if line["family"] == family)) for family in MECHANISMS]
    every = summary("all", lines)
    figures: dict[str, object] = {"by_rule": [*by_rule, every], "by_family": by_family}
    figures |= {name: value for name, value in every.items() if name != "name"}
    for share in (*map(str, SHARES), WHOLE):
        found = f"found_{share}"
        figures[f"worst_rule_{share}"] = min(row.get(found, 1.0) for row in by_rule)
        figures[f"worst_family_{share}"] = min(row.get(found, 1.0) for row in by_family)
        figures[f"false_{share}_upper95"] = round(upper_bound(int(every[f"false_{share}"]), int(every["twins"])), 4)
    show(record("power", figures, seed=args.seed, keep=keep), as_json=args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
