"""Check a recipe and the files, models and options it names before anything is loaded or trained."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields as fields_of
from typing import Any

from tiltmeter.adapters.arguments import read_act, read_gold, read_options
from tiltmeter.adapters.trl.checkpoint_sampling import read_options as read_sampling_options
from tiltmeter.errors import AttachError
from tiltmeter.monitor.parts import load_gold, reject_reward_as_gold
from tiltmeter.safety.loading import load_function
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.plan.settings.trl import GONE
from tiltmeter_workbench.rewards.recipe_reward import add_guards, read_source, reward_from_recipe
from tiltmeter_workbench.train import references
from tiltmeter_workbench.train.data import read_checked_rows
from tiltmeter_workbench.train.methods import reward_model
from tiltmeter_workbench.train.recipe import STAGE_FIELDS, Recipe, Stage, gold_settings, is_hub_model, suggest_name
from tiltmeter_workbench.train.registry import JUDGED_AT_SAVES, SPECS, config_of, module_of, options_of
from tiltmeter_workbench.train.trl_trainer import RESERVED_FIELDS

#: Fields of PEFT's LoraConfig that it fills in itself.
PEFT_INTERNAL_FIELDS = (
    "peft_type",
    "peft_version",
    "base_model_name_or_path",
    "inference_mode",
    "auto_mapping",
    "runtime_config",
)
#: Why a method has no use for a field, where the name of the field does not tell.
WHY = {
    "rewards": "it learns from its data, not from rewards",
    "guards": "there is no reward for them to stand around",
    "gold": "it trains no policy that could be asked",
    "trl": "TRL has no trainer for it",
}


def check_recipe(recipe: Recipe) -> None:
    """Raises `AttachError`, with the fix, for the first problem. Quick checks come first."""
    for stage in recipe.stages:
        _check_fields(stage)
        _check_model(recipe, stage)
        _check_data(recipe, stage)
        _check_options(recipe, stage)
    for stage in recipe.stages:
        _check_rewards(recipe, stage)
        _check_gold(recipe, stage)
    _check_installed()
    for stage in recipe.stages:
        _check_trl(stage)
        _check_lora(stage)
        _check_watch(recipe, stage)


def _check_fields(stage: Stage) -> None:
    kind = SPECS[stage.method]
    allowed = {"method", "name", "model", "data", "options"} | kind.fields
    for name in STAGE_FIELDS:
        value = getattr(stage, name)
        given = value is not True if name == "watch" else value not in (None, (), [], {}, "")
        if given and name not in allowed:
            why = f": {WHY[name]}" if name in WHY else ""
            raise AttachError(f"stage {stage.name}: {name} has no meaning for {stage.method}{why}; leave it out")
        if name in kind.needs and not given:
            example = {"rewards": "- function: rewards.py:helpful"}.get(name, "FILE")
            raise AttachError(f"stage {stage.name}: {stage.method} needs {name}; write {name}: {example}")


def _check_model(recipe: Recipe, stage: Stage) -> None:
    name = references.start_model(recipe, stage)
    products = ("policy", "reward") if stage.method == "reward" else ("policy",)
    origin = references.referred_stage(recipe, stage, "model", name, products)  # type: ignore[arg-type]  # a tuple of literals
    if origin is not None:
        if origin.lora is not None and origin.options.get("merge", True) is False:
            raise AttachError(
                f"stage {stage.name} starts from {origin.name}, which keeps its adapter apart; "
                f"leave options: {{merge: false}} out there"
            )
        if origin.method == "reward" and reward_model.member_options(origin)[1] == "ensemble":
            raise AttachError(f"stage {stage.name}: model: @{origin.name} is an ensemble; name @{origin.name}/member-1")
    elif not is_hub_model(name):
        references.model_folder(recipe, f"stage {stage.name}" if stage.model else "model", name)
    elif references.HUB.match(name) is None:
        raise AttachError(f"{name}: write a model of the hub as hf:OWNER/NAME, or hf:OWNER/NAME@REVISION")


def _check_data(recipe: Recipe, stage: Stage) -> None:
    for field in ("data", "eval", "replay"):
        name = getattr(stage, field)
        if name is None or references.referred_stage(recipe, stage, field, name, ("files",)) is not None:
            continue
        path = references.resolve_path(recipe, name)
        if not path.exists():
            raise AttachError(f"stage {stage.name}: {field}: there is no {path}; paths are relative to the recipe")
        read_checked_rows(path, "sft" if field == "replay" else stage.method)


def _check_options(recipe: Recipe, stage: Stage) -> None:
    options = options_of(stage.method)
    for name in stage.options:
        if name not in options:
            hint = suggest_name(name, options) if options else f"; {stage.method} has none"
            raise AttachError(f"stage {stage.name}: options: there is no {name}{hint}")
    method_check = getattr(module_of(stage.method), "check", None)
    if method_check is not None:
        method_check(recipe, stage)


def _check_rewards(recipe: Recipe, stage: Stage) -> None:
    plain = []
    unnamed = sum("model" in entry and "name" not in entry for entry in stage.rewards if isinstance(entry, Mapping))
    for number, entry in enumerate(stage.rewards, 1):
        source = entry.get("model") if isinstance(entry, Mapping) else None
        stage_refs = [text for text in references.strings(source) if text.startswith("@")]
        for text in stage_refs:
            _check_reward_model(recipe, stage, number, text)
        if not stage_refs:
            plain.append(entry)
            continue
        try:
            read_source("rewards", entry, number - 1)
        except AttachError as error:
            raise AttachError(f"stage {stage.name}: {error}") from error
        if "name" not in entry and unnamed > 1:
            raise AttachError(
                f"stage {stage.name}: rewards: number {number} is one of {unnamed} models without a name; give each a "
                "name: of its own"
            )
    limit = stage.trl.get("max_completion_length")
    try:
        if plain:
            reward_from_recipe(plain, folder=recipe.path.parent)
        if stage.rewards or stage.guards:
            add_guards(_zero_reward, stage.guards, limit=limit or 1024, folder=recipe.path.parent)
    except AttachError as error:
        raise AttachError(f"stage {stage.name}: {error}") from error


def _check_reward_model(recipe: Recipe, stage: Stage, number: int, text: str) -> None:
    """A reward model must be a whole model to score; check it now, not hours later after its training."""
    field = f"rewards: number {number}: model"
    origin = references.referred_stage(recipe, stage, field, text, ("reward",))
    if origin is not None and origin.lora is not None and origin.options.get("merge", True) is False:
        raise AttachError(
            f"stage {stage.name}: {field}: {origin.name} keeps its adapter apart, and a whole model scores; leave "
            "options: {merge: false} out there"
        )


def _zero_reward(completions: Any, **columns: Any) -> list[float]:
    """Placeholder for a reward model that is not trained yet."""
    return [0.0] * len(completions)


def _check_gold(recipe: Recipe, stage: Stage) -> None:
    if stage.gold is None:
        return
    if stage.watch is False and stage.method != "iterative_dpo":  # which reports gold by itself
        raise AttachError(
            f"stage {stage.name}: gold is asked by the monitor, and watch is false; leave one of them out"
        )
    functions = [entry["function"] for entry in stage.rewards if "function" in entry]
    try:
        if stage.method in JUDGED_AT_SAVES:
            _check_saves(recipe, stage)
        source = load_gold(references.resolve_function(recipe, stage.gold))
        reject_reward_as_gold(
            source, [load_function(references.resolve_function(recipe, str(name))) for name in functions]
        )
    except AttachError as error:
        raise AttachError(f"stage {stage.name}: gold: {error}") from error


def _check_saves(recipe: Recipe, stage: Stage) -> None:
    """Gold of a method without completions needs something that is saved, and something to ask it."""
    if references.PEOPLE.match(stage.gold or ""):
        raise AttachError("people cannot judge checkpoints; name a function or a judge")
    if str(stage.trl.get("save_strategy", "steps")) in ("no", "False"):  # YAML reads a bare no as False
        raise AttachError(
            f"{stage.method} makes no completions, so that gold judges what it saves, and it saves nothing; leave "
            "save_strategy out of trl, and set save_steps"
        )
    watch = gold_settings(stage)
    asks = [stage.data if stage.eval is None else stage.eval]  # the rows that `attach` takes prompts of
    if stage.method != "sft" or "prompts" in watch or asks[0] is None or references.parse_reference(asks[0]):
        return
    if not {"prompt", "messages"} & set(read_rows(references.resolve_path(recipe, asks[0]))[0]):
        raise AttachError(
            "the rows are texts without a prompt, so that nothing says what to ask; write "
            "watch: {gold: {prompts: FILE.jsonl}}"
        )


def _check_installed() -> None:
    """Refuse early where a required package is missing; the imports after this take seconds."""
    from importlib.util import find_spec

    lacking = [name for name in ("trl", "peft", "accelerate", "datasets") if find_spec(name) is None]
    if lacking:
        raise AttachError(f"{', '.join(lacking)} is not installed: pip install 'tiltmeter[train]'")


def _check_trl(stage: Stage) -> None:
    config = config_of(stage.method)
    if config is None:
        return
    allowed = [one.name for one in fields_of(config) if one.init and one.name not in RESERVED_FIELDS]
    for name in stage.trl:
        if name in RESERVED_FIELDS:
            raise AttachError(f"stage {stage.name}: trl: leave {name} out: {RESERVED_FIELDS[name]}")
        if name not in allowed:
            hint = f": {GONE[name]}" if name in GONE else suggest_name(name, allowed)
            raise AttachError(f"stage {stage.name}: trl: {config.__name__} has no {name}{hint}")


def _check_lora(stage: Stage) -> None:
    if stage.lora is None:
        return
    from peft import LoraConfig

    allowed = [one.name for one in fields_of(LoraConfig) if one.init and one.name not in PEFT_INTERNAL_FIELDS]
    for name in stage.lora:
        if name not in allowed:
            raise AttachError(f"stage {stage.name}: lora: LoraConfig has no {name}{suggest_name(name, allowed)}")


def _check_watch(recipe: Recipe, stage: Stage) -> None:
    from tiltmeter.adapters.trl.attach import attach

    if not isinstance(stage.watch, Mapping):
        return
    allowed = [name for name in inspect.signature(attach).parameters if name not in ("trainer", "directory")]
    for name in stage.watch:
        if name not in allowed:
            raise AttachError(f"stage {stage.name}: watch: there is no {name}{suggest_name(name, allowed)}")
    labels = stage.watch.get("gold", {})
    if not isinstance(labels, Mapping) or "source" in labels:
        raise AttachError(
            f"stage {stage.name}: watch: who gives gold is a field of the stage itself; write it beside watch"
        )
    try:
        read_gold(labels)
        read_act(stage.watch.get("act"))
        read_options(stage.watch.get("options"))
    except AttachError as error:
        raise AttachError(f"stage {stage.name}: watch: {error}") from error
    _check_sampling(recipe, stage, labels)


def _check_sampling(recipe: Recipe, stage: Stage, watch: Mapping[str, Any]) -> None:
    """What checkpoints are asked, and how; only where gold judges them."""
    names = [name for name in ("prompts", "sampling") if watch.get(name) is not None]
    if names and (stage.gold is None or stage.method not in JUDGED_AT_SAVES):
        raise AttachError(
            f"stage {stage.name}: watch: gold: {names[0]} is about checkpoints that gold judges: for "
            f"{', '.join(sorted(JUDGED_AT_SAVES))}, with gold"
        )
    prompts = watch.get("prompts")
    if isinstance(prompts, str) and not (path := references.resolve_path(recipe, prompts)).is_file():
        raise AttachError(
            f"stage {stage.name}: watch: gold: prompts: there is no {path}; paths are relative to the recipe"
        )
    sampling = watch.get("sampling")
    try:
        if sampling is not None and not isinstance(sampling, Mapping):
            raise AttachError(f"sampling is settings by name, not {sampling!r}")
        read_sampling_options(sampling)
    except AttachError as error:
        raise AttachError(f"stage {stage.name}: watch: {error}") from error
