"""Resolve the names in a stage's rewards: files beside the recipe, and reward models of earlier stages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.train import references
from tiltmeter_workbench.train.recipe import Recipe, Stage
from tiltmeter_workbench.train.stage_results import StageResult, read_result


def resolve_reward(recipe: Recipe, entry: Mapping[str, Any], results: Mapping[str, StageResult]) -> dict[str, Any]:
    """A reward as `rewards.described` takes it; a stage's reward model also sets its end-of-text token."""
    reward = dict(entry)
    for source in ("function", "judge"):
        if source in reward:
            reward[source] = references.resolve_function(recipe, str(reward[source]))
    if "model" not in reward:
        return reward
    names = [reward["model"]] if isinstance(reward["model"], str) else list(reward["model"])
    folders: list[str] = []
    for name in names:
        ref = references.parse_reference(name)
        if ref is None:
            folders.append(str(references.resolve_path(recipe, name)))
            continue
        result = results.get(ref.stage)
        if result is None:
            raise AttachError(f"{recipe.path}: {name} is not trained yet; train the recipe first")
        models = [result.folder / ref.file] if ref.file else list(result.trained.folders)
        folders += [str(folder) for folder in models]
        if "ending" in result.trained.facts:
            reward["settings"] = {"ending": result.trained.facts["ending"], **(reward.get("settings") or {})}
    reward["model"] = folders[0] if len(folders) == 1 else folders
    return reward


def last_rewards(recipe: Recipe) -> tuple[list[dict[str, Any]], Stage]:
    """The rewards of a trained recipe's last stage that has any, and that stage."""
    stage = next((stage for stage in reversed(recipe.stages) if stage.rewards), None)
    if stage is None:
        raise AttachError(f"{recipe.path} has no stage with rewards; name the reward itself")
    folders = [recipe.output / f"{number:02d}-{one.name}" for number, one in enumerate(recipe.stages, 1)]
    results = {result.name: result for folder in folders if (result := read_result(folder)) is not None}
    return [resolve_reward(recipe, entry, results) for entry in stage.rewards], stage
