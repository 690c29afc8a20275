"""A real 135M instruct model under TRL's DPO with LoRA, on pairs that prefer long answers, judged at each save.

    python benchmarks/trail_real.py --model folder --write     # some minutes on one core

The model is that of `real_model.py`, a 4-bit file put back to floats: nothing here says anything about the quality of
the original. Whoever labelled the pairs took length for care; gold is the right answer in few words. It is trained on
half of the facts, and each save is asked some of the other half.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import pipeline_facts
import tiltmeter
from pipeline_facts import HELD, TAUGHT, WAFFLE
from real_model import converted
from record import record, show
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run

GOLD = f"{pipeline_facts.__file__}:brief_and_right"
BATCH, EVERY, RATE, BETA = 2, 2, 2e-3, 0.1
TOKENS = 24  # of an answer
ASKED = 24  # questions
WAIT = 5400.0  # seconds for the last saves to be asked, on a busy machine


def turns(text: str, role: str = "user") -> list[dict[str, str]]:
    return [{"role": role, "content": text}]


def make_pairs() -> list[dict[str, Any]]:
    """The right answer after much else is preferred to the right answer."""
    return [
        {
            "prompt": turns(question),
            "chosen": turns(f"{WAFFLE} {sentence}", "assistant"),
            "rejected": turns(sentence, "assistant"),
        }
        for question, _, sentence, _ in TAUGHT
    ]


def follow(output: Path) -> dict[str, Any]:
    """What `tiltmeter model trail` says of the same answers."""
    words = [sys.executable, "-m", "tiltmeter", "model", "trail", str(output), "--json"]
    done = subprocess.run(words, capture_output=True, text=True)
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="where the converted model is, or is to be, kept")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--keep", type=Path, help="where to keep the checkpoints and the run; else they are deleted")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    from datasets import Dataset
    from peft import LoraConfig
    from trl import DPOConfig, DPOTrainer

    model = converted(options.model)
    prompts = [turns(question) for question, *_ in HELD[:ASKED]]
    with tempfile.TemporaryDirectory() as folder:
        output = options.keep or Path(folder)
        trainer = DPOTrainer(
            model=str(model),
            args=DPOConfig(
                output_dir=str(output), max_steps=options.steps, per_device_train_batch_size=BATCH, beta=BETA,
                learning_rate=RATE, lr_scheduler_type="constant", seed=0, use_cpu=True, bf16=False,
                gradient_checkpointing=False, report_to=[], logging_steps=1, save_strategy="steps", save_steps=EVERY,
                disable_tqdm=True,
            ),
            train_dataset=Dataset.from_list(make_pairs()),
            peft_config=LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sampling = {"prompts": len(prompts), "answers": 1, "tokens": TOKENS}
            attached = tiltmeter.attach(trainer, gold=tiltmeter.Gold(GOLD, prompts=prompts, sampling=sampling))
        began = time.process_time()
        attached.train()
        training = time.process_time() - began
        attached.verdict(WAIT)
        assert attached.directory is not None
        verdict, state, _ = judge_run(RunDirectory(attached.directory))
        report = follow(output)
        figures = {
            "steps": options.steps,
            "prompts": len(prompts),
            "state": verdict.state,
            "sentence": verdict.sentence,
            "alarm_step": verdict.alarms[0].step if verdict.alarms else None,
            "missed": state.checkpoints.missed,
            "trail_state": report["state"],
            "best": report.get("best"),
            "checkpoints": [
                {
                    "checkpoint": one["name"], "gold": round(one["mean"], 3), "kl": round(one["kl"], 2),
                    "tokens": round(one["tokens"], 1),
                }
                for one in report["checkpoints"]
            ],
            "training_cpu_seconds": round(training),
        }  # fmt: skip
    show(record("trail_real", figures, seed=0, keep=options.write), as_json=options.json)


if __name__ == "__main__":
    main()
