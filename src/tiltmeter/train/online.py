"""GRPO and RLOO: a policy that is paid for its own answers, by guarded rewards, watched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.rewards.described import described
from tiltmeter.rewards.parts import Agree, Made
from tiltmeter.train import processes
from tiltmeter.train.method import Context, Trained
from tiltmeter.train.recipe import Recipe, Stage
from tiltmeter.train.settings import configured, entropy_weight, lora, rows, trained

OPTIONS = {
    "entropy_weight": "weight of the entropy in the KL, beside TRL's beta for the rest; grpo only",
    "merge": "false keeps a LoRA adapter apart; it is merged into the model otherwise",
}
SAFE = {"local_files_only": True, "trust_remote_code": False}


def check(recipe: Recipe, stage: Stage) -> None:
    """Raises `AttachError` for options that cannot work."""
    if stage.method == "rloo" and "entropy_weight" in stage.options:
        raise AttachError(f"stage {stage.name}: entropy_weight is for dpo and grpo; leave it out of rloo")
    entropy_weight(stage)


def train(context: Context) -> Trained:
    """The policy of a stage, trained by TRL's own trainer on one reward function made of what the recipe names."""
    import trl
    from transformers import AutoTokenizer

    from tiltmeter.train.learnt import Learnt

    kind = "RLOO" if context.stage.method == "rloo" else "GRPO"
    args = configured(context, getattr(trl, f"{kind}Config"))
    reward = paid(context, limit=args.max_completion_length, device=str(args.device))
    trainer_class, given = getattr(trl, f"{kind}Trainer"), {}
    if (weight := entropy_weight(context.stage)) is not None:
        from tiltmeter.train.soft import SoftGRPOTrainer

        trainer_class, given = SoftGRPOTrainer, {"entropy_weight": weight}
    assert context.data is not None
    trainer = trainer_class(
        model=str(context.model),
        args=args,
        reward_funcs=[reward],
        train_dataset=rows(context.data),
        eval_dataset=None if context.eval is None else rows(context.eval),
        processing_class=AutoTokenizer.from_pretrained(str(context.model), padding_side="left", **SAFE),
        peft_config=lora(context),
        **given,
    )
    trainer.add_callback(Learnt(reward))
    found = trained(trainer, context, rows=len(trainer.train_dataset))
    return replace(found, facts={**found.facts, "reward": _reward(trainer), "labels": _labels(found)})


def paid(context: Context, *, limit: int | None, device: str, alone: bool = False) -> Made:
    """The reward of a stage: one function, so that a part that could not run is not paid as 0 beside one that did.

    `alone`: this process scores, whatever others there are.
    """
    made = described(
        [_placed(entry, device) for entry in context.rewards],
        context.stage.guards or (),
        limit=limit,
        folder=context.recipe.path.parent,
        agree=list if alone else agreed(),
    )
    if not isinstance(made, Made):
        raise TypeError(f"{made!r} cannot say what it has learnt")
    return made


def agreed() -> Agree | None:
    """How several processes learn from the rows of all of them; None where there is one."""
    if not processes.several():
        return None

    def agree(sums: list[float]) -> list[float]:
        import torch
        from accelerate import PartialState
        from accelerate.utils import reduce

        told = torch.tensor(sums, dtype=torch.float64, device=PartialState().device)
        total: list[float] = reduce(told, reduction="sum").tolist()
        return total

    return agree


def _placed(entry: Mapping[str, Any], device: str) -> Mapping[str, Any]:
    """A reward model works where the policy is trained, unless the recipe says otherwise."""
    if "model" not in entry:
        return entry
    return {**entry, "settings": {"device": device, **(entry.get("settings") or {})}}


def _reward(trainer: Any) -> float | None:
    """The mean reward of the last step that the trainer logged."""
    told = [said["reward"] for said in trainer.state.log_history if "reward" in said]
    return float(told[-1]) if told else None


def _labels(found: Trained) -> int | None:
    """How many labels of gold the monitor has; None where nothing was watched."""
    if not found.facts.get("run"):
        return None
    from tiltmeter.store import RunDirectory
    from tiltmeter.verdict import look

    return look(RunDirectory(found.facts["run"]))[1].labels
