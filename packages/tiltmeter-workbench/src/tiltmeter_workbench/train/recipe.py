"""The recipe file (YAML): its stages, with models, data, rewards, guards, gold and monitoring.

Every field is either ours, and listed here, or TRL's (`trl`) or PEFT's (`lora`), and passed on unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

from tiltmeter.errors import AttachError
from tiltmeter_workbench.train.yaml_file import read_yaml

Method = Literal[
    "sft",
    "reward",
    "dpo",
    "ipo",
    "kto",
    "grpo",
    "rloo",
    "ppo",
    "constitution",
    "iterative_dpo",
    "refresh",
    "process_reward",
]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage of a recipe: a training method with its model, data and settings.

    `model`, `data`, paths inside `rewards` and `gold` may be `@NAME`, the result of an earlier stage of that name, or
    `@NAME/file`. A policy stage without `model` goes on from the policy stage before it, or from the recipe's model.

    >>> Stage(method="sft", name="first", data="answers.jsonl").trl
    {}
    """

    method: Method
    name: str
    model: str | None = None
    data: str | None = None
    eval: str | None = None
    replay: str | None = None
    trl: Mapping[str, Any] = field(default_factory=dict)  # settings of TRL's own configuration class
    lora: Mapping[str, Any] | None = None  # settings of PEFT's LoraConfig
    rewards: Sequence[Mapping[str, Any]] = ()  # see `rewards.described`
    guards: Any = ()
    gold: str | None = None
    watch: Mapping[str, Any] | bool = True  # settings of `tiltmeter.attach`; False: unwatched
    options: Mapping[str, Any] = field(default_factory=dict)  # of the method: members, rounds, entropy_weight, ...


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a YAML file of the user says, read and checked."""

    path: Path
    output: Path
    model: str
    stages: tuple[Stage, ...]
    seed: int = 0

    def stage(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)


#: Every field of ours, with its kind and what it says; `--fields` and the documentation's table are made of it.
RECIPE_FIELDS: dict[str, tuple[tuple[type, ...], str]] = {
    "model": ((str,), "the folder of the model that is trained, or hf:OWNER/NAME of the Hugging Face hub"),
    "output": ((str,), "where everything goes; without it, a folder named like the recipe, beside it"),
    "seed": ((int,), "of everything random; 0 without it"),
    "stages": ((list,), "what is done, one after the other"),
}
STAGE_FIELDS: dict[str, tuple[tuple[type, ...], str]] = {
    "method": ((str,), "how it is trained"),
    "name": ((str,), "what other stages and its folder call it; without it, the method"),
    "model": ((str,), "another model to start from: a folder, hf:OWNER/NAME or @STAGE"),
    "data": ((str,), "rows to train on: .jsonl, .json, .csv, .parquet, a datasets folder, or @STAGE/FILE"),
    "eval": ((str,), "rows that are only evaluated on, in the same form"),
    "replay": ((str,), "rows as for sft whose loss no step may raise: what would do so is taken out of its gradient"),
    "trl": ((dict,), "settings of TRL's own class, passed on untouched"),
    "lora": ((dict,), "settings of PEFT's LoraConfig, passed on untouched; without it, the whole model is trained"),
    "rewards": ((list,), "reward sources: functions, reward models, judges, each with its weight"),
    "guards": ((str, list), "reward guards: standard, or a list of names with settings"),
    "gold": ((str,), "the source of gold labels: file.py:function, a judge's file.toml, or people"),
    "watch": ((dict, bool), "settings of tiltmeter.attach, as act: act; false leaves the stage unwatched"),
    "options": ((dict,), "settings of the method itself"),
}
STAGE_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
TYPE_NAMES = {str: "text", int: "a whole number", list: "a list", dict: "settings by name", bool: "true or false"}


def read_recipe(path: str | Path, *, model: str | None = None, output: str | Path | None = None) -> Recipe:
    """The recipe in a file; `model` and `output` take the place of its own. Raises `AttachError` with the fix.

    Only the file itself is checked here; `checks.check_recipe` checks the files and models that it names.
    """
    path = Path(path)
    document = read_yaml(path)
    if not isinstance(document, Mapping):
        raise AttachError(f"{path} is no recipe: it has no `model:` and no `stages:`")
    check_fields(path, document, RECIPE_FIELDS)
    if not document.get("stages"):
        raise AttachError(f"{path} has no stages; write stages: with at least one - method: sft")
    if model is None and document.get("model") is None:
        raise AttachError(f"{path} names no model; write model: FOLDER, or hf:OWNER/NAME of the Hugging Face hub")
    seed = document.get("seed") or 0
    if seed < 0:
        raise AttachError(f"{path}: seed: {seed} is below 0; use 0 or more")
    stages = tuple(_read_stage(path, number, one) for number, one in enumerate(document["stages"], 1))
    for number, stage in enumerate(stages):
        if stage.name.lower() in [earlier.name.lower() for earlier in stages[:number]]:
            raise AttachError(f"{path}: two stages are called {stage.name}; give each a name: of its own")
    # Paths of the command line are relative to the working directory, paths in the file to the file.
    output_folder = Path(output) if output is not None else path.parent / (document.get("output") or path.stem)
    model_name = (
        str(document.get("model")) if model is None else model if is_hub_model(model) else str(Path(model).resolve())
    )
    return Recipe(path=path.resolve(), output=output_folder.resolve(), model=model_name, stages=stages, seed=seed)


def is_hub_model(name: str) -> bool:
    return name.startswith("hf:")


def check_fields(where: object, values: Mapping[str, Any], allowed: Mapping[str, tuple[tuple[type, ...], str]]) -> None:
    """Raises `AttachError` for an unknown field, with the closest name, or for a value of the wrong type."""
    for name, value in values.items():
        if name not in allowed:
            raise AttachError(f"{where}: there is no field {name}{suggest_name(name, allowed)}")
        kinds = allowed[name][0]
        is_valid = isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds)
        if value is not None and not is_valid:
            what = " or ".join(TYPE_NAMES[kind] for kind in kinds)
            raise AttachError(f"{where}: {name} is {what}, not {value!r}")


def gold_settings(stage: Stage) -> Mapping[str, Any]:
    """What a recipe says of a stage's labels: the share, the prompts of checkpoints, evaluations."""
    labels = stage.watch.get("gold") if isinstance(stage.watch, Mapping) else None
    return labels if isinstance(labels, Mapping) else {}


