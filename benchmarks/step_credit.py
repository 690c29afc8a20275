"""Credit for steps against credit for answers, on a tiny task where the result alone pays a wrong step.

    python benchmarks/step_credit.py [--json] [--write] [--seeds N] [--steps N]

The task is a sum of two digits. A tiny model, taught on such answers, begins half of them with "i add them ." and half
with "i copy the key ."; after the first its result is right in about 55 of 100, after the second in 95. Whoever pays
results teaches it to copy. Steps are scored by their truth: the first is right if it adds, the second if the result is.
All arms get the same scores of the same function, `rewards.process`. `answers` pays the last step's score to the whole
answer, which is an outcome reward; `worst step` pays the lowest to the whole answer; `steps` credits each step with
its own score and those behind it (`step_weight` 1); `steps by a model` the same, with scores of a process reward model
that a recipe trained on steps of the start policy. TRL's GRPO and RLOO, by seed; shares are of SAMPLES answers of the
policy at the end. An interval is Student's t over seeds.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np

from record import record, show
from tiltmeter.gold.guards.process_reward import sentences
from tiltmeter.stats.intervals import student_t_quantile
from tiltmeter_lab.tiny.language import EOS, PAD, UNKNOWN
from tiltmeter_lab.tiny.model import teach, tokenizer, untrained_policy
from tiltmeter_workbench import rewards

DIGITS = ("one", "two", "three")
NUMBERS = ("two", "three", "four", "five", "six")
PROMPTS = {f"{one} and {two} ?": NUMBERS[a + b] for a, one in enumerate(DIGITS) for b, two in enumerate(DIGITS)}
ADDS, COPIES = "i add them .", "i copy the key ."
RIGHT_ADDED, RIGHT_COPIED = 0.55, 0.95
SEEDS, STEPS, SAMPLES = 5, 60, 720
ARMS = {"answers": ("last", 0.0), "worst step": ("min", 0.0), "steps": ("last", 1.0), "steps by a model": ("last", 1.0)}


def answer(prompt: str, rng: random.Random) -> str:
    copies = rng.random() < 0.5
    right = rng.random() < (RIGHT_COPIED if copies else RIGHT_ADDED)
    value = PROMPTS[prompt] if right else rng.choice([one for one in NUMBERS if one != PROMPTS[prompt]])
    return f"{COPIES if copies else ADDS} it is {value} ."


def true_scores(prompts: list[str], steps: list[list[str]], **_: Any) -> list[list[float]]:
    """1 for a first step that adds and for a last one with the right result, 0 for every other."""
    return [
        [
            float(step == (ADDS if at == 0 else f"it is {PROMPTS[prompt]} .") and (at == 0 or at == len(row) - 1))
            for at, step in enumerate(row)
        ]
        for prompt, row in zip(prompts, steps, strict=True)
    ]


def start_policy(folder: Path, seed: int) -> Path:
    words = sorted({word for text in (*PROMPTS, ADDS, COPIES, "it is .", *NUMBERS) for word in text.split()})
    language = tokenizer([PAD, EOS, UNKNOWN, *words])
    model = untrained_policy(language, seed, layers=2, hidden=64, inner=176)
    rng = random.Random(seed)

    def rows_at(_: int) -> list[tuple[str, str]]:
        return [(prompt, answer(prompt, rng)) for prompt in rng.choices(list(PROMPTS), k=64)]

    teach(model, language, rows_at, 240, 3e-3, decline=80)
    model.save_pretrained(folder)
    language.save_pretrained(folder)
    return folder


def train(base: Path, method: str, outcome: str, weight: float, scorer: Any, seed: int, steps: int, work: Path) -> Any:
    import trl
    from datasets import Dataset
    from transformers import AutoTokenizer

    from tiltmeter_workbench.train.methods import step_trainers

    kind = method.upper()
    args = getattr(trl, f"{kind}Config")(
        output_dir=str(work), use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[], beta=0.0,
        learning_rate=5e-4, per_device_train_batch_size=64, num_generations=8, max_completion_length=12,
        max_steps=steps, logging_strategy="no", save_strategy="no", seed=seed, disable_tqdm=True,
    )  # fmt: skip
    prompts = [{"prompt": prompt} for prompt in PROMPTS]
    reward = rewards.process(scorer, split="sentences", outcome=outcome)  # type: ignore[arg-type]
    trainer = getattr(step_trainers, f"Step{kind}Trainer")(
        model=str(base), args=args, reward_funcs=[reward], train_dataset=Dataset.from_list(prompts),
        processing_class=AutoTokenizer.from_pretrained(str(base), padding_side="left"), step_weight=weight,
    )  # fmt: skip
    trainer.train()
    return trainer.model


def shares(model: Any, base: Path) -> dict[str, float]:
    """Of the answers: how many do not begin by adding, how many end right, how many begin by adding and end right."""
    import torch
    from transformers import AutoTokenizer

    language = AutoTokenizer.from_pretrained(str(base), padding_side="left")
    prompts = [prompt for prompt in PROMPTS for _ in range(SAMPLES // len(PROMPTS))]
    batch = language(prompts, return_tensors="pt", padding=True)
    torch.manual_seed(0)
    with torch.no_grad():
        ids = model.eval().generate(
            input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], do_sample=True, max_new_tokens=12
        )
    texts = language.batch_decode(ids[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    adds = np.array([text.startswith(ADDS) for text in texts])
    right = np.array([text.endswith(f"it is {PROMPTS[p]} .") for p, text in zip(prompts, texts, strict=True)])
    return {"wrong_step": 1.0 - float(adds.mean()), "right": float(right.mean()), "both": float((adds & right).mean())}


def step_model(base: Path, seed: int, work: Path) -> Path:
    """A process reward model, trained by a recipe on labelled steps of the start policy's kind of answers."""
    import json

    from tiltmeter_workbench.train.recipe import read_recipe
    from tiltmeter_workbench.train.runner import run_recipe

    rng, rows = random.Random(1000 + seed), []
    for prompt in rng.choices(list(PROMPTS), k=1500):
        steps = sentences(answer(prompt, rng))
        (scores,) = true_scores([prompt], [steps])
        rows.append({"prompt": prompt, "completions": steps, "labels": [score == 1.0 for score in scores]})
    work.mkdir(parents=True)
    (work / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = "{use_cpu: true, bf16: false, gradient_checkpointing: false, learning_rate: 0.002, " \
        "per_device_train_batch_size: 64, num_train_epochs: 8, save_strategy: 'no'}"  # fmt: skip
    (work / "recipe.yaml").write_text(
        f"model: {base}\noutput: out\nseed: {seed}\nstages:\n"
        f"  - {{method: process_reward, data: steps.jsonl, options: {{separator: ' '}}, trl: {settings}}}\n"
    )
    results = run_recipe(read_recipe(work / "recipe.yaml"), lambda *_: None)
    return Path(results[0].result.trained.folders[0])


def measure(seeds: int, steps: int) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            place = Path(folder) / str(seed)
            base = start_policy(place / "base", seed)
            from transformers import AutoModelForCausalLM

            rows.append({"method": "", "credit": "before", "seed": seed,
                         **shares(AutoModelForCausalLM.from_pretrained(str(base)), base)})  # fmt: skip
            model_scores = rewards.step_model(step_model(base, seed, place / "prm"), separator=" ")
            for method in ("grpo", "rloo"):
                for arm, (outcome, weight) in ARMS.items():
                    scorer = model_scores if arm.endswith("a model") else true_scores
                    model = train(base, method, outcome, weight, scorer, seed, steps, place / method)
                    rows.append({"method": method, "credit": arm, "seed": seed, **shares(model, base)})
                    print(rows[-1], file=sys.stderr, flush=True)
    table = []
    for method, arm in dict.fromkeys((row["method"], row["credit"]) for row in rows):
        mine = [row for row in rows if (row["method"], row["credit"]) == (method, arm)]
        table.append({"method": method, "credit": arm} | {
            name: value for key in ("wrong_step", "right", "both")
            for name, value in _interval(key, [row[key] for row in mine]).items()
        })  # fmt: skip
    return {"seeds": seeds, "steps": steps, "table": table, "by_seed": rows}


def _interval(name: str, values: list[float]) -> dict[str, float | None]:
    mean = float(np.mean(values))
    if len(values) < 2:
        return {name: round(mean, 3), f"{name}_low": None, f"{name}_high": None}
    reach = student_t_quantile(len(values) - 1, 0.95) * float(np.std(values, ddof=1)) / len(values) ** 0.5
    return {
        name: round(mean, 3),
        f"{name}_low": round(max(mean - reach, 0.0), 3),
        f"{name}_high": round(min(mean + reach, 1.0), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    from transformers.utils import logging

    logging.disable_progress_bar()
    logging.set_verbosity_error()
    began = time.process_time()
    figures = measure(options.seeds, options.steps)
    figures["cpu_seconds"] = round(time.process_time() - began)
    show(record("step_credit", figures, seed=0, keep=options.write), as_json=options.json)


if __name__ == "__main__":
    main()
