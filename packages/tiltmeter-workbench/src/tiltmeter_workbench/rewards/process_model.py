"""`step_model`: a process reward model of a folder as a scorer of steps, for `rewards.process`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tiltmeter.gold.guards.reward import texts

SEPARATOR = "\n"  # behind each step, as `lines` of `process` cuts them
BATCH = 16


class StepModel:
    """A model with two labels for each token; the chance of the second at a step's last token is the step's score."""

    def __init__(self, folder: str | Path, separator: str = SEPARATOR, batch: int = BATCH, device: str = "") -> None:
        self.folder, self.separator, self.batch, self.device = Path(folder), separator, batch, device

    @cached_property
    def tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(str(self.folder), local_files_only=True, trust_remote_code=False)

    @cached_property
    def model(self) -> Any:
        import torch
        from transformers import AutoModelForTokenClassification

        safe = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
        model = AutoModelForTokenClassification.from_pretrained(str(self.folder), **safe)
        return model.to(self.device or ("cuda" if torch.cuda.is_available() else "cpu")).eval()

    def __call__(self, prompts: Any, steps: Sequence[Sequence[str]], **_: Any) -> list[list[float]]:
        questions = [""] * len(steps) if prompts is None else texts(prompts)
        rows = [encode_steps(self.tokenizer, *row, self.separator) for row in zip(questions, steps, strict=True)]
        return [scores for at in range(0, len(rows), self.batch) for scores in self._score(rows[at : at + self.batch])]

    def _score(self, rows: Sequence[tuple[list[int], list[int]]]) -> list[list[float]]:
        import torch

        width = max(len(ids) for ids, _ in rows)
        ids = torch.zeros((len(rows), width), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for at, (row, _) in enumerate(rows):
            ids[at, : len(row)], mask[at, : len(row)] = torch.tensor(row), 1
        with torch.no_grad():
            device = self.model.device
            logits = self.model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits.float().cpu()
        chances = logits.softmax(-1)[..., 1]
        return [[float(chances[at, end]) for end in ends] for at, (_, ends) in enumerate(rows)]


def step_model(
    folder: str | Path, *, separator: str = SEPARATOR, batch: int = BATCH, device: str = ""
) -> Callable[..., list[list[float]]]:
    """A process reward model as the scorer of `rewards.process`: how likely each step is to be right.

    The model is what a recipe's stage `process_reward` leaves, or any other with two labels a token in safetensors.
    It is loaded at the first call. `separator` is what it was trained with behind each step.

    Example:

        reward = rewards.process(rewards.step_model("out/01-process_reward/model"))
    """
    return StepModel(folder, separator, batch, device)


def encode_steps(tokenizer: Any, prompt: str, steps: Sequence[str], separator: str) -> tuple[list[int], list[int]]:
    """The tokens of a prompt and its steps, and the place of each step's last token."""
    ids: list[int] = list(tokenizer(prompt + separator)["input_ids"])
    ends = []
    for step in steps:
        # A step without a token of its own, as an empty one, is judged where it would stand.
        ids += tokenizer(step + separator, add_special_tokens=False)["input_ids"]
        ends.append(max(len(ids) - 1, 0))
    return ids or [0], ends
