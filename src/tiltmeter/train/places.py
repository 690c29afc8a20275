"""What a name in a recipe stands for: a file beside it, a model of the hub, or what an earlier stage left."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.train.methods import KINDS, Leaves
from tiltmeter.train.recipe import Recipe, Stage, is_hub, nearest

PEOPLE = re.compile(r"^people(:\d+)?$")
HUB = re.compile(r"^hf:(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?$")
#: What is fetched of a model: weights as safetensors only, and what describes it.
FETCHED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken")


@dataclass(frozen=True)
class Reference:
    """`@NAME`, or `@NAME/file`: what an earlier stage left."""

    stage: str
    file: str = ""


def reference(text: str) -> Reference | None:
    """What a name refers to; None where it is a path.

    >>> reference("@cai/preferences.jsonl"), reference("data.jsonl")
    (Reference(stage='cai', file='preferences.jsonl'), None)
    """
    if not text.startswith("@"):
        return None
    stage, _, file = text[1:].partition("/")
    return Reference(stage, file)


def referred(recipe: Recipe, stage: Stage, field: str, text: str, leaves: tuple[Leaves, ...]) -> Stage | None:
    """The stage that a name refers to, which is earlier and leaves what is meant; None where it is a path."""
    found = reference(text)
    if found is None:
        return None
    where = f"stage {stage.name}: {field}: {text}"
    names = [one.name for one in recipe.stages]
    earlier = names[: names.index(stage.name)]
    if found.stage not in earlier:
        late = " stands later; move it before this one" if found.stage in names else " is no stage"
        told = nearest(found.stage, earlier) if earlier and found.stage not in names else ""
        raise AttachError(f"{where}: {found.stage}{late}{told}")
    if ".." in Path(found.file).parts or Path(found.file).is_absolute():
        raise AttachError(f"{where}: name a file inside the stage's folder")
    origin = recipe.stage(found.stage)
    if not found.file and not set(leaves) & set(KINDS[origin.method].leaves):
        left = " and ".join({"policy": "a policy", "reward": "a reward model", "files": "files"}[one]
                            for one in KINDS[origin.method].leaves)  # fmt: skip
        meant = " or ".join(
            {"policy": "a policy", "reward": "a reward model", "files": "a file"}[one] for one in leaves
        )
        raise AttachError(f"{where}: a {origin.method} stage leaves {left}, and {meant} is meant here")
    return origin


def start_of(recipe: Recipe, stage: Stage) -> str:
    """The model a stage starts from, by name: its own, the last policy before it, or the recipe's."""
    if stage.model is not None:
        return stage.model
    before = recipe.stages[: recipe.stages.index(stage)]
    policies = [one for one in before if "policy" in KINDS[one.method].leaves]
    return f"@{policies[-1].name}" if policies else recipe.model


def beside(recipe: Recipe, text: str) -> Path:
    return (recipe.path.parent / text).resolve()


def function(recipe: Recipe, text: str) -> str:
    """`file.py:name` with its file taken from beside the recipe; `people` and a judge's file likewise."""
    if PEOPLE.match(text):
        return text
    path, colon, name = text.rpartition(":")
    return f"{beside(recipe, path)}:{name}" if colon else str(beside(recipe, text))


def model_folder(recipe: Recipe, where: str, text: str) -> Path:
    """The folder of a model that is no stage's. One of the hub is fetched, or found where it was fetched before."""
    if not is_hub(text):
        folder = beside(recipe, text)
        if not (folder / "config.json").is_file():
            hub = f"; a model of the hub is written hf:{text}" if HUB.match(f"hf:{text}") else ""
            raise AttachError(f"{where}: {text}: there is no model in {folder}{hub}")
        return folder
    found = HUB.match(text)
    if found is None:
        raise AttachError(f"{where}: {text}: write a model of the hub as hf:OWNER/NAME, or hf:OWNER/NAME@REVISION")
    return fetched(where, found)


def fetched(where: str, found: re.Match[str]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(found["name"], revision=found["revision"], allow_patterns=list(FETCHED)))
    except Exception as error:  # whatever a network says
        said = " ".join(str(error).split())[:300]
        raise AttachError(f"{where}: {found[0]} could not be fetched: {said}") from error


def strings(value: Any) -> list[str]:
    """Every text inside a value of YAML."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for one in value.values() for text in strings(one)]
    return [text for one in value for text in strings(one)] if isinstance(value, (list, tuple)) else []
