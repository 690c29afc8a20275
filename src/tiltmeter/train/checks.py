"""Everything a recipe names, looked at before anything is loaded or trained: what is wrong is said with its fix."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import fields as fields_of
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.train import places, reward
from tiltmeter.train.data import checked
from tiltmeter.train.methods import KINDS, config_of, module_of, options_of
from tiltmeter.train.recipe import OF_STAGE, Recipe, Stage, is_hub, nearest
from tiltmeter.train.settings import OURS

#: Fields of PEFT's LoraConfig that it fills in itself.
PEFTS = ("peft_type", "peft_version", "base_model_name_or_path", "inference_mode", "auto_mapping", "runtime_config")
#: Why a method has no use for a field, where the name of the field does not tell.
WHY = {
    "rewards": "it learns from its data, not from rewards",
    "guards": "there is no reward for them to stand around",
    "gold": "it generates no completions that could be labelled; name evaluation metrics with watch: {evals: [...]}",
    "trl": "TRL has no trainer for it",
}


def check(recipe: Recipe) -> None:
    """Raises `AttachError` for the first thing that cannot work. What is quick to look at comes first."""
    for stage in recipe.stages:
        _fields(stage)
        _model(recipe, stage)
        _data(recipe, stage)
        _options(recipe, stage)
    for stage in recipe.stages:
        _rewards(recipe, stage)
        _gold(recipe, stage)
    _installed()
    for stage in recipe.stages:
        _trl(stage)
        _lora(stage)
        _watch(stage)


def _fields(stage: Stage) -> None:
    kind = KINDS[stage.method]
    allowed = {"method", "name", "model", "data", "options"} | kind.fields
    for name in OF_STAGE:
        value = getattr(stage, name)
        given = value is not True if name == "watch" else value not in (None, (), [], {}, "")
        if given and name not in allowed:
            why = f": {WHY[name]}" if name in WHY else ""
            raise AttachError(f"stage {stage.name}: {name} has no meaning for {stage.method}{why}; leave it out")
        if name in kind.needs and not given:
            example = {"rewards": "- function: rewards.py:helpful"}.get(name, "FILE")
            raise AttachError(f"stage {stage.name}: {stage.method} needs {name}; write {name}: {example}")


def _model(recipe: Recipe, stage: Stage) -> None:
    name = places.start_of(recipe, stage)
    leaves = ("policy", "reward") if stage.method == "reward" else ("policy",)
    origin = places.referred(recipe, stage, "model", name, leaves)  # type: ignore[arg-type]  # a tuple of literals
    if origin is not None:
        if origin.lora is not None and origin.options.get("merge", True) is False:
            raise AttachError(
                f"stage {stage.name} starts from {origin.name}, which keeps its adapter apart; "
                f"leave options: {{merge: false}} out there"
            )
        if origin.method == "reward" and reward.asked(origin)[1] == "ensemble":
            raise AttachError(f"stage {stage.name}: model: @{origin.name} is an ensemble; name @{origin.name}/member-1")
    elif not is_hub(name):
        places.model_folder(recipe, f"stage {stage.name}" if stage.model else "model", name)
    elif places.HUB.match(name) is None:
        raise AttachError(f"{name}: write a model of the hub as hf:OWNER/NAME, or hf:OWNER/NAME@REVISION")


def _data(recipe: Recipe, stage: Stage) -> None:
    for field in ("data", "eval"):
        name = getattr(stage, field)
        if name is None or places.referred(recipe, stage, field, name, ("files",)) is not None:
            continue
        path = places.beside(recipe, name)
        if not path.exists():
            raise AttachError(f"stage {stage.name}: {field}: there is no {path}; paths are relative to the recipe")
        checked(path, stage.method)


def _options(recipe: Recipe, stage: Stage) -> None:
    known = options_of(stage.method)
    for name in stage.options:
        if name not in known:
            told = nearest(name, known) if known else f"; {stage.method} has none"
            raise AttachError(f"stage {stage.name}: options: there is no {name}{told}")
    look = getattr(module_of(stage.method), "check", None)
    if look is not None:
        look(recipe, stage)


def _rewards(recipe: Recipe, stage: Stage) -> None:
    from tiltmeter.rewards.described import described, guarded_by, source_of

    plain = []
    unnamed = sum("model" in entry and "name" not in entry for entry in stage.rewards if isinstance(entry, Mapping))
    for number, entry in enumerate(stage.rewards, 1):
        source = entry.get("model") if isinstance(entry, Mapping) else None
        named = [text for text in places.strings(source) if text.startswith("@")]
        for text in named:
            _scores(recipe, stage, number, text)
        if not named:
            plain.append(entry)
            continue
        try:
            source_of("rewards", entry, number - 1)
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
            described(plain, folder=recipe.path.parent)
        if stage.rewards or stage.guards:
            guarded_by(_nothing, stage.guards, limit=limit or 1024, folder=recipe.path.parent)
    except AttachError as error:
        raise AttachError(f"stage {stage.name}: {error}") from error


def _scores(recipe: Recipe, stage: Stage, number: int, text: str) -> None:
    """What a stage leaves must be whole to score: found out after it was trained, that would be hours too late."""
    field = f"rewards: number {number}: model"
    origin = places.referred(recipe, stage, field, text, ("reward",))
    if origin is not None and origin.lora is not None and origin.options.get("merge", True) is False:
        raise AttachError(
            f"stage {stage.name}: {field}: {origin.name} keeps its adapter apart, and a whole model scores; leave "
            "options: {merge: false} out there"
        )


def _nothing(completions: Any, **columns: Any) -> list[float]:
    """Stands where a reward model will stand that is not trained yet."""
    return [0.0] * len(completions)


def _gold(recipe: Recipe, stage: Stage) -> None:
    from tiltmeter.config import load_gold, refuse_the_reward
    from tiltmeter.loading import load_function

    if stage.gold is None:
        return
    if stage.watch is False and stage.method != "iterative_dpo":  # which reports gold by itself
        raise AttachError(
            f"stage {stage.name}: gold is asked by the monitor, and watch is false; leave one of them out"
        )
    paid = [entry["function"] for entry in stage.rewards if "function" in entry]
    try:
        source = load_gold(places.function(recipe, stage.gold))
        refuse_the_reward(source, [load_function(places.function(recipe, str(name))) for name in paid])
    except AttachError as error:
        raise AttachError(f"stage {stage.name}: gold: {error}") from error


def _installed() -> None:
    """What is imported from here on takes seconds, and may not be there."""
    from importlib.util import find_spec

    lacking = [name for name in ("trl", "peft", "accelerate", "datasets") if find_spec(name) is None]
    if lacking:
        raise AttachError(f"{', '.join(lacking)} is not installed: pip install 'tiltmeter[train]'")


def _trl(stage: Stage) -> None:
    config = config_of(stage.method)
    if config is None:
        return
    from tiltmeter.plan.settings_trl import GONE

    known = [one.name for one in fields_of(config) if one.init and one.name not in OURS]
    for name in stage.trl:
        if name in OURS:
            raise AttachError(f"stage {stage.name}: trl: leave {name} out: {OURS[name]}")
        if name not in known:
            told = f": {GONE[name]}" if name in GONE else nearest(name, known)
            raise AttachError(f"stage {stage.name}: trl: {config.__name__} has no {name}{told}")


def _lora(stage: Stage) -> None:
    if stage.lora is None:
        return
    from peft import LoraConfig

    known = [one.name for one in fields_of(LoraConfig) if one.init and one.name not in PEFTS]
    for name in stage.lora:
        if name not in known:
            raise AttachError(f"stage {stage.name}: lora: LoraConfig has no {name}{nearest(name, known)}")


def _watch(stage: Stage) -> None:
    from tiltmeter.adapters.trl import attach

    if not isinstance(stage.watch, Mapping):
        return
    known = [name for name in inspect.signature(attach).parameters if name not in ("trainer", "directory", "gold")]
    for name in stage.watch:
        if name == "gold":
            raise AttachError(f"stage {stage.name}: watch: gold is a field of the stage itself; write it beside watch")
        if name not in known:
            raise AttachError(f"stage {stage.name}: watch: there is no {name}{nearest(name, known)}")
    mode = stage.watch.get("mode", "advise")
    if mode not in ("observe", "advise", "act"):
        raise AttachError(f"stage {stage.name}: watch: mode: {mode} is not one of observe, advise, act")
