"""TRL configuration, LoRA, checkpoints, monitoring, training and saving of one stage."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.train import references
from tiltmeter_workbench.train.checkpoint_folders import latest_checkpoint
from tiltmeter_workbench.train.data import rows as rows  # what every method reads its data with
from tiltmeter_workbench.train.method_interface import Context, StageOutput
from tiltmeter_workbench.train.recipe import Stage
from tiltmeter_workbench.train.registry import JUDGED_AT_SAVES

#: Fields of TRL's configurations that a recipe leaves to us, and why.
RESERVED_FIELDS = {
    "output_dir": "each stage has its own folder inside the recipe's output",
    "resume_from_checkpoint": "the same command, run again, goes on by itself",
    "do_train": "a stage always trains",
}
VERDICT_TIMEOUT = 120.0  # seconds to wait for the monitor's verdict after the last step
SAVES_TIMEOUT = 3600.0  # and where what was saved is still being asked


def make_config(context: Context, config: type[Any], **more: Any) -> Any:
    """TRL's configuration of this stage: the recipe's values unchanged, our defaults where it sets none.

    `more` are values of the method, which win over the recipe's. Raises `AttachError` for what TRL refuses.
    """
    try:
        return config(**{**default_fields(context), **context.stage.trl, **more})
    except (TypeError, ValueError, ImportError, RuntimeError) as error:
        message = " ".join(str(error).split())
        if "use_cpu" in message:
            message += " For a machine without a GPU write trl: {use_cpu: true, bf16: false}"
        raise AttachError(
            f"stage {context.stage.name}: trl: {config.__name__} refuses its settings: {message}"
        ) from error


def default_fields(context: Context) -> dict[str, Any]:
    """The fields of TRL's configuration that we set unless the recipe does; all others keep TRL's defaults."""
    return {
        "output_dir": str(context.folder / "trainer"),
        "seed": context.recipe.seed,
        "report_to": "none",
        "disable_tqdm": True,  # progress is reported by the recipe
    }


def entropy_weight(stage: Stage) -> float | None:
    """The option of soft preference learning; None without it. Raises `AttachError` for no number."""
    weight = stage.options.get("entropy_weight")
    if weight is None:
        return None
    if isinstance(weight, bool) or not isinstance(weight, (int, float)) or not 0.0 < weight < math.inf:
        raise AttachError(f"stage {stage.name}: options: entropy_weight is a number above 0, not {weight!r}")
    return float(weight)


def lora_config(context: Context, task: str = "CAUSAL_LM") -> Any | None:
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


def attach_monitor(trainer: Any, context: Context, directory: Path | None = None) -> Any | None:
    """Attach the monitor as the recipe says, and report progress; None where the stage is not monitored.

    `directory` is the run directory, by default `tiltmeter` in the stage's folder.
    """
    from transformers import PrinterCallback

    from tiltmeter_workbench.train.callbacks import ProgressCallback, RollbackCallback, StepLimitCallback

    trainer.remove_callback(PrinterCallback)  # it prints to standard output, where the summary goes
    trainer.add_callback(ProgressCallback(context))
    trainer.add_callback(RollbackCallback())
    if context.steps is not None:
        trainer.add_callback(StepLimitCallback(context.steps))
    watch = context.stage.watch
    if watch is False:
        return None
    from tiltmeter.adapters.trl.attach import attach

    settings = dict(watch) if isinstance(watch, Mapping) else {}
    labels = dict(settings.pop("gold", {}))
    if context.stage.gold is not None:
        labels["source"] = context.stage.gold
    if isinstance(labels.get("prompts"), str):
        labels["prompts"] = references.resolve_path(context.recipe, labels["prompts"])
    if labels:
        settings["gold"] = labels
    return attach(trainer, directory=directory or context.folder / "tiltmeter", **settings)


def train_and_save(
    trainer: Any,
    context: Context,
    *,
    to: Path | None = None,
    watch: Path | None = None,
    base: Path | None = None,
    evaluate: bool = False,
    **facts: Any,
) -> StageOutput:
    """Train from the latest checkpoint, save the model in `to` (`folder/model`) and return a summary.

    `watch` is where the watched run is kept, `base` the model an adapter is merged into, where they are not the
    stage's own; `evaluate` measures the finished model on the stage's `eval`. `facts` go into the summary.
    """
    started = time.monotonic()
    projection = _add_projection(trainer, context)
    watched = attach_monitor(trainer, context, watch)
    resumed_from = latest_checkpoint(Path(trainer.args.output_dir))
    if resumed_from is not None and trainer.args.save_only_model:
        raise AttachError(
            f"stage {context.stage.name}: {resumed_from} holds a model without its optimiser (save_only_model), which "
            f"training cannot go on from: begin the stage again with --fresh {context.stage.name}"
        )
    resume = None if resumed_from is None else str(resumed_from)
    result = (watched or trainer).train(resume_from_checkpoint=resume)
    target = to or context.folder / "model"
    save_model(trainer, context, target, base)
    stopped = _stop_note(trainer.state, context)
    summary = {
        **facts,
        "steps": int(trainer.state.global_step),
        "stopped": stopped,
        "resumed": None if resumed_from is None else resumed_from.name,
        "seconds": round(time.monotonic() - started, 3),
        "metrics": _numbers(result.metrics),
        "last": _numbers(_last_log(trainer.state.log_history)),
        **({} if projection is None else {"projected_steps": f"{projection.projected} of {projection.steps}"}),
        **_verdict_facts(trainer, watched, context.stage),
        "eval": _evaluate(trainer) if evaluate and trainer.eval_dataset is not None else None,
    }
    return StageOutput(folders=(target,), facts=summary, notes=() if stopped is None else (stopped,))


def _add_projection(trainer: Any, context: Context) -> Any | None:
    """Gradient projection as the recipe says; None without `replay`."""
    if context.replay is None:
        return None
    from tiltmeter_workbench.train.replay import GradientProjection

    projection = GradientProjection(trainer, read_rows(context.replay), context.recipe.seed)
    trainer.add_callback(projection)
    return projection


def save_model(trainer: Any, context: Context, target: Path, base: Path | None = None) -> None:
    """The model as the next stage loads it, tokenizer included: whole, an adapter merged unless the recipe keeps it.

    `base` is the model that an adapter is merged into, by default the stage's model.
    """
    from peft import PeftModel

    whole = trainer.accelerator.unwrap_model(trainer.model)
    save_whole = not isinstance(whole, PeftModel) or context.stage.options.get("merge", True) is False
    if save_whole:
        trainer.save_model(str(target))
    else:
        adapter = target.with_name(f"{target.name}-adapter")
        trainer.save_model(str(adapter))
        if trainer.is_world_process_zero():
            _merge(whole, base or context.model, adapter, target)
    if trainer.is_world_process_zero():
        trainer.processing_class.save_pretrained(target)
    trainer.accelerator.wait_for_everyone()


def _merge(peft_model: Any, base: Path, adapter: Path, target: Path) -> None:
    """Read again from disk rather than merged in place: a model that is sharded over processes is whole only there."""
    from peft import PeftModel

    inner = peft_model.get_base_model()
    kind = type(inner)
    for ancestor in kind.__mro__:  # FSDP2 makes a class of its own from the model's
        if ancestor.__module__.startswith("transformers."):
            kind = ancestor
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


def _stop_note(state: Any, context: Context) -> str | None:
    """A note where training stopped before its last step, which the monitor or an approved action does."""
    last = state.max_steps if context.steps is None else min(state.max_steps, context.steps)
    if state.global_step >= last:
        return None
    return (
        f"It was stopped at step {state.global_step} of {last}, and this is the model of then. The stage counts as "
        f"finished: --fresh {context.stage.name} trains it anew."
    )


def _verdict_facts(trainer: Any, watched: Any | None, stage: Stage) -> dict[str, Any]:
    """The verdict on the monitored run; all processes share one run, and only the main one asks."""
    if watched is None or watched.directory is None or not trainer.is_world_process_zero():
        return {"verdict": None}
    is_asked_at_saves = stage.gold is not None and stage.method in JUDGED_AT_SAVES
    verdict = watched.verdict(timeout=SAVES_TIMEOUT if is_asked_at_saves else VERDICT_TIMEOUT)
    return {
        "verdict": verdict.state,
        "sentence": verdict.sentence,
        "alarms": len(verdict.alarms),
        "run": str(watched.directory),
    }


def _evaluate(trainer: Any) -> dict[str, float]:
    """Evaluate the finished model. The monitored run is over, so the monitor's callback is removed first."""
    from tiltmeter.adapters.trl.attach import Callback

    trainer.remove_callback(Callback)
    return _numbers(trainer.evaluate())


def _last_log(history: list[dict[str, Any]]) -> dict[str, Any]:
    """The trainer's last log entry with a loss."""
    return next((entry for entry in reversed(history) if "loss" in entry), {})


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items() if isinstance(value, (int, float))}
