"""The kit for veRL: its configuration composed by veRL's own Hydra files, and its settings in veRL's real `fit`."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.adapters.test_verl import quiet, sync_trainer, verl  # noqa: F401  # fixtures

from tiltmeter.rundir.store import RunDirectory
from tiltmeter.safety.loading import load_function

KIT = Path(__file__).parents[2] / "integrations" / "verl"


def overrides() -> list[str]:
    """What `run_grpo.sh` passes, as a shell would read it."""
    script = (KIT / "run_grpo.sh").read_text()
    command = script[script.index("python -m verl") :].replace("\\\n", " ").replace("$here", str(KIT))
    words = shlex.split(command.replace('"$@"', "").replace("$data", "/data").replace("$model", "/model"))
    assert words[:3] == ["python", "-m", "verl.trainer.main_ppo"]
    return words[3:]


def test_the_start_script_is_a_shell_script() -> None:
    subprocess.run(["bash", "-n", str(KIT / "run_grpo.sh")], check=True)


def test_the_gold_function_says_what_an_answer_is_worth() -> None:
    solved: Any = load_function(f"{KIT / 'checks.py'}:solved")
    assert solved("It is 1,234.", "#### 1234") == 1.0 and solved("1234 or 5", "1234") == 0.0
    assert solved("4", "") is None


def test_verls_own_configuration_takes_the_lines(verl: Any) -> None:  # noqa: F811
    hydra = importlib.import_module("hydra")
    folder = Path(importlib.import_module("verl").__file__ or "").parent / "trainer" / "config"
    with hydra.initialize_config_dir(str(folder), version_base=None):
        config = hydra.compose("ppo_trainer", overrides=overrides())
    gold = config.trainer.tiltmeter.gold
    assert (gold.source, gold.evals) == (f"{KIT / 'checks.py'}:solved", "auto")
    assert config.algorithm.adv_estimator == "grpo" and config.actor_rollout_ref.rollout.n == 8


def test_verls_fit_runs_with_the_settings_of_the_file(
    verl: Any,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    yaml = importlib.import_module("yaml")
    settings = yaml.safe_load((KIT / "tiltmeter.yaml").read_text())["trainer"]["tiltmeter"]
    gold = {**settings["gold"], "source": str(KIT / settings["gold"]["source"])}
    settings = {**settings, "gold": gold, "monitor": False}
    trainer = sync_trainer(verl, tmp_path / "checkpoints", monkeypatch, 2, tiltmeter=settings)
    trainer.fit(None)
    run = RunDirectory(tmp_path / "checkpoints" / "tiltmeter")
    assert [file.step for file in run.files(0)] == [1, 2]


def test_the_plugin_is_an_entry_point_of_the_package() -> None:
    points = importlib.metadata.entry_points(group="verl.plugins")
    named = {point.name: point.value for point in points}
    if "tiltmeter" not in named:
        text = (KIT.parents[1] / "pyproject.toml").read_text()
        assert re.search(r'\[project.entry-points."verl.plugins"\]\ntiltmeter = "tiltmeter.adapters.verl.plugin"', text)
    else:
        assert named["tiltmeter"] == "tiltmeter.adapters.verl.plugin"
    importlib.import_module("tiltmeter.adapters.verl.plugin")
