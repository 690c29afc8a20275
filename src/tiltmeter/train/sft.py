"""Supervised fine-tuning, by TRL's SFTTrainer."""

from __future__ import annotations

from tiltmeter.train import settings
from tiltmeter.train.method import Context, Trained

OPTIONS = {"merge": "false keeps a LoRA adapter apart instead of merging it into the model (true)"}


def train(context: Context) -> Trained:
    """Text, prompts with completions, or conversations; whatever of them the data holds."""
    from trl import SFTConfig, SFTTrainer

    assert context.data is not None
    data = settings.rows(context.data)
    trainer = SFTTrainer(
        model=str(context.model),
        args=settings.configured(context, SFTConfig),
        train_dataset=data,
        eval_dataset=None if context.eval is None else settings.rows(context.eval),
        peft_config=settings.lora(context),
    )
    return settings.trained(trainer, context, evaluate=True, rows=len(data))
