"""What a recipe would do, without training: each stage, what we would set, and what is known to go wrong with it."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tiltmeter.errors import AttachError
from tiltmeter.rows import read_rows
from tiltmeter.train import places
from tiltmeter.train.checks import check
from tiltmeter.train.method import Context
from tiltmeter.train.methods import KINDS, config_of
from tiltmeter.train.recipe import Recipe, Stage
from tiltmeter.train.running import state
from tiltmeter.train.settings import configured, set_by_us


def outlook(recipe: Recipe) -> dict[str, Any]:
    """A recipe that can be trained, in plain words and numbers. Raises `AttachError` for one that cannot."""
    check(recipe)
    known = state(recipe)
    stages = [_stage(recipe, number, stage, known[stage.name]) for number, stage in enumerate(recipe.stages, 1)]
    return {"recipe": str(recipe.path), "output": str(recipe.output), "stages": stages}


def _stage(recipe: Recipe, number: int, stage: Stage, known: str) -> dict[str, Any]:
    folder = recipe.output / f"{number:02d}-{stage.name}"
    context = Context(recipe, stage, folder, Path(), None, None, (), _silent)
    there = stage.data is not None and places.reference(stage.data) is None
    config = config_of(stage.method)
    return {
        "name": stage.name,
        "method": stage.method,
        "model": places.start_of(recipe, stage),
        "rows": len(read_rows(places.beside(recipe, stage.data))) if there and stage.data is not None else None,
        "config": KINDS[stage.method].config,
        "state": known,
        "ours": {} if config is None else {k: v for k, v in set_by_us(context).items() if k not in stage.trl},
        "notes": [] if config is None else [*_refused(context, config), *_linted(stage)],
    }


def _silent(what: str, done: int, total: int) -> None:
    pass


def _refused(context: Context, config: type[Any]) -> list[str]:
    """A note only: a recipe is often checked on another machine than the one it is for."""
    try:
        configured(context, config)
    except AttachError as error:
        return [f"on this machine it would not start: {error}"]
    return []


def _linted(stage: Stage) -> list[str]:
    """What `tiltmeter plan --lint` has against the settings."""
    from tiltmeter.plan.lint import linted

    method = "dpo" if KINDS[stage.method].config == "DPOConfig" else stage.method
    method = "grpo" if KINDS[stage.method].config == "GRPOConfig" else method
    said = {**stage.trl, "use_peft": stage.lora is not None}
    if stage.rewards:
        said["reward_funcs"] = [str(entry.get("name") or number) for number, entry in enumerate(stage.rewards, 1)]
    with TemporaryDirectory() as folder:
        file = Path(folder) / f"{method}.json"
        file.write_text(json.dumps(said, default=str), "utf-8")
        found = linted(file, "trl", method)
    return [f"{one.level}: {one.key}: {one.sentence.rstrip('.')}; {one.fix}" for one in found.complaints]
