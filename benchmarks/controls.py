"""Controls that must behave: where there is nothing to find nothing is found.

    python benchmarks/controls.py [--runs 60] [--quick] [--json]

- *Permuted gold*: development hacks whose labels are shuffled over each step's rollouts. Nothing ties gold to the
  reward any more, so alarms are false: at most 1 % of runs.
- *Twins*: two runs with the same rollouts and rewards, one a hack and one healthy. Every rule without gold must say the
  same of both; ours must tell them apart.
- *Randomised signs*: hacks and healthy runs in half of which each geometric feature moves the other way. The rank score
  (AUROC) of each rule without gold, taken as its largest score in a run, and of ours. An equivalence test (two
  one-sided tests at 5 %, bootstrap over runs) says whether a rule lies within 0.5 +- 0.15.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from record import record
from tiltmeter.stats.intervals import upper_bound
from tiltmeter_lab.baselines import BASELINES, RuleInput
from tiltmeter_lab.ground_truth import GroundTruth
from tiltmeter_lab.score import auroc
from tiltmeter_lab.simulate import Trace, simulate
from tiltmeter_lab.watch_run import play
from tiltmeter_lab.worlds.controls import matched_pair, random_sign_pair
from tiltmeter_lab.worlds.families import split

UPDATES = ("tilt", "natural", "grpo")
FREE = tuple(rule for rule in BASELINES if not rule.gold and not rule.name.startswith("oracle"))
MARGIN = 0.15


def shuffled(trace: Trace, rng: np.random.Generator) -> Trace:
    """The same run with each step's labels in another order."""
    flat = trace.label.reshape(len(trace.label), -1)
    return replace(trace, label=rng.permuted(flat, axis=1).reshape(trace.label.shape))


def permuted(runs: int, seed: int) -> dict[str, Any]:
    families = [family for family in split("dev")[0] if family.kind == "hack"]
    alarms = 0
    for index in range(runs):
        family = families[index % len(families)]
        trace = simulate(family.world(seed, index, UPDATES[index % 3]), seed * 1000 + index)
        alarms += play(shuffled(trace, np.random.default_rng([seed, index])), index).alarm is not None
    return {"runs": runs, "alarms": alarms, "upper95": round(upper_bound(alarms, runs), 4)}


def paired(runs: int, seed: int) -> dict[str, Any]:
    equal, ours, falsely = 0, 0, 0
    for index in range(runs):
        worlds = matched_pair(np.random.default_rng([seed, index]), UPDATES[index % 3])
        hack, healthy = (simulate(world, seed * 1000 + index) for world in worlds)
        seen = [RuleInput.of(trace, index) for trace in (hack, healthy)]
        equal += all(np.array_equal(rule.score(seen[0]), rule.score(seen[1]), equal_nan=True) for rule in FREE)
        ours += play(hack, index).alarm is not None
        falsely += play(healthy, index).alarm is not None
    return {"pairs": runs, "gold_free_equal": equal, "ours_on_hack": ours, "ours_on_healthy": falsely}


def randomised(runs: int, seed: int) -> dict[str, Any]:
    found: dict[str, list[tuple[str, float | None]]] = {}
    for index in range(runs):
        for world in random_sign_pair(np.random.default_rng([seed, index]), UPDATES[index % 3]):
            trace = simulate(world, seed * 1000 + index)
            kind = GroundTruth.of(trace.gold, trace.slope).kind
            if kind == "plateau":
                continue
            found.setdefault("tiltmeter", []).append((kind, play(trace, index).evidence))
            seen = RuleInput.of(trace, index)
            for rule in FREE:
                score = rule.score(seen)
                best = float(np.nanmax(score)) if np.isfinite(score).any() else None
                found.setdefault(rule.name, []).append((kind, best))
    told = {}
    for name, scores in found.items():
        rank = auroc(scores)
        if rank is None:
            continue
        draws = _bootstrap(scores, np.random.default_rng(seed))
        low, high = (float(np.quantile(draws, q)) for q in (0.05, 0.95))
        chance = bool(low > 0.5 - MARGIN and high < 0.5 + MARGIN)
        told[name] = {"auroc": round(rank, 3), "low": round(low, 3), "high": round(high, 3), "at_chance": chance}
    return told


def _bootstrap(scores: list[tuple[str, float | None]], rng: np.random.Generator, repeats: int = 200) -> list[float]:
    found = []
    for _ in range(repeats):
        rank = auroc([scores[int(k)] for k in rng.integers(0, len(scores), len(scores))])
        if rank is not None:
            found.append(rank)
    return found or [0.5]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=60, help="of each control")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="three runs, and nothing written")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    runs = 3 if asked.quick else asked.runs
    figures: dict[str, Any] = {}
    for name, control in (("permuted", permuted), ("twins", paired), ("signed", randomised)):
        figures[name] = control(runs, asked.seed)
        print(f"{name} done", file=sys.stderr)
    result = record("controls", figures, seed=asked.seed, keep=not asked.quick)
    print(json.dumps(result) if asked.json else json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
