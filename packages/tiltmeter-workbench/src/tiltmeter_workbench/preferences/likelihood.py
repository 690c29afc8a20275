"""Log-likelihoods of answers under a local causal language model, for the typicality check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiltmeter.data.batches import replace_surrogates
from tiltmeter.errors import AttachError
from tiltmeter_workbench.rewards.reward_model import preserve_rng

Floats = NDArray[np.float64]


@dataclass
class ModelLikelihood:
    """Σ log π(token | prompt, tokens before) over an answer's tokens, the end of the turn not counted.

    A base model is what is meant: one that has not seen preferences. The prompt is written by the tokenizer's chat
    template where there is one (`formatting` says so), else put before the answer as it stands. From a prompt that is
    too long the beginning is cut (`cut_prompts`); an answer that does not fit has no value (`left_out`), since the sum
    over a part of it is nobody's likelihood. It is loaded at the first call, from safetensors only.

    >>> ModelLikelihood(Path("a/folder")).loaded
    False
    """

    folder: Path
    batch: int = 2048  # tokens that are read at once, padding included
    max_length: int = 1024  # tokens of prompt and answer together
    device: str = "cpu"
    formatting: str = field(default="", init=False)
    cut_prompts: int = field(default=0, init=False)
    left_out: int = field(default=0, init=False)
    _model: Any = field(default=None, init=False, repr=False)
    _tokenizer: Any = field(default=None, init=False, repr=False)

    @property
    def loaded(self) -> bool:
        return self._model is not None

    def __call__(self, prompts: Sequence[str], answers: Sequence[str]) -> Floats:
        self._load()
        self.cut_prompts = self.left_out = 0
        rows = [self._tokens(prompt, answer) for prompt, answer in zip(prompts, answers, strict=True)]
        values = np.full(len(rows), np.nan)
        fits = [number for number, row in enumerate(rows) if row is not None]
        # Of equal length together: padding is most of the cost otherwise.
        fits.sort(key=lambda number: sum(map(len, rows[number] or ())))
        while fits:
            longest = sum(map(len, rows[fits[-1]] or ()))
            batch = [fits.pop() for _ in range(min(len(fits), max(1, self.batch // longest)))]
            values[batch] = self._sums([rows[number] or ([], []) for number in batch])
        return values

    def _load(self) -> None:
        if self.loaded:
            return
        if not any(self.folder.glob("*.safetensors")):
            raise AttachError(f"{self.folder} has no model in safetensors; give the folder that save_pretrained wrote")
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        try:
            with preserve_rng():
                self._tokenizer = AutoTokenizer.from_pretrained(self.folder, local_files_only=True)
                model: Any = AutoModelForCausalLM.from_pretrained(
                    self.folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
                )
        except (OSError, ValueError, KeyError) as failed:
            raise AttachError(f"{self.folder} could not be read as a causal language model: {failed}") from failed
        self._model = model.to(self.device).eval().requires_grad_(False)
        limit = model.config.to_dict().get("max_position_embeddings")  # absent where positions are not numbered
        self.max_length = min(self.max_length, int(limit or self.max_length))
        self.formatting = "chat template" if self._tokenizer.chat_template else "prompt and answer as they stand"

    def _tokens(self, prompt: str, answer: str) -> tuple[list[int], list[int]] | None:
        """Tokens of the prompt and of the answer; None where the answer does not fit, or is none."""
        coder, prompt, answer = (
            self._tokenizer,
            replace_surrogates(prompt),
            replace_surrogates(answer),
        )  # a lone surrogate is no text to it
        if coder.chat_template:
            turn = [{"role": "user", "content": prompt}]
            text = coder.apply_chat_template(turn, tokenize=False, add_generation_prompt=True)
            before = coder(text, add_special_tokens=False)["input_ids"]
        else:
            before = coder(prompt)["input_ids"]
        after = coder(answer, add_special_tokens=False)["input_ids"]
        room = self.max_length - len(after)
        if room < 1 or not before or not after:
            self.left_out += 1
            return None
        if len(before) > room:
            self.cut_prompts += 1
        return before[-room:], after

    def _sums(self, rows: Sequence[tuple[list[int], list[int]]]) -> Floats:
        import torch

        longest = max(len(before) + len(after) for before, after in rows)
        pad = self._tokenizer.pad_token_id or 0
        ids = torch.full((len(rows), longest), pad, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for number, (before, after) in enumerate(rows):
            both = before + after
            ids[number, : len(both)] = torch.tensor(both)
            mask[number, : len(both)] = 1
        sums = []
        with torch.inference_mode():
            logits = self._model(input_ids=ids.to(self.device), attention_mask=mask.to(self.device)).logits
            for number, (before, after) in enumerate(rows):
                # A row at a time: a second table of the whole vocabulary for all would double the memory.
                log_probs = logits[number, len(before) - 1 : len(before) + len(after) - 1].double().log_softmax(-1)
                token_log_probs = log_probs.gather(
                    -1, torch.tensor(after, dtype=torch.long, device=log_probs.device)[:, None]
                )
                sums.append(float(token_log_probs.sum()))
        return np.array(sums, np.float64)


def model_likelihood(folder: str | Path) -> Callable[[Sequence[str], Sequence[str]], Floats]:
    """The log-likelihood function of a model in a folder, for `typicality.check`."""
    return ModelLikelihood(Path(folder))
