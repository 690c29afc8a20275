"""Preview of a recipe for `tiltmeter model train --check`: each stage, the settings we would add, and lint notes."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.plan.lint.linter import lint_file
from tiltmeter_workbench.train import references
from tiltmeter_workbench.train.checks import check_recipe
from tiltmeter_workbench.train.method_interface import Context
from tiltmeter_workbench.train.recipe import Recipe, Stage
from tiltmeter_workbench.train.registry import SPECS, config_of
from tiltmeter_workbench.train.runner import stage_states
from tiltmeter_workbench.train.trl_trainer import default_fields, make_config


def preview_recipe(recipe: Recipe) -> dict[str, Any]:
    """A valid recipe as JSON-able facts per stage. Raises `AttachError` for an invalid one."""
    check_recipe(recipe)
    states = stage_states(recipe)
    stages = [
        _preview_stage(recipe, number, stage, states[stage.name]) for number, stage in enumerate(recipe.stages, 1)
    ]
    return {"recipe": str(recipe.path), "output": str(recipe.output), "stages": stages}


def _preview_stage(recipe: Recipe, number: int, stage: Stage, stage_state: str) -> dict[str, Any]:
    folder = recipe.output / f"{number:02d}-{stage.name}"
    context = Context(recipe, stage, folder, Path(), None, None, (), _no_progress)
    has_file = stage.data is not None and references.parse_reference(stage.data) is None
    config = config_of(stage.method)
    return {
        "name": stage.name,
        "method": stage.method,
        "model": references.start_model(recipe, stage),
        "rows": len(read_rows(references.resolve_path(recipe, stage.data)))
        if has_file and stage.data is not None
        else None,
        "config": SPECS[stage.method].config,
        "state": stage_state,
        "ours": {} if config is None else {k: v for k, v in default_fields(context).items() if k not in stage.trl},
        "notes": [] if config is None else [*_trl_refusal(context, config), *_lint_notes(stage)],
    }


def _no_progress(what: str, done: int, total: int) -> None:
    pass


def _trl_refusal(context: Context, config: type[Any]) -> list[str]:
    """A note only: a recipe is often checked on another machine than the one it is for."""
    try:
        make_config(context, config)
    except AttachError as error:
        return [f"on this machine it would not start: {error}"]
    return []


def _lint_notes(stage: Stage) -> list[str]:
    """Lint messages of `tiltmeter lint` about the settings."""
    method = "dpo" if SPECS[stage.method].config == "DPOConfig" else stage.method
    method = "grpo" if SPECS[stage.method].config == "GRPOConfig" else method
    values = {**stage.trl, "use_peft": stage.lora is not None}
    if stage.rewards:
        values["reward_funcs"] = [str(entry.get("name") or number) for number, entry in enumerate(stage.rewards, 1)]
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{method}.json"
        file.write_text(json.dumps(values, default=str), "utf-8")
        report = lint_file(file, "trl", method)
    return [f"{one.level}: {one.key}: {one.sentence.rstrip('.')}; {one.fix}" for one in report.complaints]
