"""GRPO with TRL on a model small enough for any CPU, watched by Tiltmeter. Half a minute, and nothing is downloaded.

    pip install 'tiltmeter[trl]'
    python trl_quickstart.py
    tiltmeter show quickstart

Everything but `tiltmeter.attach(trainer)` is an ordinary TRL script. So that it runs anywhere it makes its own model,
which knows nothing. It will not learn to add in thirty steps; what it learns instead is on the screen.
"""

import torch
from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

import tiltmeter

QUESTIONS = [{"prompt": f"What is {a} + {b}?", "answer": str(a + b)} for a in range(1, 9) for b in range(1, 9)]


def right(completions, answer, **kwargs):
    """The right number is somewhere in the text."""
    return [float(number in text) for text, number in zip(completions, answer, strict=True)]


def form(completions, **kwargs):
    """It begins with a number."""
    return [0.5 * text.strip()[:1].isdigit() for text in completions]


def small_model(folder):
    """Save a model of two layers with random weights, and a byte-level tokenizer for it."""
    bpe = Tokenizer(models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    special = {"unk_token": "<unk>", "pad_token": "<pad>", "eos_token": "<eos>"}
    teacher = trainers.BpeTrainer(vocab_size=300, special_tokens=list(special.values()), show_progress=False)
    bpe.train_from_iterator([f"{row['prompt']} It is {row['answer']}." for row in QUESTIONS], teacher)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, **special)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def main():
    trainer = GRPOTrainer(
        model=small_model("quickstart/model"),
        reward_funcs=[right, form],
        train_dataset=Dataset.from_list(QUESTIONS),
        args=GRPOConfig(
            output_dir="quickstart",
            max_steps=30,
            per_device_train_batch_size=64,
            max_completion_length=16,
            learning_rate=1e-2,
            report_to="none",
            use_cpu=True,
            bf16=False,
        ),
    )
    tiltmeter.attach(trainer)
    trainer.train()


if __name__ == "__main__":
    main()
