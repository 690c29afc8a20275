"""Gradient projection: of each step, the part that would raise the loss on rows to keep is taken out.

With d the step that the optimiser takes and r the gradient of the loss on some of these rows, d raises that loss, to
first order, where d · r > 0. Then d becomes d - (d · r / r · r) r, which no longer does. A-GEM (Chaudhry et al. 2019)
projects the gradient before the step, which is the same for plain gradient descent; Adam turns what it is given, and
most of the harm was left where that was tried.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from transformers import TrainerCallback

from tiltmeter.errors import AttachError

BATCH = 16  # rows of a step
LONGEST = 1_024  # tokens of a row
IGNORED = -100  # the label that the models of transformers leave out of their loss


class GradientProjection(TrainerCallback):  # type: ignore[misc]
    """Keeps the loss on rows of text, or of prompt and completion, from rising by what a step does to it.

    All ranks draw the same rows, so that they take the same step. It costs a pass over these rows, and a copy of the
    trained weights, at each step. `steps` and `projected` count what was done.
    """

    def __init__(self, trainer: Any, rows: Sequence[Mapping[str, Any]], seed: int) -> None:
        if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
            raise AttachError("replay needs whole gradients on each process: not with DeepSpeed or FSDP")
        if trainer.args.fp16:
            raise AttachError("replay needs gradients that are not scaled: write trl: {bf16: true, fp16: false}")
        self._trainer, self._rows, self._seed = trainer, rows, seed
        self._before: list[tuple[Any, Any, Any]] = []  # weights, what they were, and the gradient of what is kept
        self.steps = self.projected = 0

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        import torch

        model = self._trainer.accelerator.unwrap_model(self._trainer.model)
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        rng = random.Random(f"{self._seed}/{state.global_step}")
        rows = rng.sample(list(self._rows), min(BATCH, len(self._rows)))
        devices = [model.device] if model.device.type == "cuda" else []
        with torch.random.fork_rng(devices), torch.enable_grad():  # what training draws stays the same
            loss = model(**self._encode(rows, model.device, torch)).loss
            gradients = torch.autograd.grad(loss, weights, allow_unused=True)
        self._before = [
            (weight, weight.detach().clone(), gradient.float())
            for weight, gradient in zip(weights, gradients, strict=True)
            if gradient is not None
        ]

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        import torch

        with torch.no_grad():
            along = sum(float(((own - old).float() * gradient).sum()) for own, old, gradient in self._before)
            length = sum(float((gradient * gradient).sum()) for _, _, gradient in self._before)
            self.steps += 1
            if along > 0.0 < length:
                self.projected += 1
                for own, _old, gradient in self._before:
                    own.sub_((along / length * gradient).to(own.dtype))
        self._before = []

    def _encode(self, rows: Sequence[Mapping[str, Any]], device: Any, torch: Any) -> dict[str, Any]:
        language = self._trainer.processing_class
        inputs, labels = [], []
        for row in rows:
            prompt, rest = split_row(row, language)
            before = language(prompt, add_special_tokens=False)["input_ids"] if prompt else []
            after = [*language(rest, add_special_tokens=False)["input_ids"], language.eos_token_id]
            inputs.append(torch.tensor([*before, *after][:LONGEST]))
            labels.append(torch.tensor([*[IGNORED] * len(before), *after][:LONGEST]))
        pad = torch.nn.utils.rnn.pad_sequence
        mask = [torch.ones_like(one) for one in inputs]
        return {
            "input_ids": pad(inputs, True, float(language.pad_token_id)).to(device),
            "attention_mask": pad(mask, True, 0.0).to(device),
            "labels": pad(labels, True, float(IGNORED)).to(device),
        }


def split_row(row: Mapping[str, Any], language: Any) -> tuple[str, str]:
    """What stands before, and what is to be kept likely. A conversation is kept whole."""
    if row.get("messages") is not None:
        return "", str(language.apply_chat_template(row["messages"], tokenize=False))
    prompt, completion = row.get("prompt"), row.get("completion")
    if isinstance(prompt, str) and isinstance(completion, str):
        return prompt, completion
    if prompt is not None and completion is not None:
        return "", str(language.apply_chat_template([*prompt, *completion], tokenize=False))
    return "", str(row["text"])
