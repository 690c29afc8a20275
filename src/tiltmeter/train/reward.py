"""Reward models, by TRL's RewardTrainer: one, an ensemble, or the average of several (WARM)."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.rows import Row, read_rows
from tiltmeter.train import processes, settings
from tiltmeter.train.data import table
from tiltmeter.train.finished import finish, finished
from tiltmeter.train.method import Context, Trained
from tiltmeter.train.recipe import Recipe, Stage

OPTIONS = {
    "members": "how many models are trained (1, or 4 where they are combined)",
    "combine": "single, ensemble (every member scores) or warm (one model with the mean of their weights)",
    "share": "of the prompts that each of several members sees, drawn without replacement (0.8)",
    "merge": "false keeps a LoRA adapter apart instead of merging it into the model (true)",
}
COMBINE = ("single", "ensemble", "warm")
MEMBERS = 4
#: Members must differ in what they saw. Drawn without replacement: a bootstrap repeats pairs, and a reward model that
#: meets a pair twice learns it by heart. Disjoint shares would leave each member a fraction of what there is.
SHARE = 0.8


def check(recipe: Recipe, stage: Stage) -> None:
    members, combine, share = asked(stage)
    where = f"stage {stage.name}: options:"
    if combine not in COMBINE:
        raise AttachError(f"{where} combine: {combine} is not one of {', '.join(COMBINE)}")
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


def train(context: Context) -> Trained:
    """Train each member that is not trained yet, then put them together."""
    members, combine, share = asked(context.stage)
    assert context.data is not None
    found = read_rows(context.data)
    if combine == "single":
        return _member(context, found, context.folder / "model", "", 0, context.model)
    start = _start(context) if combine == "warm" else context.model
    made = []
    for number in range(1, members + 1):
        target = context.folder / f"member-{number}"
        drawn = _drawn(found, share, context.recipe.seed + number)
        kept = context.folder / f"trainer-{number}"
        if finished(kept) is None:
            done = _member(context, drawn, target, f"-{number}", number, start)
            if processes.main():
                finish(kept, context.stage.name, "reward", {}, done)
            processes.wait()
        known = finished(kept)
        assert known is not None
        made.append(known.trained)
    folders = tuple(one.folders[0] for one in made)
    facts = {
        **{name: value for name, value in made[-1].facts.items() if name not in ("steps", "seconds", "rows")},
        "rows": len(found),
        "steps": sum(one.facts["steps"] for one in made),
        "seconds": round(sum(one.facts["seconds"] for one in made), 3),
        "alarms": sum(one.facts.get("alarms") or 0 for one in made),
        "members": [dict(one.facts) for one in made],
    }
    if combine == "ensemble":
        return Trained(folders, facts=facts, told=("every score of an ensemble costs one of each member",))
    from tiltmeter.rewards.warm import warm

    if processes.main():
        warm(folders, context.folder / "model")
    processes.wait()
    return Trained((context.folder / "model",), facts=facts)


def asked(stage: Stage) -> tuple[Any, Any, Any]:
    """Members, how they are combined, and the share of each; as the recipe says them, right or wrong."""
    combine = stage.options.get("combine", "single" if stage.options.get("members", 1) == 1 else "ensemble")
    return (
        stage.options.get("members", 1 if combine == "single" else MEMBERS),
        combine,
        stage.options.get("share", SHARE),
    )


def _member(context: Context, found: Sequence[Row], target: Path, mark: str, number: int, start: Path) -> Trained:
    """One reward model. Its seed is its own: of the head, unless it starts from one, and of the order of pairs."""
    from trl import RewardConfig, RewardTrainer

    seed = int(context.stage.trl.get("seed", context.recipe.seed)) + number
    config = settings.configured(context, RewardConfig, output_dir=str(context.folder / f"trainer{mark}"), seed=seed)
    trainer = RewardTrainer(
        model=str(start),
        args=config,
        train_dataset=table(context.data or context.folder, found),
        eval_dataset=None if context.eval is None else settings.rows(context.eval),
        peft_config=settings.lora(context, "SEQ_CLS"),
    )
    ending = {"ending": trainer.processing_class.eos_token or ""}  # which TRL writes after plain text
    return settings.trained(
        trainer, context, to=target, watch=context.folder / f"tiltmeter{mark}", base=start, evaluate=True,
        rows=len(found), **ending,
    )  # fmt: skip


def _start(context: Context) -> Path:
    """The model with a head, the same for every member: the mean of weights with other beginnings is worthless."""
    target = context.folder / "start"
    if not (target / "config.json").exists() and processes.main():
        from transformers import AutoModelForSequenceClassification, AutoTokenizer, set_seed

        from tiltmeter.rewards.model import untouched

        safe = {"local_files_only": True, "trust_remote_code": False}
        with untouched():
            set_seed(int(context.stage.trl.get("seed", context.recipe.seed)))
            model = AutoModelForSequenceClassification.from_pretrained(
                str(context.model), num_labels=1, use_safetensors=True, dtype="float32", **safe
            )
            AutoTokenizer.from_pretrained(str(context.model), **safe).save_pretrained(target)
            model.save_pretrained(target)
    processes.wait()
    return target


def _drawn(found: Sequence[Row], share: float, seed: int) -> list[Row]:
    """A share of the prompts with all their pairs, in the order of the file."""
    prompts = [json.dumps(row["prompt"]) if row.get("prompt") else str(at) for at, row in enumerate(found)]
    distinct = sorted(set(prompts))
    kept = set(random.Random(seed).sample(distinct, max(1, round(share * len(distinct)))))
    return [row for row, prompt in zip(found, prompts, strict=True) if prompt in kept]
