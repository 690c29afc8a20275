"""The rewards of a stage with every name in them resolved: files beside the recipe, and models of earlier stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.train import places
from tiltmeter.train.finished import Result, finished
from tiltmeter.train.recipe import Recipe, Stage


def resolved(recipe: Recipe, entry: Mapping[str, Any], results: Mapping[str, Result]) -> dict[str, Any]:
    """A reward as `rewards.described` takes it; a reward model of a stage's brings how it wants text ended."""
    made = dict(entry)
    for source in ("function", "judge"):
        if source in made:
            made[source] = places.function(recipe, str(made[source]))
    if "model" not in made:
        return made
    names = [made["model"]] if isinstance(made["model"], str) else list(made["model"])
    folders: list[str] = []
    for name in names:
        found = places.reference(name)
        if found is None:
            folders.append(str(places.beside(recipe, name)))
            continue
        result = results.get(found.stage)
        if result is None:
            raise AttachError(f"{recipe.path}: {name} is not trained yet; train the recipe first")
        left = [result.folder / found.file] if found.file else list(result.trained.folders)
        folders += [str(folder) for folder in left]
        if "ending" in result.trained.facts:
            made["settings"] = {"ending": result.trained.facts["ending"], **(made.get("settings") or {})}
    made["model"] = folders[0] if len(folders) == 1 else folders
    return made


def last_paid(recipe: Recipe) -> tuple[list[dict[str, Any]], Stage]:
    """The rewards of a trained recipe's last stage that has any, and that stage."""
    stage = next((stage for stage in reversed(recipe.stages) if stage.rewards), None)
    if stage is None:
        raise AttachError(f"{recipe.path} has no stage with rewards; name the reward itself")
    folders = [recipe.output / f"{number:02d}-{one.name}" for number, one in enumerate(recipe.stages, 1)]
    results = {made.name: made for folder in folders if (made := finished(folder)) is not None}
    return [resolved(recipe, entry, results) for entry in stage.rewards], stage
