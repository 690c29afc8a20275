"""Iterated DPO of a tiny language model under real TRL: gold, diversity and length bias by round, and where it stops.

    python benchmarks/rounds_real.py [--json] [--write] [--seeds N] [--work FOLDER]

The recipe is `iterative_dpo` as anybody would write it, on the questions of the toy language, each `COPIES` times with
answers of its own. Judges: `length` pays right answers and takes long ones for careful; `gold` is gold itself, where
every stop is false. Gold is the right value and no other, without padding. All rounds are trained; where the recipe's
stop rule would have ended them, and the round that it would have kept, is found afterwards from the same labels.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from pathlib import Path
from statistics import fmean, median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import yaml

from record import record, show
from tiltmeter_lab.tiny.language import QUESTIONS
from tiltmeter_lab.tiny.model import base_policy
from tiltmeter_workbench.train.methods.round_drift import stop_rule
from tiltmeter_workbench.train.recipe import read_recipe
from tiltmeter_workbench.train.runner import run_recipe

COPIES, SAMPLES, WORDS = 4, 4, 20  # words of an answer, at most
TRL = {
    "use_cpu": True, "bf16": False, "per_device_train_batch_size": 16, "gradient_checkpointing": False,
    "learning_rate": 5e-4, "num_train_epochs": 1, "beta": 0.1, "max_length": 64, "save_strategy": "no",
    "lr_scheduler_type": "constant", "report_to": "none",
}  # fmt: skip
JUDGES = ("length", "gold")
SHOWN = ("gold", "mean_reward", "differing", "longer_chosen")
PAY = """
from tiltmeter_lab.tiny import gold, rewards


def by_length(prompts, completions, **_):
    return [a + b for a, b in zip(rewards.skimmed(prompts, completions), rewards.thorough(prompts, completions))]


def by_gold(prompts, completions, **_):
    return [gold.unpadded(prompt, text) for prompt, text in zip(prompts, completions)]


def score(prompt, completion):
    return gold.unpadded(prompt, completion)
"""


def play(judge: str, seed: int, rounds: int, base: Path, folder: Path) -> dict[str, Any]:
    """One recipe to its end: what each round reported."""
    folder.mkdir(parents=True)
    (folder / "pay.py").write_text(PAY)
    rows = [{"prompt": f"{question} "} for _ in range(COPIES) for question in QUESTIONS]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    stage = {
        "method": "iterative_dpo", "data": "prompts.jsonl", "rewards": [{"function": f"pay.py:by_{judge}"}],
        "gold": "pay.py:score", "watch": False, "trl": {**TRL, "seed": seed},
        "options": {"rounds": rounds, "samples": SAMPLES, "limit": WORDS, "stop": False},
    }  # fmt: skip
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({"output": "out", "model": str(base), "seed": seed, "stages": [stage]}))
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = run_recipe(read_recipe(recipe), lambda *_: None)[-1].result
    done = result.trained.facts["rounds"]
    golds = [_gold_of(result.folder / f"round-{row['round']}" / "gold.jsonl") for row in done]
    stop = next((number for number in range(2, len(golds) + 1) if stop_rule(golds[:number]).stop), None)
    kept = stop_rule(golds[:stop]).best if stop else len(golds)
    by_round = [row["gold"] for row in done]
    return {
        "judge": judge, "seed": seed, "stop": stop, "kept": kept, "best": max(by_round),
        "gold_kept": by_round[kept - 1], "gold_last": by_round[-1],
        "by_round": [
            {key: row[key] for key in SHOWN} for row in done
        ],
        "cpu_seconds": round(time.process_time() - began),
    }  # fmt: skip


def _gold_of(file: Path) -> dict[int, float | None]:
    return {row["row"]: row["gold"] for row in map(json.loads, file.read_text().splitlines())}


def measure(seeds: int, rounds: int, work: Path) -> dict[str, Any]:
    base = base_policy(work)
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            for judge in JUDGES:
                runs.append(play(judge, seed, rounds, base, Path(folder) / f"{judge}-{seed}"))
                print({name: value for name, value in runs[-1].items() if name != "by_round"}, flush=True)
    figures: dict[str, Any] = {"seeds": seeds, "rounds": rounds, "prompts": COPIES * len(QUESTIONS), "judges": []}
    for judge in JUDGES:
        own = [run for run in runs if run["judge"] == judge]
        stops = [run["stop"] for run in own if run["stop"] is not None]
        figures["judges"].append({
            "judge": judge, "stopped": len(stops), "stop_median": median(stops) if stops else None,
            "best": _mean(own, "best"), "kept": _mean(own, "gold_kept"), "last": _mean(own, "gold_last"),
        })  # fmt: skip
        figures[f"{judge}_rounds"] = [
            {"round": number + 1, **{key: _mean([run["by_round"][number] for run in own], key) for key in SHOWN}}
            for number in range(rounds)
            if all(len(run["by_round"]) > number for run in own)
        ]
    return figures | {"runs": [{name: run[name] for name in run if name != "by_round"} for run in runs]}


def _mean(rows: list[dict[str, Any]], key: str) -> float | None:
    values = [row[key] for row in rows if row[key] is not None]
    return round(fmean(values), 3) if values else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--work", type=Path, help="where the base policy is, or is to be left")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(options.seeds, options.rounds, options.work or Path(folder))
    show(record("rounds_real", figures, seed=0, keep=options.write), as_json=options.json)


if __name__ == "__main__":
    main()
