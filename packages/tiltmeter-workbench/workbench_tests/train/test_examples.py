"""Every recipe in examples/ is trained here, for two steps of each stage, on a tiny model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tiltmeter.cli import app

EXAMPLES = Path(__file__).parents[4] / "examples"
RECIPES = {
    path.relative_to(EXAMPLES).as_posix(): path
    for path in sorted(EXAMPLES.rglob("*.y*ml"))
    if path.parent.name != "cluster"  # files for Prometheus and Kubernetes
}
#: Recipes that are watched here too, as they say; a monitor for each stage of all would take longer than they do.
WATCHED = ("grpo", "refresh")
#: What a stage of each method leaves: models, in their number.
MODELS = {"ppo": 0, "constitution": 0}


def test_there_is_an_example_of_every_method_but_ipo_and_all_of_them_are_run_below() -> None:
    methods = {stage["method"] for path in RECIPES.values() for stage in yaml.safe_load(path.read_text())["stages"]}
    wanted = {"sft", "reward", "dpo", "kto", "grpo", "rloo", "ppo", "iterative_dpo", "refresh"}
    assert methods >= wanted
    assert len(RECIPES) >= 12


@pytest.mark.parametrize("name", RECIPES)
def test_the_recipe_trains(
    name: str, tiny_model: Path, tmp_path: Path, their_warnings: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = yaml.safe_load(RECIPES[name].read_text())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    watched = Path(name).stem in WATCHED
    if not watched:
        monkeypatch.setenv("TILTMETER_DISABLED", "1")
    places = ["--model", str(tiny_model), "--out", str(tmp_path / "out")]
    told = CliRunner().invoke(app, ["model", "train", str(RECIPES[name]), *places, "--steps", "2", "--json"])
    assert told.exit_code == 0, told.output + repr(told.exception)
    stages: list[dict[str, Any]] = json.loads(told.stdout)["stages"]
    assert [stage["method"] for stage in stages] == [stage["method"] for stage in said["stages"]]
    for stage, wanted in zip(stages, said["stages"], strict=True):
        members = (wanted.get("options") or {}).get("members", 1)
        assert len(stage["folders"]) == MODELS.get(stage["method"], members), stage["name"]
        assert all((Path(folder) / "config.json").is_file() for folder in stage["folders"]), stage["name"]
        if stage["folders"]:
            assert stage["facts"]["steps"] >= 1, stage["name"]
        if watched and stage["method"] in ("grpo", "refresh"):
            assert stage["facts"]["verdict"] in ("OK", "WATCH", "BLIND"), stage["facts"]
