"""Learning from preferences without a reward model: DPO, IPO and KTO, by TRL's trainers."""

from __future__ import annotations

from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.train import settings
from tiltmeter.train.method import Context, Trained
from tiltmeter.train.recipe import Recipe, Stage

OPTIONS = {
    "merge": "false keeps a LoRA adapter apart instead of merging it into the model (true)",
    "entropy_weight": "soft preference learning: the weight of the entropy part of the KL; beta weights the other part",
}


def check(recipe: Recipe, stage: Stage) -> None:
    """What contradicts itself."""
    loss = stage.trl.get("loss_type", "ipo")
    if stage.method == "ipo" and loss not in ("ipo", ["ipo"]):
        raise AttachError(
            f"stage {stage.name}: trl: loss_type: {loss} is not the loss of ipo; leave it out, or use dpo"
        )
    if settings.entropy_weight(stage) is not None and stage.method != "dpo":
        raise AttachError(
            f"stage {stage.name}: options: entropy_weight is for dpo; {stage.method} has no such loss here"
        )


def train(context: Context) -> Trained:
    """The reference is the model that training starts from: TRL loads it again, or turns the adapter off."""
    assert context.data is not None
    config, trainer, more = _chosen(context)
    data = settings.rows(context.data)
    made = trainer(
        model=str(context.model),
        args=config,
        train_dataset=data,
        eval_dataset=None if context.eval is None else settings.rows(context.eval),
        peft_config=settings.lora(context),
        **more,
    )
    return settings.trained(made, context, evaluate=True, rows=len(data))


def _chosen(context: Context) -> tuple[Any, Any, dict[str, Any]]:
    import trl

    if context.stage.method == "kto":
        return settings.configured(context, trl.KTOConfig), trl.KTOTrainer, {}
    loss = {"loss_type": "ipo"} if context.stage.method == "ipo" else {}
    config = settings.configured(context, trl.DPOConfig, **loss)
    weight = settings.entropy_weight(context.stage)
    if weight is None or weight == config.beta:
        return config, trl.DPOTrainer, {}  # the two parts weigh the same: that is TRL's own loss
    from tiltmeter.train.soft import SoftDPOTrainer

    return config, SoftDPOTrainer, {"entropy_weight": weight}
