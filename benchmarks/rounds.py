"""Iterated DPO over rounds: does the stop rule keep a good round, and does it leave healthy rounds alone?

    python benchmarks/rounds.py [--json] [--write] [--seeds N]

A policy is a table: `PROMPTS` prompts with `ANSWERS` answers each, of which every one has a chance to be good (gold), a
flaw that a judge likes, and a length. A round samples `SAMPLES` answers to each prompt, pairs the best with the worst
by the judge, and moves the policy by the optimum of DPO on such pairs, log π(y) + z(y) / beta, z the log-odds that y is
chosen over an answer of the policy. Judges: `fixed` errs the same way in every round, `fixed, mild` less; `refreshed`
is fitted anew to gold with a new error each round; `own feedback` is a judge that also likes what the policy already
says, as AI feedback on AI feedback does; `right` is gold with noise, where no stop is due. Gold of a round is that of
one answer to each prompt, 0 or 1. By round: gold, diversity (the chance that two answers differ), the share of pairs
whose longer answer was chosen. The rule is `stop_rule` of the recipe `iterative_dpo`.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from record import record, show
from tiltmeter.stats.intervals import upper_bound
from tiltmeter_workbench.train.methods.round_drift import stop_rule

Floats = NDArray[np.float64]
PROMPTS, ANSWERS, SAMPLES, ROUNDS, BETA = 300, 40, 4, 10, 2.0
JUDGES = ("fixed", "fixed, mild", "refreshed", "own feedback", "right")


def play(judge: str, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng([JUDGES.index(judge), seed])
    shape = (PROMPTS, ANSWERS)
    quality, flaw = rng.standard_normal(shape), rng.standard_normal(shape)
    good = 1.0 / (1.0 + np.exp(-(1.2 * quality - 1.1 * np.maximum(flaw, 0.0) ** 2)))
    length = flaw + 0.5 * rng.standard_normal(shape)
    logits = 0.5 * rng.standard_normal(shape)
    golds, rows = [], []
    for _ in range(ROUNDS):
        chance = np.exp(logits - logits.max(1, keepdims=True))
        chance /= chance.sum(1, keepdims=True)
        liking = {
            "fixed": 0.6 * quality + 1.2 * flaw,
            "fixed, mild": 0.8 * quality + 1.0 * flaw,
            "refreshed": quality + 0.5 * rng.standard_normal(shape),
            "own feedback": 0.5 * quality + 0.35 * flaw + 0.5 * np.log(chance * ANSWERS),
            "right": 4.0 * good,
        }[judge]
        drawn = np.stack([_draw(chance, rng) for _ in range(SAMPLES)], axis=1)
        liked = np.take_along_axis(liking, drawn, 1) + 0.3 * rng.standard_normal(drawn.shape)
        best, worst = (np.take_along_axis(drawn, pick(liked, axis=1)[:, None], 1) for pick in (np.argmax, np.argmin))
        longer = np.take_along_axis(length, best, 1) > np.take_along_axis(length, worst, 1)
        answered = rng.random(PROMPTS) < good[np.arange(PROMPTS), drawn[:, 0]]
        golds.append(dict(enumerate(answered.astype(float).tolist())))
        rows.append({
            "gold": float((chance * good).sum(1).mean()),
            "differing": float(1.0 - (chance**2).sum(1).mean()),
            "longer_chosen": float(longer[best != worst].mean()),
        })  # fmt: skip
        beats = 1.0 / (1.0 + np.exp(-(liking[:, :, None] - liking[:, None, :])))
        won = np.clip((beats * chance[:, None, :]).sum(2), 1e-3, 1.0 - 1e-3)
        logits = logits + np.log(won / (1.0 - won)) / BETA
    stops = [number for number in range(2, ROUNDS + 1) if stop_rule(golds[:number]).stop]
    truth = [row["gold"] for row in rows]
    stop = stops[0] if stops else None
    chosen = stop_rule(golds[:stop]).best if stop else ROUNDS
    return {"rows": rows, "truth": truth, "stop": stop, "chosen": chosen}


def _draw(chance: Floats, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.asarray((chance.cumsum(1) < rng.random((len(chance), 1))).sum(1).clip(0, ANSWERS - 1), np.int64)


def measure(seeds: int) -> dict[str, Any]:
    figures: dict[str, Any] = {"seeds": seeds, "rounds": ROUNDS, "prompts": PROMPTS}
    table: list[dict[str, Any]] = []
    for judge in JUDGES:
        runs = [play(judge, seed) for seed in range(seeds)]
        falls = [run for run in runs if max(run["truth"]) - run["truth"][-1] > 0.02]
        stopped = [run for run in falls if run["stop"] is not None]
        early = [
            run
            for run in runs
            if run["stop"] and max(run["truth"][: run["stop"]]) - run["truth"][run["stop"] - 1] <= 0.02
        ]
        gaps = [max(run["truth"]) - run["truth"][run["chosen"] - 1] for run in falls]
        lost = [max(run["truth"]) - run["truth"][-1] for run in falls]
        table.append({
            "judge": judge, "runs": seeds, "gold_falls": len(falls), "stopped": len(stopped), "false_stops": len(early),
            "best_round_median": float(np.median([int(np.argmax(run["truth"])) + 1 for run in runs])),
            "stop_median": float(np.median([run["stop"] for run in stopped])) if stopped else None,
            "gap_median": round(float(np.median(gaps)), 3) if gaps else None,
            "gap_p90": round(float(np.quantile(gaps, 0.9)), 3) if gaps else None,
            "lost_without_it_median": round(float(np.median(lost)), 3) if lost else None,
        })  # fmt: skip
        for key in ("gold", "differing", "longer_chosen"):
            means = np.mean([[row[key] for row in run["rows"]] for run in runs], axis=0)
            figures[f"{judge.replace(',', '').replace(' ', '_')}_{key}"] = [round(float(value), 3) for value in means]
    figures["judges"] = table
    healthy = next(row for row in table if row["judge"] == "right")
    figures["false_stops"] = healthy["stopped"] + healthy["false_stops"]
    figures["false_stops_upper95"] = round(upper_bound(figures["false_stops"], seeds), 4)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--seeds", type=int, default=40)
    options = parser.parse_args()
    show(record("rounds", measure(options.seeds), seed=0, keep=options.write), as_json=options.json)


if __name__ == "__main__":
    main()
