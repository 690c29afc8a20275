"""The level test of gold: how much is lost at its alarm, where it says the fall began, and how often it is wrong.

    python benchmarks/level.py [--json] [--write] [--runs N]

The recorded runs of the tiny language model with every answer labelled, the level alone at its share of the money; and
simulated runs whose gold does not fall, for the alarm and for the advice to stop.
"""

from __future__ import annotations

import argparse
import sys
from math import log

import numpy as np

from record import record, show
from tiltmeter.data.records import Reading
from tiltmeter.detectors.level_stakes import LEVEL_SHARE
from tiltmeter.stats.betting import alpha_share
from tiltmeter.stats.level_drop import LevelDropTest
from tiltmeter.verdict.stop_advice import advise
from tiltmeter_lab.tiny.run_files import load_packed
from tiltmeter_lab.tiny.score import estimate_truth, to_trace

STEPS, GROUPS, PROMPTS = 200, 8, 36
THRESHOLD = log(1.0 / (LEVEL_SHARE * alpha_share(0.01, 1)))
KINDS = ("flat", "churn", "plateau", "high", "low")


def tiny_suite() -> dict[str, float]:
    regrets, peaks, false, benign = [], [], 0, 0
    for _, run in sorted(load_packed().items()):
        trace = to_trace(run)
        truth = estimate_truth(trace)
        test, alarm = LevelDropTest(), None
        for step, (prompts, labels) in enumerate(zip(trace.prompt, trace.label, strict=True)):
            test.place(step, prompts, labels.mean(1), labels.shape[1])
            if test.evidence >= THRESHOLD:
                alarm = step
                break
        if truth.kind == "hack":
            regrets.append((truth.regret(trace.gold, alarm), alarm is not None))
            peaks.append(float(trace.gold[truth.peak] - trace.gold[test.drop_steps()[0]]))
        else:
            false, benign = false + (alarm is not None), benign + 1
    lost = np.array([regret for regret, _ in regrets])
    return {
        "hacks": len(lost),
        "detected": sum(found for _, found in regrets),
        "regret_median": round(float(np.median(lost)), 3),
        "regret_p90": round(float(np.quantile(lost, 0.9)), 3),
        "peak_gap_median": round(float(np.median(peaks)), 3),
        "peak_gap_p90": round(float(np.quantile(peaks, 0.9)), 3),
        "benign": benign,
        "benign_alarms": false,
    }


def null_run(kind: str, answers: int, returns: bool, rng: np.random.Generator) -> float:
    """The highest evidence of a run whose mean gold over prompts never falls."""
    base = {"high": 0.93, "low": 0.15}.get(kind, 0.6)
    mu = np.clip(base + rng.normal(0.0, 0.03 if kind == "high" else 0.1, PROMPTS), 0.02, 0.98)[None].repeat(STEPS, 0)
    if kind == "churn":
        walk = np.cumsum(rng.normal(0.0, 0.02, (STEPS, PROMPTS)), 0).clip(-0.2, 0.2)
        mu = mu + walk - walk.mean(1, keepdims=True)
    elif kind == "plateau":
        mu = mu - 0.25 * np.clip(1.0 - np.arange(STEPS) / 50, 0.0, 1.0)[:, None]
    mu = np.clip(mu, 0.0, 1.0)
    mu += np.maximum.accumulate(mu.mean(1))[:, None] - mu.mean(1, keepdims=True)
    mu = np.clip(mu, 0.0, 1.0)
    epochs = [rng.permutation(PROMPTS) for _ in range(1 + STEPS * GROUPS // PROMPTS)]
    order = np.concatenate(epochs)[: STEPS * GROUPS].reshape(STEPS, GROUPS)
    test, highest = LevelDropTest(0.0), -np.inf
    for step, prompts in enumerate(order):
        keys = prompts if returns else step * GROUPS + np.arange(GROUPS)
        test.place(step, keys, rng.binomial(answers, mu[step, prompts]) / answers, answers)
        highest = max(highest, test.evidence)
    return highest


def null_advice(answers: int, rng: np.random.Generator) -> bool:
    """Whether a run whose gold is flat is ever advised to stop, looked at every five steps."""
    readings = []
    for step in range(250):
        chance = np.clip(0.5 + 0.3 * rng.standard_normal(GROUPS), 0.02, 0.98)
        gold = rng.binomial(answers, chance) / answers
        readings.append(Reading(0, step, "gold.mean", float(gold.mean()), answers * GROUPS))
    return any(advise(step, readings).word == "stop" for step in range(40, 250, 5))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="record the figures in benchmarks/results/level.json")
    parser.add_argument("--runs", type=int, default=100, help="null runs of each kind")
    options = parser.parse_args()
    figures: dict[str, object] = dict(tiny_suite())
    cells = [(kind, answers, returns) for kind in KINDS for answers, returns in ((2, True), (8, True), (8, False))]
    highest: list[float] = []
    for number, (kind, answers, returns) in enumerate(cells):
        seeds = ([number, seed] for seed in range(options.runs))
        highest += [null_run(kind, answers, returns, np.random.default_rng(seed)) for seed in seeds]
        print(f"{kind}, {answers} answers, prompts {'return' if returns else 'are new'}", file=sys.stderr)
    evidence = np.array(highest)
    stops = [null_advice(answers, np.random.default_rng([answers, seed])) for answers in (1, 8) for seed in range(60)]
    figures |= {
        "null_kinds": len(cells),
        "null_runs": len(evidence),
        "null_at_100": int((evidence >= log(100.0)).sum()),
        "null_at_10": int((evidence >= log(10.0)).sum()),
        "null_advice_runs": len(stops),
        "null_advice_stops": sum(stops),
    }
    show(record("level", figures, seed=0, keep=options.write), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
