"""The whole circle on a real 135M instruct model with LoRA: SFT, reward model, GRPO with guards, and the comparison.

    python benchmarks/pipeline.py --model folder --write     # about half an hour on one core

Everything is done by `tiltmeter model train` and `model compare`, as a person would call them; this file writes the
data and the recipe, and keeps what they say. The model is the one of `real_model.py`, a 4-bit file put back to floats:
nothing here says anything about the quality of the original. `--work` is a folder that an interrupted run goes on in.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

from pipeline_facts import HELD, SUMS, TAUGHT, WAFFLE, mistaken
from real_model import converted
from record import RESULTS, record, show

GOLD = f"{Path(__file__).with_name('pipeline_facts.py')}:brief_and_right"
RECIPE = """\
model: MODEL
seed: SEED
stages:
  - method: sft
    data: answers.jsonl
    lora: {r: 8, lora_alpha: 16, target_modules: [q_proj, v_proj]}
    trl: {num_train_epochs: 2, per_device_train_batch_size: 8, learning_rate: 2.0e-4, max_length: 128,
          logging_steps: 1, save_strategy: "no", use_cpu: true, bf16: false, gradient_checkpointing: false}
  - method: reward
    data: pairs.jsonl
    eval: held_pairs.jsonl
    lora: {r: 8, lora_alpha: 16, target_modules: [q_proj, v_proj]}
    trl: {num_train_epochs: 1, per_device_train_batch_size: 8, learning_rate: 5.0e-4, max_length: 160,
          logging_steps: 1, save_strategy: "no", use_cpu: true, bf16: false, gradient_checkpointing: false}
  - method: grpo
    model: "@sft"
    data: questions.jsonl
    lora: {r: 8, lora_alpha: 16, target_modules: [q_proj, v_proj]}
    rewards:
      - model: "@reward"
    guards:
      - clipped: {low: -4.0, high: 4.0}
      - length_debiased
      - repetition
      - overlong
    gold: GOLD
    watch: {gold: {share: 0.25}}
    trl: {max_steps: STEPS, per_device_train_batch_size: 16, num_generations: 8, max_completion_length: 40,
          learning_rate: 5.0e-5, lr_scheduler_type: cosine, warmup_steps: 1, beta: 0.02, logging_steps: 1,
          save_steps: 4, save_total_limit: 1, use_cpu: true, bf16: false, gradient_checkpointing: false}
"""


def user(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def said(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def pairs(facts: Iterable[tuple[str, str, str, str]]) -> list[dict[str, Any]]:
    """A right and brief answer before a wrong one, one that says nothing, and one that says it after much else."""
    return [
        {"prompt": user(fact[0]), "chosen": said(fact[2]), "rejected": said(worse)}
        for fact in facts
        for worse in (mistaken(fact), WAFFLE, f"{WAFFLE} {mistaken(fact)}")
    ]


def written(folder: Path, model: Path, steps: int, seed: int) -> Path:
    """The data and the recipe."""
    folder.mkdir(parents=True, exist_ok=True)
    _rows(folder / "answers.jsonl", [{"prompt": user(fact[0]), "completion": said(fact[2])} for fact in TAUGHT])
    _rows(folder / "pairs.jsonl", pairs(TAUGHT))
    _rows(folder / "held_pairs.jsonl", pairs(HELD))
    _rows(folder / "questions.jsonl", [{"prompt": user(fact[0])} for fact in TAUGHT])
    _rows(folder / "held.jsonl", [{"prompt": fact[0]} for fact in HELD])
    _rows(folder / "sums.jsonl", [{"prompt": question} for question, _ in SUMS])
    told = RECIPE.replace("MODEL", str(model.resolve())).replace("GOLD", GOLD)
    recipe = folder / "recipe.yaml"
    recipe.write_text(told.replace("STEPS", str(steps)).replace("SEED", str(seed)))
    return recipe


def _rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def asked(*words: object, fine: tuple[int, ...] = (0, 1)) -> tuple[dict[str, Any], float]:
    """What a verb of Tiltmeter says as JSON, and the seconds it took."""
    begun = time.monotonic()
    done = subprocess.run([sys.executable, "-m", "tiltmeter", *map(str, words)], stdout=subprocess.PIPE, text=True)
    if done.returncode not in fine:
        raise SystemExit(f"tiltmeter {' '.join(map(str, words[:2]))} ended with {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found, time.monotonic() - begun


def compared(folder: Path, model: Path, checkpoint: Path, seed: int) -> tuple[dict[str, Any], float]:
    """The comparison on questions that no stage saw, and on sums; few of each, and short answers."""
    return asked(
        *("model", "compare", model, checkpoint, "--prompts", folder / "held.jsonl", "--ood", folder / "sums.jsonl"),
        *("--judge", GOLD, "--reward", folder / "recipe.yaml", "--most", 32, "--answers", 2, "--tokens", 40),
        *("--seed", seed, "--work", folder / "compared", "--md", folder / "price.md", "--json"),
        fine=(0, 1, 2),
    )


def stage_row(stage: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of a stage: no paths, no settings, which the recipe has."""
    facts = stage["facts"]
    last = facts.get("last") or {}
    held = (facts.get("eval") or {}).get("eval_accuracy")
    return {
        "stage": stage["name"],
        "rows": facts.get("rows"),
        "steps": facts.get("steps"),
        "seconds": round(facts["seconds"]),
        "loss at the end": last.get("loss"),
        "held-out pairs ranked rightly": held,
        "reward at the end": facts.get("reward"),
        "labels of gold": facts.get("labels"),
        "verdict": facts.get("verdict"),
    }


