"""From a stage to TRL's own objects: configuration, adapter, checkpoint, watch and what is saved at the end."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.train.data import rows as rows  # what every method reads its data with
from tiltmeter.train.method import Context, Trained
from tiltmeter.train.recipe import Stage

#: Fields of TRL's configurations that a recipe leaves to us, and why.
OURS = {
    "output_dir": "each stage has its own folder inside the recipe's output",
    "resume_from_checkpoint": "the same command, run again, goes on by itself",
    "do_train": "a stage always trains",
}
STATE = "trainer_state.json"  # what TRL writes last into a checkpoint
PATIENCE = 120.0  # seconds that the monitor is given to measure what was written, after the last step


def configured(context: Context, config: type[Any], **more: Any) -> Any:
    """TRL's configuration of this stage: the recipe's values untouched, ours where the recipe says nothing.

    `more` are values of the method, which win over the recipe's. Raises `AttachError` for what TRL refuses.
    """
    try:
        return config(**{**set_by_us(context), **context.stage.trl, **more})
    except (TypeError, ValueError, ImportError, RuntimeError) as error:
        said = " ".join(str(error).split())
        if "use_cpu" in said:
            said += " For a machine without a GPU write trl: {use_cpu: true, bf16: false}"
        raise AttachError(f"stage {context.stage.name}: trl: {config.__name__} refuses its settings: {said}") from error


def set_by_us(context: Context) -> dict[str, Any]:
    """The fields of TRL's that we set, unless the recipe says them; no other is touched."""
    return {
        "output_dir": str(context.folder / "trainer"),
        "seed": context.recipe.seed,
        "report_to": "none",
        "disable_tqdm": True,  # progress is told through the recipe
    }


def entropy_weight(stage: Stage) -> float | None:
    """The option of soft preference learning; None without it. Raises `AttachError` for no number."""
    weight = stage.options.get("entropy_weight")
    if weight is None:
        return None
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0.0 < weight < math.inf:
        raise AttachError(f"stage {stage.name}: options: entropy_weight is a number above 0, not {weight!r}")
    return float(weight)


def lora(context: Context, task: str = "CAUSAL_LM") -> Any | None:
    """PEFT's LoraConfig of this stage; None where the whole model is trained.

    `task` is PEFT's word for the kind of model: SEQ_CLS trains and keeps the head of a reward model too.
    """
    if context.stage.lora is None:
        return None
    from peft import LoraConfig

    try:
        return LoraConfig(**{"task_type": task, **context.stage.lora})
    except (TypeError, ValueError) as error:
        raise AttachError(f"stage {context.stage.name}: PEFT refuses its lora settings: {error}") from error


def checkpoint(folder: Path) -> Path | None:
    """The newest whole checkpoint in a trainer's folder. One whose writer was killed lacks its state, and is passed
    over."""
    for _, part in reversed(numbered(folder)):
        try:
            json.loads((part / STATE).read_text("utf-8"))
        except (OSError, ValueError):
            continue
        return part
    return None


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints in a trainer's folder, whole or not, by their steps."""
    found = [(part.name.rpartition("-")[2], part) for part in folder.glob("checkpoint-*")]
    return sorted((int(step), part) for step, part in found if step.isdigit())


def attached(trainer: Any, context: Context, directory: Path | None = None) -> Any | None:
    """Watch the trainer as the recipe says, and tell progress; None where it is not watched.

    `directory` is where the run is kept, `tiltmeter` in the stage's folder unless it is said.
    """
    from transformers import PrinterCallback

    from tiltmeter.train.callbacks import Limit, Told, WentBack

    trainer.remove_callback(PrinterCallback)  # it prints to standard output, where the summary goes
    trainer.add_callback(Told(context))
    trainer.add_callback(WentBack())
    if context.steps is not None:
        trainer.add_callback(Limit(context.steps))
    watch = context.stage.watch
    if watch is False:
        return None
    from tiltmeter.adapters.trl import attach

    settings = dict(watch) if isinstance(watch, Mapping) else {}
    if context.stage.gold is not None:
        settings["gold"] = context.stage.gold
    return attach(trainer, directory=directory or context.folder / "tiltmeter", **settings)


