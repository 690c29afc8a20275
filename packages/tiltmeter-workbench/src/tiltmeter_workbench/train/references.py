"""Resolve names in a recipe: a file beside it, a model of the Hugging Face hub, or an earlier stage's output."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.train.recipe import Recipe, Stage, is_hub_model, suggest_name
from tiltmeter_workbench.train.registry import SPECS, Product

PEOPLE = re.compile(r"^people(:\d+)?$")
HUB = re.compile(r"^hf:(?P<name>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?$")
#: What is fetched of a model: weights as safetensors only, and what describes it.
DOWNLOAD_PATTERNS = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja", "*.tiktoken")


@dataclass(frozen=True)
class StageReference:
    """`@NAME`, or `@NAME/file`: the output of an earlier stage."""

    stage: str
    file: str = ""


def parse_reference(text: str) -> StageReference | None:
    """Parse `@NAME` or `@NAME/file`; None where it is a path.

    >>> parse_reference("@cai/preferences.jsonl"), parse_reference("data.jsonl")
    (StageReference(stage='cai', file='preferences.jsonl'), None)
    """
    if not text.startswith("@"):
        return None
    stage, _, file = text[1:].partition("/")
    return StageReference(stage, file)


def referred_stage(recipe: Recipe, stage: Stage, field: str, text: str, products: tuple[Product, ...]) -> Stage | None:
    """The earlier stage that a name refers to, checked to produce what is needed; None where it is a path."""
    ref = parse_reference(text)
    if ref is None:
        return None
    where = f"stage {stage.name}: {field}: {text}"
    names = [one.name for one in recipe.stages]
    earlier = names[: names.index(stage.name)]
    if ref.stage not in earlier:
        late = " stands later; move it before this one" if ref.stage in names else " is no stage"
        hint = suggest_name(ref.stage, earlier) if earlier and ref.stage not in names else ""
        raise AttachError(f"{where}: {ref.stage}{late}{hint}")
    if ".." in Path(ref.file).parts or Path(ref.file).is_absolute():
        raise AttachError(f"{where}: name a file inside the stage's folder")
    origin = recipe.stage(ref.stage)
    if not ref.file and not set(products) & set(SPECS[origin.method].products):
        actual = " and ".join({"policy": "a policy", "reward": "a reward model", "files": "files"}[one]
                            for one in SPECS[origin.method].products)  # fmt: skip
        expected = " or ".join(
            {"policy": "a policy", "reward": "a reward model", "files": "a file"}[one] for one in products
        )
        raise AttachError(f"{where}: a {origin.method} stage leaves {actual}, and {expected} is meant here")
    return origin


def start_model(recipe: Recipe, stage: Stage) -> str:
    """The model a stage starts from, by name: its own, the last policy before it, or the recipe's."""
    if stage.model is not None:
        return stage.model
    before = recipe.stages[: recipe.stages.index(stage)]
    policies = [one for one in before if "policy" in SPECS[one.method].products]
    return f"@{policies[-1].name}" if policies else recipe.model


def resolve_path(recipe: Recipe, text: str) -> Path:
    return (recipe.path.parent / text).resolve()


def resolve_function(recipe: Recipe, text: str) -> str:
    """`file.py:name` with its file taken from beside the recipe; `people` and a judge's file likewise."""
    if PEOPLE.match(text):
        return text
    path, colon, name = text.rpartition(":")
    return f"{resolve_path(recipe, path)}:{name}" if colon else str(resolve_path(recipe, text))


def model_folder(recipe: Recipe, where: str, text: str) -> Path:
    """The folder of a model that no stage made; a model of the hub is downloaded, or taken from the cache."""
    if not is_hub_model(text):
        folder = resolve_path(recipe, text)
        if not (folder / "config.json").is_file():
            hub = f"; a model of the hub is written hf:{text}" if HUB.match(f"hf:{text}") else ""
            raise AttachError(f"{where}: {text}: there is no model in {folder}{hub}")
        return folder
    match = HUB.match(text)
    if match is None:
        raise AttachError(f"{where}: {text}: write a model of the hub as hf:OWNER/NAME, or hf:OWNER/NAME@REVISION")
    return download_model(where, match)


def download_model(where: str, match: re.Match[str]) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(
            snapshot_download(match["name"], revision=match["revision"], allow_patterns=list(DOWNLOAD_PATTERNS))
        )
    except Exception as error:  # whatever a network says
        message = " ".join(str(error).split())[:300]
        raise AttachError(f"{where}: {match[0]} could not be fetched: {message}") from error


def strings(value: Any) -> list[str]:
    """Every text inside a value of YAML."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        return [text for one in value.values() for text in strings(one)]
    return [text for one in value for text in strings(one)] if isinstance(value, (list, tuple)) else []
