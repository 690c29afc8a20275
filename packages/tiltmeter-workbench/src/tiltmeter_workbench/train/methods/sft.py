"""Supervised fine-tuning, by TRL's SFTTrainer."""

from __future__ import annotations

from tiltmeter_workbench.train import trl_trainer
from tiltmeter_workbench.train.method_interface import Context, StageOutput

OPTIONS = {"merge": "false keeps a LoRA adapter apart instead of merging it into the model (true)"}


def train(context: Context) -> StageOutput:
    """Text, prompts with completions, or conversations; whatever of them the data holds."""
    from trl import SFTConfig, SFTTrainer

    assert context.data is not None
    data = trl_trainer.rows(context.data)
    trainer = SFTTrainer(
        model=str(context.model),
        args=trl_trainer.make_config(context, SFTConfig),
        train_dataset=data,
        eval_dataset=None if context.eval is None else trl_trainer.rows(context.eval),
        peft_config=trl_trainer.lora_config(context),
    )
    return trl_trainer.train_and_save(trainer, context, evaluate=True, rows=len(data))
