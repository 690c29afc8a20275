"""Process reward models: each step of an answer is right or wrong, learnt at the step's last token.

TRL 1.16 has no trainer for them; it is classification of tokens, by transformers' own Trainer (Uesato et al.,
arXiv 2211.14275; Lightman et al., arXiv 2305.20050). Rows are as TRL's were: a prompt, its steps, a label for each.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.rewards.process_model import SEPARATOR, StepModel, encode_steps
from tiltmeter_workbench.train import references
from tiltmeter_workbench.train.checkpoint_folders import latest_checkpoint
from tiltmeter_workbench.train.method_interface import Context, StageOutput
from tiltmeter_workbench.train.recipe import Recipe, Stage
from tiltmeter_workbench.train.trl_trainer import make_config

OPTIONS = {"separator": "what stands behind each step (a new line)"}
EXAMPLE = '{"prompt": "2 and 2?", "completions": ["2 and 2 is 4.", "So it is 5."], "labels": [true, false]}'
IGNORED = -100  # transformers' label of a token that has none
LOAD_OPTIONS = {"local_files_only": True, "trust_remote_code": False}


def check(recipe: Recipe, stage: Stage) -> None:
    """Raises `AttachError` for options and rows that cannot work."""
    if not isinstance(stage.options.get("separator", SEPARATOR), str):
        raise AttachError(f"stage {stage.name}: options: separator is a text")
    for name in (stage.data, stage.eval):
        if name is not None and references.parse_reference(name) is None:
            path = references.resolve_path(recipe, name)
            check_rows(path, read_rows(path, EXAMPLE))


def check_rows(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    for number, row in enumerate(rows, 1):
        steps, labels = row.get("completions"), row.get("labels")
        texts = (
            isinstance(row.get("prompt"), str) and isinstance(steps, list) and all(isinstance(s, str) for s in steps)
        )
        if not texts or not steps or not isinstance(labels, list) or any(label not in (0, 1) for label in labels):
            raise AttachError(f"{path}, row {number}: a prompt, steps and a label each are needed: {EXAMPLE}")
        if len(steps) != len(labels):
            raise AttachError(f"{path}, row {number}: {len(steps)} steps and {len(labels)} labels: {EXAMPLE}")


def train(context: Context) -> StageOutput:
    """A process reward model in `folder/model`; the summary has the share of right and of wrong steps it tells."""
    from transformers import AutoModelForTokenClassification, AutoTokenizer, DataCollatorForTokenClassification, Trainer
    from trl import RewardConfig

    from tiltmeter_workbench.train.callbacks import ProgressCallback, StepLimitCallback

    started = time.monotonic()
    args = make_config(context, RewardConfig, remove_unused_columns=False)
    tokenizer = AutoTokenizer.from_pretrained(str(context.model), **LOAD_OPTIONS)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model = AutoModelForTokenClassification.from_pretrained(
        str(context.model), num_labels=2, use_safetensors=True, dtype="float32", **LOAD_OPTIONS
    )
    separator = context.stage.options.get("separator", SEPARATOR)
    assert context.data is not None
    rows = _examples(tokenizer, context.data, separator, args.max_length)
    trainer = Trainer(
        model=model, args=args, train_dataset=rows, data_collator=DataCollatorForTokenClassification(tokenizer),
        processing_class=tokenizer,
    )  # fmt: skip
    trainer.add_callback(ProgressCallback(context))
    if context.steps is not None:
        trainer.add_callback(StepLimitCallback(context.steps))
    resumed_from = latest_checkpoint(Path(args.output_dir))
    result = trainer.train(resume_from_checkpoint=None if resumed_from is None else str(resumed_from))
    target = context.folder / "model"
    trainer.save_model(str(target))
    facts = {
        "rows": len(rows), "steps": int(trainer.state.global_step), "seconds": round(time.monotonic() - started, 3),
        "metrics": {name: float(value) for name, value in result.metrics.items()},
        "eval": None if context.eval is None else _accuracy(target, context.eval, separator),
    }  # fmt: skip
    note = f"as a reward: rewards.process(rewards.step_model({str(target)!r})), with step_weight in grpo or rloo"
    return StageOutput(folders=(target,), facts=facts, notes=(note,))


def _examples(tokenizer: Any, path: Path, separator: str, limit: int | None) -> list[dict[str, list[int]]]:
    rows = read_rows(path, EXAMPLE)
    check_rows(path, rows)
    examples = []
    for row in rows:
        ids, ends = encode_steps(tokenizer, str(row["prompt"]), row["completions"], separator)
        labels = [IGNORED] * len(ids)
        for end, label in zip(ends, row["labels"], strict=True):
            labels[end] = int(label)
        examples.append({"input_ids": ids[:limit], "attention_mask": [1] * len(ids[:limit]), "labels": labels[:limit]})
    return examples


def _accuracy(folder: Path, path: Path, separator: str) -> dict[str, float | None]:
    """Of right and of wrong steps, the share that stands on its side of 1/2."""
    rows = read_rows(path, EXAMPLE)
    check_rows(path, rows)
    scores = StepModel(folder, separator)([row["prompt"] for row in rows], [row["completions"] for row in rows])
    pairs = [pair for row, own in zip(rows, scores, strict=True) for pair in zip(row["labels"], own, strict=True)]
    shares: dict[str, float | None] = {}
    for name, truth in (("right_steps", True), ("wrong_steps", False)):
        own = [(score > 0.5) == truth for label, score in pairs if bool(label) == truth]
        shares[name] = sum(own) / len(own) if own else None
    return shares
