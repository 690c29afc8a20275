"""DPO, IPO and KTO by TRL's trainers."""

from __future__ import annotations

from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.train import trl_trainer
from tiltmeter_workbench.train.method_interface import Context, StageOutput
from tiltmeter_workbench.train.recipe import Recipe, Stage

OPTIONS = {
    "merge": "false keeps a LoRA adapter apart instead of merging it into the model (true)",
    "entropy_weight": "soft preference learning: the weight of the entropy part of the KL; beta weights the other part",
}


def check(recipe: Recipe, stage: Stage) -> None:
    """Raises `AttachError` for contradictory settings."""
    loss = stage.trl.get("loss_type", "ipo")
    if stage.method == "ipo" and loss not in ("ipo", ["ipo"]):
        raise AttachError(
            f"stage {stage.name}: trl: loss_type: {loss} is not the loss of ipo; leave it out, or use dpo"
        )
    if trl_trainer.entropy_weight(stage) is not None and stage.method != "dpo":
        raise AttachError(
            f"stage {stage.name}: options: entropy_weight is for dpo; {stage.method} has no such loss here"
        )


def train(context: Context) -> StageOutput:
    """The reference is the model that training starts from: TRL loads it again, or turns the adapter off."""
    assert context.data is not None
    config, trainer, more = _trainer_setup(context)
    data = trl_trainer.rows(context.data)
    trainer_instance = trainer(
        model=str(context.model),
        args=config,
        train_dataset=data,
        eval_dataset=None if context.eval is None else trl_trainer.rows(context.eval),
        peft_config=trl_trainer.lora_config(context),
        **more,
    )
    return trl_trainer.train_and_save(trainer_instance, context, evaluate=True, rows=len(data))


def _trainer_setup(context: Context) -> tuple[Any, Any, dict[str, Any]]:
    import trl

    if context.stage.method == "kto":
        return trl_trainer.make_config(context, trl.KTOConfig), trl.KTOTrainer, {}
    loss = {"loss_type": "ipo"} if context.stage.method == "ipo" else {}
    config = trl_trainer.make_config(context, trl.DPOConfig, **loss)
    weight = trl_trainer.entropy_weight(context.stage)
    if weight is None or weight == config.beta:
        return config, trl.DPOTrainer, {}  # the two parts weigh the same: that is TRL's own loss
    from tiltmeter_workbench.train.methods.soft_trainers import SoftDPOTrainer

    return config, SoftDPOTrainer, {"entropy_weight": weight}
