"""A recipe: the file that says what is trained, on what, rewarded by what, guarded and watched how.

Every field is either ours, and listed here, or TRL's (under `trl`) or PEFT's (under `lora`), and passed on untouched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

from tiltmeter.errors import AttachError

Method = Literal[
    "sft", "reward", "dpo", "ipo", "kto", "grpo", "rloo", "ppo", "constitution", "iterative_dpo", "refresh"
]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One step of a recipe: a method of training with its model, data and settings.

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
OF_RECIPE: dict[str, tuple[tuple[type, ...], str]] = {
    "model": ((str,), "the folder of the model that is trained, or hf:OWNER/NAME of the Hugging Face hub"),
    "output": ((str,), "where everything goes; without it, a folder named like the recipe, beside it"),
    "seed": ((int,), "of everything random; 0 without it"),
    "stages": ((list,), "what is done, one after the other"),
}
OF_STAGE: dict[str, tuple[tuple[type, ...], str]] = {
    "method": ((str,), "how it is trained"),
    "name": ((str,), "what other stages and its folder call it; without it, the method"),
    "model": ((str,), "another model to start from: a folder, hf:OWNER/NAME or @STAGE"),
    "data": ((str,), "rows to train on: .jsonl, .json, .csv, .parquet, a datasets folder, or @STAGE/FILE"),
    "eval": ((str,), "rows that are only evaluated on, in the same form"),
    "trl": ((dict,), "settings of TRL's own class, passed on untouched"),
    "lora": ((dict,), "settings of PEFT's LoraConfig, passed on untouched; without it, the whole model is trained"),
    "rewards": ((list,), "what pays: functions, reward models, judges, each with its weight"),
    "guards": ((str, list), "what stands around the rewards: standard, or a list of names with settings"),
    "gold": ((str,), "who says what a completion is worth: file.py:function, a judge's file.toml, or people"),
    "watch": ((dict, bool), "settings of tiltmeter.attach, as mode: act; false leaves the stage unwatched"),
    "options": ((dict,), "settings of the method itself"),
}
NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]*$")
KINDS = {str: "text", int: "a whole number", list: "a list", dict: "settings by name", bool: "true or false"}


def read(path: str | Path, *, model: str | None = None, output: str | Path | None = None) -> Recipe:
    """The recipe in a file; `model` and `output` take the place of its own. Raises `AttachError` with the fix.

    Only what the file says by itself is checked here: `checks.check` looks at what it names.
    """
    from tiltmeter.train.yaml_file import read_yaml

    path = Path(path)
    said = read_yaml(path)
    if not isinstance(said, Mapping):
        raise AttachError(f"{path} is no recipe: it has no `model:` and no `stages:`")
    fields(path, said, OF_RECIPE)
    if not said.get("stages"):
        raise AttachError(f"{path} has no stages; write stages: with at least one - method: sft")
    if model is None and said.get("model") is None:
        raise AttachError(f"{path} names no model; write model: FOLDER, or hf:OWNER/NAME of the Hugging Face hub")
    seed = said.get("seed") or 0
    if seed < 0:
        raise AttachError(f"{path}: seed: {seed} is below 0; use 0 or more")
    stages = tuple(_stage(path, number, one) for number, one in enumerate(said["stages"], 1))
    for number, stage in enumerate(stages):
        if stage.name.lower() in [earlier.name.lower() for earlier in stages[:number]]:
            raise AttachError(f"{path}: two stages are called {stage.name}; give each a name: of its own")
    # What a command line names is beside the person who typed it, what a file names is beside the file.
    where = Path(output) if output is not None else path.parent / (said.get("output") or path.stem)
    given = str(said.get("model")) if model is None else model if is_hub(model) else str(Path(model).resolve())
    return Recipe(path=path.resolve(), output=where.resolve(), model=given, stages=stages, seed=seed)


def is_hub(name: str) -> bool:
    return name.startswith("hf:")


def fields(where: object, said: Mapping[str, Any], known: Mapping[str, tuple[tuple[type, ...], str]]) -> None:
    """Raises `AttachError` for a field that nobody knows, with the nearest, or one of another kind."""
    for name, value in said.items():
        if name not in known:
            raise AttachError(f"{where}: there is no field {name}{nearest(name, known)}")
        kinds = known[name][0]
        right = isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds)
        if value is not None and not right:
            what = " or ".join(KINDS[kind] for kind in kinds)
            raise AttachError(f"{where}: {name} is {what}, not {value!r}")


def nearest(name: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    """The end of a sentence about a name that is not there.

    >>> nearest("learning_rat", ["learning_rate", "beta"]), nearest("x", ["a", "b"])
    ('; did you mean learning_rate?', '; there are a, b')
    """
    close = get_close_matches(name, list(known), 1, 0.75)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(sorted(known))}" if len(known) <= 20 else ""


def _stage(path: Path, number: int, said: object) -> Stage:
    if not isinstance(said, Mapping):
        raise AttachError(f"{path}: stage {number} is no list of fields; write - method: sft and what belongs to it")
    method = said.get("method")
    if method not in get_args(Method):
        told = "names no method" if method is None else f"has a method that nobody knows, {method}"
        close = nearest(str(method), get_args(Method))
        raise AttachError(f"{path}: stage {number} {told}{close}")
    name = str(said.get("name") or method)
    where = f"{path}: stage {name}"
    fields(where, said, OF_STAGE)
    if not NAME.match(name):
        raise AttachError(f"{path}: stage {number} is called {name!r}; use letters, digits, - and _ only")
    given = {key: value for key, value in said.items() if value is not None and key != "name"}
    return Stage(**{**given, "name": name})
