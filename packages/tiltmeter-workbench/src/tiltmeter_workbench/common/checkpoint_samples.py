"""Generates greedy completions of a few prompts with saved checkpoints, outside of training."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError

BATCH = 8  # prompts that are answered together
SAFE = {"local_files_only": True, "trust_remote_code": False}

PromptOrChat = str | list[dict[str, Any]]  # plain text, or a chat

_NUMBERED = re.compile(r"checkpoint-([0-9]{1,15})")


def list_checkpoints(output: Path) -> list[tuple[int, Path]]:
    """Step and folder of every checkpoint that a trainer saved in its output directory, oldest first."""
    folders = [(_NUMBERED.fullmatch(path.name), path) for path in output.iterdir() if path.is_dir()]
    return sorted((int(match[1]), path) for match, path in folders if match)


def checkpoint_step(folder: Path) -> int | None:
    """The step at which a checkpoint was saved, by its name or its trainer_state.json; None if unknown."""
    if match := _NUMBERED.fullmatch(folder.name):
        return int(match[1])
    try:
        step = json.loads((folder / "trainer_state.json").read_bytes())["global_step"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return step if isinstance(step, int) and not isinstance(step, bool) and step >= 0 else None


def generate_answers(
    folder: Path, prompts: Sequence[PromptOrChat], *, tokens: int, chat: bool = False, device: str = "cpu"
) -> list[str]:
    """The greedy completion of each prompt by the model in `folder`, of at most `tokens` tokens.

    `chat`: a plain prompt is a user's message in the model's chat template. Nothing is downloaded, no code that comes
    with a model is run, and weights are read from safetensors only.
    """
    torch, transformers = import_libraries()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **SAFE, padding_side="left")
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, **SAFE, use_safetensors=True, dtype="auto")
        model = model.to(device).eval()
    except Exception as error:  # whatever a damaged or foreign model makes the libraries raise
        raise AttachError(f"{folder} cannot be loaded as a language model: {_short(error)}") from error
    try:
        rows = [_ids(tokenizer, prompt, chat) for prompt in prompts]
        texts: list[str] = []
        for start in range(0, len(rows), BATCH):
            texts += _generate(torch, transformers, model, tokenizer, rows[start : start + BATCH], tokens)
    except Exception as error:
        raise AttachError(f"{folder} could not answer: {_short(error)}") from error
    return texts


def has_chat_template(folder: Path) -> bool:
    """Whether a saved model's tokenizer has a chat template; only its files are read, no model is loaded."""
    if (folder / "chat_template.jinja").is_file():
        return True
    try:
        return bool(json.loads((folder / "tokenizer_config.json").read_bytes()).get("chat_template"))
    except (OSError, ValueError, AttributeError, RecursionError):
        return False  # loading it will say why


def import_libraries() -> tuple[Any, Any]:
    """torch and transformers, which nothing else here needs. Raises `AttachError` where they are not installed."""
    try:
        import torch
        import transformers
    except ImportError as error:
        raise AttachError(
            f"a checkpoint is loaded with transformers ({error}): pip install 'tiltmeter[trl]'"
        ) from error
    return torch, transformers


def _ids(tokenizer: Any, prompt: PromptOrChat, chat: bool) -> list[int]:
    """A prompt as TRL would tokenize it."""
    if isinstance(prompt, str) and not chat:
        return list(tokenizer(prompt)["input_ids"])
    if not tokenizer.chat_template:
        raise ValueError("it has no chat template: give prompts as plain text")
    messages = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    encoded = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=True, return_dict=True)
    return list(encoded["input_ids"])


def _generate(
    torch: Any, transformers: Any, model: Any, tokenizer: Any, rows: list[list[int]], tokens: int
) -> list[str]:
    pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    width = max(1, max(map(len, rows)))
    longest = getattr(model.config, "max_position_embeddings", None)
    room = tokens if longest is None else min(tokens, longest - width)
    if room < 1:
        raise ValueError(f"a prompt of {width} tokens leaves no room for an answer in its {longest} positions")
    pad = 0 if pad is None else pad
    ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows], device=model.device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=model.device)
    ends = model.generation_config.eos_token_id
    ends = tokenizer.eos_token_id if ends is None else ends
    # Not the checkpoint's own generation config: that one may sample.
    settings = transformers.GenerationConfig(do_sample=False, max_new_tokens=room, pad_token_id=pad, eos_token_id=ends)
    with torch.inference_mode():
        output = model.generate(input_ids=ids, attention_mask=mask, generation_config=settings)
    return [str(text) for text in tokenizer.batch_decode(output[:, width:], skip_special_tokens=True)]


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"