def suggest_name(name: str, names: Sequence[str] | Mapping[str, Any]) -> str:
    """The end of an error message about an unknown name: the closest known one, or all of them.

    >>> suggest_name("learning_rat", ["learning_rate", "beta"]), suggest_name("x", ["a", "b"])
    ('; did you mean learning_rate?', '; there are a, b')
    """
    close = get_close_matches(name, list(names), 1, 0.75)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(sorted(names))}" if len(names) <= 20 else ""


def _read_stage(path: Path, number: int, entry: object) -> Stage:
    if not isinstance(entry, Mapping):
        raise AttachError(f"{path}: stage {number} is no list of fields; write - method: sft and what belongs to it")
    method = entry.get("method")
    if method not in get_args(Method):
        problem = "names no method" if method is None else f"has a method that nobody knows, {method}"
        close = suggest_name(str(method), get_args(Method))
        raise AttachError(f"{path}: stage {number} {problem}{close}")
    name = str(entry.get("name") or method)
    where = f"{path}: stage {name}"
    check_fields(where, entry, STAGE_FIELDS)
    if not STAGE_NAME.match(name):
        raise AttachError(f"{path}: stage {number} is called {name!r}; use letters, digits, - and _ only")
    settings = {key: value for key, value in entry.items() if value is not None and key != "name"}
    return Stage(**{**settings, "name": name})