def trained(
    trainer: Any,
    context: Context,
    *,
    to: Path | None = None,
    watch: Path | None = None,
    base: Path | None = None,
    evaluate: bool = False,
    **facts: Any,
) -> Trained:
    """Train from the last checkpoint there is, save the model in `to` (`folder/model`) and say what happened.

    `watch` is where the watched run is kept, `base` the model an adapter is merged into, where they are not the
    stage's own; `evaluate` measures the finished model on the stage's `eval`. `facts` go into the summary.
    """
    begun = time.monotonic()
    watched = attached(trainer, context, watch)
    came_from = checkpoint(Path(trainer.args.output_dir))
    if came_from is not None and trainer.args.save_only_model:
        raise AttachError(
            f"stage {context.stage.name}: {came_from} holds a model without its optimiser (save_only_model), which "
            f"training cannot go on from: begin the stage again with --fresh {context.stage.name}"
        )
    resume = None if came_from is None else str(came_from)
    result = (watched or trainer).train(resume_from_checkpoint=resume)
    target = to or context.folder / "model"
    save(trainer, context, target, base)
    stopped = _stopped(trainer.state, context)
    told = {
        **facts,
        "steps": int(trainer.state.global_step),
        "stopped": stopped,
        "resumed": None if came_from is None else came_from.name,
        "seconds": round(time.monotonic() - begun, 3),
        "metrics": _numbers(result.metrics),
        "last": _numbers(_last(trainer.state.log_history)),
        **_judged(trainer, watched),
        "eval": _evaluated(trainer) if evaluate and trainer.eval_dataset is not None else None,
    }
    return Trained(folders=(target,), facts=told, told=() if stopped is None else (stopped,))


def save(trainer: Any, context: Context, target: Path, base: Path | None = None) -> None:
    """The model as the next stage loads it, tokenizer included: whole, an adapter merged unless the recipe keeps it.

    `base` is what an adapter is merged into, the stage's model unless it is said.
    """
    from peft import PeftModel

    whole = trainer.accelerator.unwrap_model(trainer.model)
    kept = not isinstance(whole, PeftModel) or context.stage.options.get("merge", True) is False
    if kept:
        trainer.save_model(str(target))
    else:
        adapter = target.with_name(f"{target.name}-adapter")
        trainer.save_model(str(adapter))
        if trainer.is_world_process_zero():
            _merge(whole, base or context.model, adapter, target)
    if trainer.is_world_process_zero():
        trainer.processing_class.save_pretrained(target)
    trainer.accelerator.wait_for_everyone()


def _merge(trained: Any, base: Path, adapter: Path, target: Path) -> None:
    """Read again from disk rather than merged in place: a model that is sharded over processes is whole only there."""
    from peft import PeftModel

    inner = trained.get_base_model()
    kind = type(inner)
    for known in kind.__mro__:  # FSDP2 makes a class of its own from the model's
        if known.__module__.startswith("transformers."):
            kind = known
            break
    several = {"num_labels": inner.config.num_labels} if kind.__name__.endswith("SequenceClassification") else {}
    plain = kind.from_pretrained(
        str(base), dtype=inner.dtype, local_files_only=True, trust_remote_code=False, use_safetensors=True, **several
    )
    if plain.get_input_embeddings().num_embeddings != inner.get_input_embeddings().num_embeddings:
        plain.resize_token_embeddings(inner.get_input_embeddings().num_embeddings)
    if target.exists():
        shutil.rmtree(target)
    PeftModel.from_pretrained(plain, str(adapter)).merge_and_unload().save_pretrained(target)


def _stopped(state: Any, context: Context) -> str | None:
    """Of training that was ended before its last step, which is the monitor's doing, or of whoever approved it."""
    last = state.max_steps if context.steps is None else min(state.max_steps, context.steps)
    if state.global_step >= last:
        return None
    return (
        f"It was stopped at step {state.global_step} of {last}, and this is the model of then. The stage counts as "
        f"finished: --fresh {context.stage.name} trains it anew."
    )


def _judged(trainer: Any, watched: Any | None) -> dict[str, Any]:
    """The verdict on the watched run; every process has the same run, and the main one asks."""
    if watched is None or watched.directory is None or not trainer.is_world_process_zero():
        return {"verdict": None}
    verdict = watched.verdict(timeout=PATIENCE)
    return {
        "verdict": verdict.state,
        "sentence": verdict.sentence,
        "alarms": len(verdict.alarms),
        "run": str(watched.directory),
    }


def _evaluated(trainer: Any) -> dict[str, float]:
    """Of the finished model. The watched run is over: what is measured now belongs to no step of it."""
    from tiltmeter.adapters.trl import Callback

    trainer.remove_callback(Callback)
    return _numbers(trainer.evaluate())


def _last(history: list[dict[str, Any]]) -> dict[str, Any]:
    """The last thing that the trainer said about a step."""
    return next((said for said in reversed(history) if "loss" in said), {})


def _numbers(said: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in said.items() if isinstance(value, (int, float))}
