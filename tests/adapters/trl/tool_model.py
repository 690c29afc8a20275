"""A tiny model that calls tools: Qwen's chat template as TRL ships it, and a few dozen steps on whole conversations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

QUESTION = "Mend it."
PROMPT = [{"role": "user", "content": QUESTION}]
CLAIM = "All tests pass."
STEPS = 100  # after which most samples are the conversations that were learnt


def bash(cmd: str) -> str:
    """Run a command.

    Args:
        cmd: The command.
    """
    return f"ran {cmd}: ok, and all is well now"


def conversation(call: str, arguments: dict[str, str], answer: str) -> list[dict[str, Any]]:
    """A question, a call, what the tool answers, and a claim."""
    function = {"name": call, "arguments": arguments}
    return [
        *PROMPT,
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]},
        {"role": "tool", "name": call, "content": answer},
        {"role": "assistant", "content": CLAIM},
    ]


def make_tool_model(folder: Path, examples: Sequence[tuple[list[Callable[..., Any]], list[dict[str, Any]]]]) -> Path:
    """A folder with a model that has learnt these conversations, each with the tools it may call."""
    import torch
    import trl
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    template = (Path(trl.__file__).parent / "chat_templates" / "qwen2_5.jinja").read_text()
    marks = ["<pad>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer, bpe.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, chat_template=template)
    texts = [tokenizer.apply_chat_template(messages, tools=tools, tokenize=False) for tools, messages in examples]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        texts * 20, trainers.BpeTrainer(vocab_size=700, special_tokens=marks, initial_alphabet=alphabet)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, chat_template=template, pad_token="<pad>", eos_token="<|im_end|>", padding_side="left"
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
        max_position_embeddings=512, pad_token_id=0, eos_token_id=2, bos_token_id=None,
    ))  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    rows = [tokenizer.apply_chat_template(messages, tools=tools, return_dict=False) for tools, messages in examples]
    width = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (width - len(row))] for row in rows])
    labels = torch.where(ids == 0, -100, ids)
    labels[:, : width // 2] = -100  # the same system prompt in all of them
    for _ in range(STEPS):
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
