"""The base policy: a 4-layer, width-128 Llama, trained on the toy language in under a minute and saved in a folder."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tiltmeter_lab.tiny.language import EOS, PAD, PROMPTS, UNKNOWN, lesson, sample, words

LESSONS, STEPS, BATCH, RATE = 220, 160, 64, 2e-3


def tokenizer(vocabulary: Sequence[str] | None = None) -> Any:
    """One token a word, of the toy language unless others are given; decoding puts a space between words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    word_list = words() if vocabulary is None else vocabulary
    core = Tokenizer(models.WordLevel({word: at for at, word in enumerate(word_list)}, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=EOS,
        unk_token=UNKNOWN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def base_policy(folder: str | Path, seed: int = 0) -> Path:
    """The folder of the base policy of this seed, made on the first call and loaded by `from_pretrained` ever after.

    A policy that begins with answers of mixed quality is what a reward can be hacked with: the right half of the facts,
    the padding and the phrases all have a chance from the first step.
    """
    target = Path(folder) / f"tiny-base-{seed}"
    if (target / "done").is_file():
        return target
    from transformers.utils import logging

    logging.disable_progress_bar()
    language = tokenizer()
    model = _train_base(language, seed)
    model.save_pretrained(target)
    language.save_pretrained(target)
    (target / "done").write_text("")
    return target


def untrained_policy(language: Any, seed: int, *, layers: int, hidden: int, inner: int) -> Any:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(language),
            hidden_size=hidden,
            intermediate_size=inner,
            num_hidden_layers=layers,
            num_attention_heads=4,
            max_position_embeddings=64,
            tie_word_embeddings=True,
            pad_token_id=language.pad_token_id,
            eos_token_id=language.eos_token_id,
            bos_token_id=None,
        )
    )


def _train_base(language: Any, seed: int) -> Any:
    rng = random.Random(f"corpus/{seed}")
    model = untrained_policy(language, seed, layers=4, hidden=128, inner=352)
    total = LESSONS + STEPS

    def rows_at(step: int) -> list[tuple[str, str]]:
        answer = lesson if step < LESSONS else sample
        return [(prompt, answer(prompt, rng)) for prompt in rng.choices(PROMPTS, k=BATCH)]

    teach(model, language, rows_at, total, RATE, decline=80)
    return model


def teach(
    model: Any,
    language: Any,
    rows_at: Callable[[int], Sequence[tuple[str, str]]],
    steps: int,
    rate: float,
    *,
    decline: float,
) -> float:
    """Supervised steps on prompts with answers, as pre-training of a tiny model; the last loss.

    `rows_at` gives the rows of a step. The rate rises over twenty steps and falls over the last `decline`.
    """
    import torch

    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    plan = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda at: min(1.0, (at + 1) / 20, (steps - at) / decline))
    loss = torch.tensor(float("nan"))
    for step in range(steps):
        rows = rows_at(step)
        texts = [f"{prompt} {answer} {EOS}" for prompt, answer in rows]
        batch = language(texts, return_tensors="pt", padding=True, padding_side="right")
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)
        for row, (prompt, _) in enumerate(rows):
            labels[row, : len(prompt.split())] = -100
        loss = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        plan.step()
        optimiser.zero_grad()
    return float(loss.detach())