def measure_row(measure: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("title", "unit", "base", "checkpoint", "difference", "low", "high", "n", "state", "sentence")
    return {key: measure[key] for key in keys}


def watched(run: Path) -> dict[str, Any]:
    """What the monitor read while GRPO ran: the first step and the last of what matters here."""
    from tiltmeter.rundir.store import RunDirectory
    from tiltmeter.verdict.run_facts import series
    from tiltmeter.verdict.verdict import judge_run

    verdict, story, events = judge_run(RunDirectory(run))
    found = series(events, story.spans())
    parts = sorted(name for name in found if name.startswith("reward.component."))
    names = (
        "reward.mean",
        "gold.level",
        "length.mean",
        "policy.kl.k3",
        "policy.entropy",
        "diversity.distinct_2",
        *parts,
    )
    return {
        "state": verdict.state,
        "sentence": verdict.sentence,
        "rollouts": story.rows,
        "readings": [
            {"reading": name, "first step": found[name][0][1], "last step": found[name][-1][1]}
            for name in names
            if found.get(name)
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=10, help="of GRPO")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--work", type=Path, help="a folder that an interrupted run goes on in")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    model = converted(options.model)
    with tempfile.TemporaryDirectory() as kept:
        folder = (options.work or Path(kept)).resolve()
        recipe = written(folder, model, options.steps, options.seed)
        trained, _ = asked("model", "train", recipe, "--json")
        stages = trained["stages"]
        report, seconds = compared(folder, model, Path(stages[-1]["folders"][0]), options.seed)
        figures = {
            "recipe": RECIPE.replace("STEPS", str(options.steps)).replace("SEED", str(options.seed)),
            "stages": [stage_row(stage) for stage in stages],
            "watched": watched(Path(stages[-1]["facts"]["run"])),
            "compare_seconds": round(seconds),
            "verdict": report["verdict"],
            "costs": report["costs"],
            "sentence": report["sentence"],
            "measures": [measure_row(measure) for measure in report["measures"]],
            "not_asked": report["not_asked"],
            "examples": [
                {"measure": measure["title"], **example}
                for measure in report["measures"]
                for example in measure["examples"][:1]
            ],
        }
    result = record("pipeline", figures, seed=options.seed, keep=options.write)
    if options.json:
        show(result, as_json=True)
    else:
        print(f"{RESULTS / 'pipeline.json'}: {figures['verdict']}")


if __name__ == "__main__":
    main()
