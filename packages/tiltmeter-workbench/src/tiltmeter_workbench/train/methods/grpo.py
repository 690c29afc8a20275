"""GRPO and RLOO by TRL's trainers, with the recipe's rewards and guards and the monitor attached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.gold.guards.composed_reward import Agree, ComposedReward
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run
from tiltmeter_workbench.rewards.recipe_reward import reward_from_recipe
from tiltmeter_workbench.train import distributed
from tiltmeter_workbench.train.method_interface import Context, StageOutput
from tiltmeter_workbench.train.recipe import Recipe, Stage
from tiltmeter_workbench.train.trl_trainer import entropy_weight, lora_config, make_config, rows, train_and_save

OPTIONS = {
    "entropy_weight": "weight of the entropy in the KL, beside TRL's beta for the rest; grpo only",
    "step_weight": "from 0 to 1: how much of the advantage is that of steps, for a reward that scores steps",
    "merge": "false keeps a LoRA adapter apart; it is merged into the model otherwise",
}
LOAD_OPTIONS = {"local_files_only": True, "trust_remote_code": False}


def check(recipe: Recipe, stage: Stage) -> None:
    """Raises `AttachError` for options that cannot work."""
    if stage.method == "rloo" and "entropy_weight" in stage.options:
        raise AttachError(f"stage {stage.name}: entropy_weight is for dpo and grpo; leave it out of rloo")
    if entropy_weight(stage) is not None and step_weight(stage) is not None:
        raise AttachError(f"stage {stage.name}: entropy_weight and step_weight are two trainers: choose one")


def train(context: Context) -> StageOutput:
    """The policy of a stage, trained by TRL's own trainer on one reward function made of what the recipe names."""
    import trl
    from transformers import AutoTokenizer

    from tiltmeter_workbench.train.reward_checkpoint import RewardStateCallback

    kind = "RLOO" if context.stage.method == "rloo" else "GRPO"
    args = make_config(context, getattr(trl, f"{kind}Config"))
    reward = build_reward(context, limit=args.max_completion_length, device=str(args.device))
    trainer_class, extra = getattr(trl, f"{kind}Trainer"), {}
    if (weight := entropy_weight(context.stage)) is not None:
        from tiltmeter_workbench.train.methods.soft_trainers import SoftGRPOTrainer

        trainer_class, extra = SoftGRPOTrainer, {"entropy_weight": weight}
    elif (weight := step_weight(context.stage)) is not None:
        from tiltmeter_workbench.train.methods import step_trainers

        trainer_class, extra = getattr(step_trainers, f"Step{kind}Trainer"), {"step_weight": weight}
    assert context.data is not None
    trainer = trainer_class(
        model=str(context.model),
        args=args,
        reward_funcs=[reward],
        train_dataset=rows(context.data),
        eval_dataset=None if context.eval is None else rows(context.eval),
        processing_class=AutoTokenizer.from_pretrained(str(context.model), padding_side="left", **LOAD_OPTIONS),
        peft_config=lora_config(context),
        **extra,
    )
    trainer.add_callback(RewardStateCallback(reward))
    output = train_and_save(trainer, context, rows=len(trainer.train_dataset))
    return replace(output, facts={**output.facts, "reward": _last_reward(trainer), "labels": _label_count(output)})


def step_weight(stage: Stage) -> float | None:
    """The option for advantages of steps; None without it. Raises `AttachError` for no share."""
    weight = stage.options.get("step_weight")
    if weight is None:
        return None
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0.0 <= weight <= 1.0:
        raise AttachError(f"stage {stage.name}: options: step_weight is a number from 0 to 1, not {weight!r}")
    return float(weight)


def build_reward(context: Context, *, limit: int | None, device: str, single_process: bool = False) -> ComposedReward:
    """The reward of a stage as one function, so that a component that failed is not counted as 0.

    `single_process`: only this process scores, even in a distributed run.
    """
    reward = reward_from_recipe(
        [_with_device(entry, device) for entry in context.rewards],
        context.stage.guards or (),
        limit=limit,
        folder=context.recipe.path.parent,
        agree=list if single_process else all_reduce_sum(),
    )
    if not isinstance(reward, ComposedReward):
        raise TypeError(f"{reward!r} cannot say what it has learnt")
    return reward


def all_reduce_sum() -> Agree | None:
    """A function that sums over all processes, so that guards learn from all rows; None in a single process."""
    if not distributed.is_distributed():
        return None

    def all_reduce(sums: list[float]) -> list[float]:
        import torch
        from accelerate import PartialState
        from accelerate.utils import reduce

        tensor = torch.tensor(sums, dtype=torch.float64, device=PartialState().device)
        total: list[float] = reduce(tensor, reduction="sum").tolist()
        return total

    return all_reduce


def _with_device(entry: Mapping[str, Any], device: str) -> Mapping[str, Any]:
    """A reward model works where the policy is trained, unless the recipe says otherwise."""
    if "model" not in entry:
        return entry
    return {**entry, "settings": {"device": device, **(entry.get("settings") or {})}}


def _last_reward(trainer: Any) -> float | None:
    """The mean reward of the last step that the trainer logged."""
    rewards = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    return float(rewards[-1]) if rewards else None


def _label_count(output: StageOutput) -> int | None:
    """How many gold labels the monitor has; None where the stage was not monitored."""
    if not output.facts.get("run"):
        return None
    return judge_run(RunDirectory(output.facts["run"]))[1].labels
