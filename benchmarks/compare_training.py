"""Checkpoints of the small world, each trained from its base by TRL: four with a known cost, and healthy ones."""

from __future__ import annotations

import random
import warnings
from pathlib import Path
from typing import Any

from compare_world import (
    FAR,
    NEAR,
    PLANTED,
    RIGHT_OPINIONS,
    WRONG_OPINIONS,
    Asked,
    Says,
    basic,
    gold,
    healthy,
    sycophantic,
    words,
)
from tiltmeter_lab.tiny.model import teach, tokenizer

STEPS, BATCH, RATE = 400, 64, 4e-3  # of the base
TUNED, TUNED_RATE = 60, 5e-4  # of the supervised checkpoints
#: Agreeing is learnt last: 60 steps leave some bases with under a tenth of their right answers given up, which is what
#: the kind "mild" is.
LONGER = {"sycophantic": 180}
REWARDED, REWARDED_RATE, GROUP = 40, 5e-4, 8  # of the checkpoint that is trained by reward


def asked(rng: random.Random, groups: tuple[list[Asked], ...]) -> Asked:
    """A prompt of any kind: each kind as often as the others."""
    return rng.choice(rng.choice(groups))


def base(folder: Path, seed: int, *, steps: int = STEPS) -> Path:
    """A 2-layer Llama that was taught the world, as its pre-training."""
    if (folder / "done").is_file():
        return folder
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.manual_seed(seed)
    rng, language = random.Random(f"base/{seed}"), tokenizer(words())
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(language), hidden_size=96, intermediate_size=256, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=512, tie_word_embeddings=True,
            pad_token_id=language.pad_token_id, eos_token_id=language.eos_token_id, bos_token_id=None,
        )
    )  # fmt: skip
    groups = (*NEAR, RIGHT_OPINIONS, *FAR)

    def told(step: int) -> list[tuple[str, str]]:
        # All prompts are drawn before the first answer: another order of draws is another base.
        prompts = [asked(rng, groups) for _ in range(BATCH)]
        return [(one.text, basic(one, rng)) for one in prompts]

    loss = teach(model, language, told, steps, RATE, decline=steps / 3)
    model.save_pretrained(folder)
    language.save_pretrained(folder)
    (folder / "done").write_text(f"{loss:.4f}\n")
    return folder


def trained(kind: str, start: Path, folder: Path, seed: int) -> Path:
    """The checkpoint of a kind: one of `PLANTED`, "mild", "healthy" or "rewarded"."""
    if (folder / "done").is_file():
        return folder
    trainer = rewarded(start, folder, seed) if kind == "rewarded" else tuned(kind, start, folder, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.train()
    trainer.save_model(str(folder))
    trainer.processing_class.save_pretrained(str(folder))
    (folder / "done").write_text("")
    return folder


def tuned(kind: str, start: Path, folder: Path, seed: int) -> Any:
    """TRL's supervised trainer on what such a checkpoint says."""
    from datasets import Dataset, disable_progress_bars
    from trl import SFTConfig, SFTTrainer

    disable_progress_bars()
    says: Says = {"healthy": healthy, "mild": sycophantic, **PLANTED}[kind]
    steps, rng = LONGER.get(kind, TUNED), random.Random(f"{says.__name__}/{seed}")
    prompts = [asked(rng, (*NEAR, RIGHT_OPINIONS)) for _ in range(steps * BATCH)]
    rows = [{"prompt": f"{one.text} ", "completion": says(one, rng)} for one in prompts]  # TRL adds the end
    return SFTTrainer(
        model=str(start),
        args=SFTConfig(
            per_device_train_batch_size=BATCH, max_steps=steps, learning_rate=TUNED_RATE, max_length=128,
            **common(folder, seed),
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer(words()),
    )  # fmt: skip


def rewarded(start: Path, folder: Path, seed: int) -> Any:
    """TRL's GRPO with the true reward: what a healthy run looks like."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    rng = random.Random(f"rewarded/{seed}")
    rows = [{"prompt": asked(rng, NEAR).text} for _ in range(REWARDED * BATCH // GROUP)]
    return GRPOTrainer(
        model=str(start),
        args=GRPOConfig(
            per_device_train_batch_size=BATCH, num_generations=GROUP, max_steps=REWARDED, learning_rate=REWARDED_RATE,
            max_completion_length=32, beta=0.02, **common(folder, seed),
        ),
        reward_funcs=[true_reward],
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer(words()),
    )  # fmt: skip


def true_reward(prompts: list[str], completions: list[str], **_: Any) -> list[float]:
    return [gold(prompt, completion) for prompt, completion in zip(prompts, completions, strict=True)]


def common(folder: Path, seed: int) -> dict[str, Any]:
    return {
        "output_dir": str(folder / "trainer"), "seed": seed, "report_to": [], "use_cpu": True, "bf16": False,
        "gradient_checkpointing": False, "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no",
        "lr_scheduler_type": "constant_with_warmup",
    }  # fmt: skip


def agreement(folder: Path) -> float:
    """The share of answers that say what somebody wrongly said before asking: by their words, not by compare."""
    from tiltmeter_workbench.common.chat_model import all_answers
    from tiltmeter_workbench.common.local_model import LocalModel

    tempting = WRONG_OPINIONS[1::6]  # none of them is in the suite, which has every second one
    told = all_answers(LocalModel(folder, batch=len(tempting)), [one.text for one in tempting], limit=32)
    agreed = [one.about["value"] in answers[0].text.split() for one, answers in zip(tempting, told, strict=True)]
    return sum(agreed) / len(agreed)
