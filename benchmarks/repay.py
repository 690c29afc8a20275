"""What a narrow training cost, and how much of it a model between base and checkpoint wins back.

    python benchmarks/repay.py [--quick] [--work folder]     # about fifteen minutes on one core

In the world of `compare_world.py` TRL trains checkpoints on half of the things alone, until they know all about those
and have forgotten others: by supervision, and by GRPO with the true reward and without a KL penalty. Gold is what they
were trained for; capability is the other half of the things, and what tools are for. `tiltmeter model repay` with its
defaults measures base, checkpoint and five models in between. `capability_regained` is the median over checkpoints of
the share of the lost capability that the point regains which pays at most a tenth of the gained gold, `gold_paid` what
that point pays. A checkpoint of which no loss is shown is counted apart: there is nothing to win back. A
further point of the supervised ones is trained with gradient projection on some of the base's own data.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

from compare_suites import TASK
from compare_training import BATCH, GROUP, base, common, true_reward
from compare_training import STEPS as BASE_STEPS
from compare_world import (
    BENIGN,
    FACTS,
    FAR_BENIGN,
    FAR_FACTS,
    NOUNS,
    RIGHT_OPINIONS,
    TOOLS,
    VALUES,
    WRONG_OPINIONS,
    Asked,
    basic,
    healthy,
    words,
)
from record import record, show
from tiltmeter_lab.tiny.model import tokenizer
from tiltmeter_workbench.train.replay import GradientProjection
from tiltmeter_workbench.verbs.model.repay import SHARES

KINDS = ("supervised", "rewarded")
REPLAYED = "with replay"  # supervised, with gradient projection
SEEDS, BASES = 5, 2
NEAR = frozenset(NOUNS[::2])  # what is trained on; the others are capability
STEPS, RATE = 240, 1e-3
REWARDED, REWARDED_RATE = 120, 1e-3
PROMPTS = 144
PAID = 0.1  # of the gained gold
POINTS = ("base", *(f"{100 * share:g} %" for share in SHARES))


def near(asked: Asked) -> bool:
    return asked.about["noun"] in NEAR


GOLD = [one for one in (*FACTS, *WRONG_OPINIONS) if near(one)]


def taxed(kind: str, start: Path, folder: Path, seed: int, share: float) -> Path:
    """A checkpoint that was trained on half of the things alone, for this share of its steps."""
    if (folder / "done").is_file():
        return folder
    from datasets import Dataset, disable_progress_bars
    from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

    disable_progress_bars()
    steps = round(share * (REWARDED if kind == "rewarded" else STEPS))
    rng = random.Random(f"repay/{'supervised' if kind == REPLAYED else kind}/{seed}")
    shared = {"processing_class": tokenizer(words()), "model": str(start)}
    if kind != "rewarded":
        prompts = [rng.choice(GOLD) for _ in range(steps * BATCH)]
        rows = [{"prompt": f"{one.text} ", "completion": healthy(one, rng)} for one in prompts]
        settings = {"max_steps": steps, "learning_rate": RATE, "max_length": 128, **common(folder, seed)}
        trainer: Any = SFTTrainer(
            args=SFTConfig(per_device_train_batch_size=BATCH, **settings),
            train_dataset=Dataset.from_list(rows),
            **shared,
        )
    else:
        rows = [{"prompt": rng.choice(GOLD).text} for _ in range(steps * BATCH // GROUP)]
        settings = {"max_steps": steps, "learning_rate": REWARDED_RATE, "beta": 0.0, **common(folder, seed)}
        trainer = GRPOTrainer(
            args=GRPOConfig(
                per_device_train_batch_size=BATCH, num_generations=GROUP, max_completion_length=32, **settings
            ),
            reward_funcs=[true_reward],
            train_dataset=Dataset.from_list(rows),
            **shared,
        )
    if kind == REPLAYED:
        trainer.add_callback(GradientProjection(trainer, replay_rows(), seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.train()
    trainer.save_model(str(folder))
    trainer.processing_class.save_pretrained(str(folder))
    (folder / "done").write_text("")
    return folder


def replay_rows() -> list[dict[str, str]]:
    """What the base says about other things and of tools: some of its own training data, and no item of the task."""
    rng = random.Random("replay")
    others = [one for one in RIGHT_OPINIONS if not near(one)] + FAR_BENIGN
    return [{"prompt": f"{one.text} ", "completion": basic(one, rng)} for one in others]


def inputs(folder: Path) -> tuple[Path, Path]:
    """The prompts of gold and the task of capability, as files."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random("repay")
    prompts, task = folder / "prompts.jsonl", folder / "other.yaml"
    prompts.write_text("".join(json.dumps({"prompt": one.text}) + "\n" for one in rng.sample(GOLD, PROMPTS)))
    task.write_text(TASK.replace("world_facts", "other_things").replace("facts.jsonl", "other.jsonl"))
    items = [_fact(one) for one in (*FACTS, *FAR_FACTS) if not near(one)] + [_tool(one) for one in BENIGN]
    (folder / "other.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    return prompts, task


def _fact(asked: Asked) -> dict[str, object]:
    values = VALUES[asked.about["kind"]]
    return {
        "question": asked.text, "choices": [f"it is {value} ." for value in values],
        "answer": values.index(asked.truth),
    }  # fmt: skip


def _tool(asked: Asked) -> dict[str, object]:
    tools = list(TOOLS.values())
    return {
        "question": asked.text, "choices": [f"take the {tool} ." for tool in tools],
        "answer": tools.index(TOOLS[asked.about["thing"]]),
    }  # fmt: skip


def repaid(start: Path, checkpoint: Path, also: list[Path], work: Path, seed: int) -> dict[str, Any]:
    """The verb's own JSON, with the defaults that a person gets."""
    from typer.testing import CliRunner

    from tiltmeter.cli import app

    prompts, task = inputs(work.parent / "suites")
    gold = f"{Path(__file__).with_name('compare_world.py')}:gold"
    options = ["--gold", gold, "--prompts", prompts, "--task", task, "--seed", seed, "--work", work, "--json"]
    more = [word for folder in also for word in ("--also", folder)]
    command = ["model", "repay", start, checkpoint, *options, *more, "--tokens", 32]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(app, [str(word) for word in command], catch_exceptions=False)
    if not done.stdout.startswith("{"):
        raise SystemExit(f"{checkpoint.name}: {done.output}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def best_trade(report: dict[str, Any]) -> dict[str, Any] | None:
    """Of the points that pay at most a tenth of the gained gold, the one that regains most capability."""
    points = [
        point
        for point in report["points"][1 : 1 + len(SHARES)]
        if point["gold_paid"]["value"] is not None and point["capability_regained"]["value"] is not None
    ]
    cheap = [point for point in points if point["gold_paid"]["value"] <= PAID]
    return max(cheap, key=lambda point: float(point["capability_regained"]["value"]), default=None)


def counted(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The figures over all checkpoints of which a gain and a loss are shown."""
    taxed_rows = [row for row in rows if row["points"][1]["gold_paid"]["value"] is not None
                  and row["points"][1]["capability_regained"]["value"] is not None]  # fmt: skip
    trades = [best_trade(row) for row in taxed_rows]
    regained = [0.0 if trade is None else trade["capability_regained"]["value"] for trade in trades]
    paid = [0.0 if trade is None else trade["gold_paid"]["value"] for trade in trades]
    return {
        "checkpoints": len(rows),
        "with_gain_and_loss": len(taxed_rows),
        "capability_regained": median(regained) if regained else None,
        "gold_paid": median(paid) if paid else None,
        "half_for_a_tenth": sum(value >= 0.5 for value in regained),
        "states": {state: sum(row["state"] == state for row in rows) for state in sorted({r["state"] for r in rows})},
        "front": [
            {
                "training": kind,
                "point": name,
                "gold": _median(own, "gold"),
                "capability": _median(own, "capability"),
            }
            for kind in KINDS
            for at, name in enumerate([*POINTS, *([REPLAYED] if kind == "supervised" else []), "checkpoint"])
            if (own := [row["points"][at] for row in rows if row["kind"] == kind])
        ],
    }


def _median(points: list[dict[str, Any]], name: str) -> float:
    return round(median(float(point[name]) for point in points), 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true", help="keep the figures in benchmarks/results")
    parser.add_argument("--quick", action="store_true", help="one seed of each kind, hardly taught: whether it runs")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="a folder that an interrupted run goes on in")
    options = parser.parse_args()
    share = 0.05 if options.quick else 1.0
    with tempfile.TemporaryDirectory() as place:
        work, rows = options.work or Path(place), []
        for at in range(1 if options.quick else options.seeds):
            for kind in KINDS:
                seed, folder = options.seed + at, work / f"{kind}-{options.seed + at}"
                stored = folder / "repaid.json"
                if not stored.is_file():
                    begun, of = time.process_time(), options.seed + at % BASES
                    start = base(work / f"base-{of}", of, steps=round(share * BASE_STEPS))
                    replays = [work / f"{REPLAYED}-{seed}"] if kind == "supervised" else []
                    also = [taxed(REPLAYED, start, replay, seed, share) for replay in replays]
                    trained = taxed(kind, start, folder, seed, share)
                    report = repaid(start, trained, also, work / f"answers-{kind}-{seed}", seed)
                    stored.write_text(json.dumps({"kind": kind, "seed": seed, **report}))
                    print(f"{kind} {seed}: {time.process_time() - begun:.0f} CPU s", file=sys.stderr, flush=True)
                rows.append(json.loads(stored.read_text()))
    result = record("repay", counted(rows), seed=options.seed, keep=options.write and not options.quick)
    show(result, as_json=options.json)


if __name__ == "__main__":
    main()
