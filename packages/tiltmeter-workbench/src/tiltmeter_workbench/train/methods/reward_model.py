"""Reward models, by TRL's RewardTrainer: one, an ensemble, or the average of several (WARM)."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import Row, read_rows
from tiltmeter_workbench.rewards.reward_model import preserve_rng
from tiltmeter_workbench.rewards.weight_averaging import warm
from tiltmeter_workbench.train import distributed, trl_trainer
from tiltmeter_workbench.train.data import to_dataset
from tiltmeter_workbench.train.method_interface import Context, StageOutput
from tiltmeter_workbench.train.recipe import Recipe, Stage
from tiltmeter_workbench.train.stage_results import read_result, write_result

OPTIONS = {
    "members": "how many models are trained (1, or 4 where they are combined)",
    "combine": "single, ensemble (every member scores) or warm (one model with the mean of their weights)",
    "share": "of the prompts that each of several members sees, drawn without replacement (0.8)",
    "merge": "false keeps a LoRA adapter apart instead of merging it into the model (true)",
}
COMBINE_MODES = ("single", "ensemble", "warm")
MEMBERS = 4
#: Members must differ in their data. Drawn without replacement: a bootstrap repeats pairs, and a reward model that
#: sees a pair twice memorises it. Disjoint shares would leave each member only a fraction of the data.
SHARE = 0.8


def check(recipe: Recipe, stage: Stage) -> None:
    members, combine, share = member_options(stage)
    where = f"stage {stage.name}: options:"
    if combine not in COMBINE_MODES:
        raise AttachError(f"{where} combine: {combine} is not one of {', '.join(COMBINE_MODES)}")
    if isinstance(members, bool) or not isinstance(members, int) or members < 1:
        raise AttachError(f"{where} members is a whole number from 1, not {members!r}")
    if combine == "single" and members != 1:
        raise AttachError(f"{where} {members} members are no single model; write combine: ensemble, or warm")
    if combine != "single" and members < 2:
        raise AttachError(f"{where} one member makes no {combine}; write members: {MEMBERS}")
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0.0 < share <= 1.0:
        raise AttachError(f"{where} share is above 0 and at most 1, not {share!r}")
    if combine != "single" and stage.options.get("merge", True) is False:
        raise AttachError(f"{where} members are scored and averaged as whole models; leave merge: false out")


def train(context: Context) -> StageOutput:
    """Train each member that is not trained yet, then put them together."""
    members, combine, share = member_options(context.stage)
    assert context.data is not None
    rows = read_rows(context.data)
    if combine == "single":
        return _train_member(context, rows, context.folder / "model", "", 0, context.model)
    start = _shared_start(context) if combine == "warm" else context.model
    outputs = []
    for number in range(1, members + 1):
        target = context.folder / f"member-{number}"
        subset = _draw_share(rows, share, context.recipe.seed + number)
        trainer_folder = context.folder / f"trainer-{number}"
        if read_result(trainer_folder) is None:
            output = _train_member(context, subset, target, f"-{number}", number, start)
            if distributed.is_main_process():
                write_result(trainer_folder, context.stage.name, "reward", {}, output)
            distributed.wait_for_everyone()
        result = read_result(trainer_folder)
        assert result is not None
        outputs.append(result.trained)
    folders = tuple(one.folders[0] for one in outputs)
    facts = {
        **{name: value for name, value in outputs[-1].facts.items() if name not in ("steps", "seconds", "rows")},
        "rows": len(rows),
        "steps": sum(one.facts["steps"] for one in outputs),
        "seconds": round(sum(one.facts["seconds"] for one in outputs), 3),
        "alarms": sum(one.facts.get("alarms") or 0 for one in outputs),
        "members": [dict(one.facts) for one in outputs],
    }
    if combine == "ensemble":
        return StageOutput(folders, facts=facts, notes=("every score of an ensemble costs one of each member",))
    if distributed.is_main_process():
        warm(folders, context.folder / "model")
    distributed.wait_for_everyone()
    return StageOutput((context.folder / "model",), facts=facts)


def member_options(stage: Stage) -> tuple[Any, Any, Any]:
    """Members, how they are combined, and the share of each, as the recipe sets them, unchecked."""
    combine = stage.options.get("combine", "single" if stage.options.get("members", 1) == 1 else "ensemble")
    return (
        stage.options.get("members", 1 if combine == "single" else MEMBERS),
        combine,
        stage.options.get("share", SHARE),
    )


def _train_member(
    context: Context, rows: Sequence[Row], target: Path, suffix: str, number: int, start: Path
) -> StageOutput:
    """One reward model. Its seed is its own: of the head, unless it starts from one, and of the order of pairs."""
    from trl import RewardConfig, RewardTrainer

    seed = int(context.stage.trl.get("seed", context.recipe.seed)) + number
    config = trl_trainer.make_config(
        context, RewardConfig, output_dir=str(context.folder / f"trainer{suffix}"), seed=seed
    )
    trainer = RewardTrainer(
        model=str(start),
        args=config,
        train_dataset=to_dataset(context.data or context.folder, rows),
        eval_dataset=None if context.eval is None else trl_trainer.rows(context.eval),
        peft_config=trl_trainer.lora_config(context, "SEQ_CLS"),
    )
    ending = {"ending": trainer.processing_class.eos_token or ""}  # which TRL writes after plain text
    return trl_trainer.train_and_save(
        trainer, context, to=target, watch=context.folder / f"tiltmeter{suffix}", base=start, evaluate=True,
        rows=len(rows), **ending,
    )  # fmt: skip


def _shared_start(context: Context) -> Path:
    """The model with a score head, the same for every member: WARM averages weights that share one start."""
    target = context.folder / "start"
    if not (target / "config.json").exists() and distributed.is_main_process():
        from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed

        safe = {"local_files_only": True, "trust_remote_code": False}
        with preserve_rng():
            set_seed(int(context.stage.trl.get("seed", context.recipe.seed)))
            model = AutoModelForSequenceClassification.from_pretrained(
                str(context.model), num_labels=1, use_safetensors=True, dtype="float32", **safe
            )
            AutoTokenizer.from_pretrained(str(context.model), **safe).save_pretrained(target)
            model.save_pretrained(target)
    distributed.wait_for_everyone()
    return target


def _draw_share(rows: Sequence[Row], share: float, seed: int) -> list[Row]:
    """A share of the prompts with all their pairs, in the order of the file."""
    prompts = [json.dumps(row["prompt"]) if row.get("prompt") else str(at) for at, row in enumerate(rows)]
    distinct = sorted(set(prompts))
    chosen = set(random.Random(seed).sample(distinct, max(1, round(share * len(distinct)))))
    return [row for row, prompt in zip(rows, prompts, strict=True) if prompt in chosen]
