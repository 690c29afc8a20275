"""PPO: what is written for veRL and OpenRLHF, that both rewards pay as the recipe's does, and that nothing follows."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.plan.lint.linter import lint_file
from tiltmeter_workbench.plan.starter import starter
from tiltmeter_workbench.train import references
from tiltmeter_workbench.train.checks import check_recipe
from tiltmeter_workbench.train.method_interface import StageOutput
from tiltmeter_workbench.train.recipe import read_recipe
from tiltmeter_workbench.train.runner import run_recipe

from .conftest import ROWS, write_recipe

PAY = """
from tiltmeter.rewards import InfraError

def right(completions, answer, **_):
    return [InfraError("down") if text == "?" else float(known in text) for text, known in zip(completions, answer)]

def solved(completion, answer):
    return float(completion == answer)
"""
PPO = {
    "method": "ppo",
    "data": "prompts.jsonl",
    "rewards": [{"function": "pay.py:right", "weight": 2.0}],
    "guards": ["repetition"],
    "gold": "pay.py:solved",
    "options": {"beta": 0.07, "gpus": 4, "length": 400},
}


def written(folder: Path, *stages: dict[str, Any]) -> Path:
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text("{}")
    (folder / "pay.py").write_text(PAY)
    return write_recipe(folder, *stages, model="model")


def trained(folder: Path, **changes: Any) -> tuple[Path, StageOutput]:
    path = written(folder, {**PPO, **changes})
    (done,) = run_recipe(read_recipe(path), lambda *_: None)
    return done.result.folder, done.result.trained


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, StageOutput]:
    return trained(tmp_path_factory.mktemp("ppo"))


@pytest.mark.parametrize(
    ("trainer", "data", "function"),
    [("verl", "train.parquet", "compute_score"), ("openrlhf", "prompts.jsonl", "reward_func")],
)
def test_the_script_is_the_start_with_what_the_recipe_says(
    made: tuple[Path, StageOutput], trainer: Any, data: str, function: str
) -> None:
    folder, _ = made
    place = folder.parents[1]
    told = (folder / f"{trainer}.sh").read_text().splitlines()
    plain = starter(
        trainer,
        "ppo",
        {
            "gpus": 4, "length": 400, "model": place / "model", "dataset": folder / data, "output": folder / trainer,
            "reward": f"{folder}/{trainer}_reward.{function}",
        },
    ).splitlines()  # fmt: skip
    changed = [line.strip().rstrip("\\ ") for line in told if line not in plain]
    leash = "algorithm.kl_ctrl.kl_coef=0.07" if trainer == "verl" else "--algo.kl.init_coef 0.07"
    gold = f"+trainer.tiltmeter.gold={place / 'pay.py'}:solved"
    if trainer == "openrlhf":
        gold = f"gold='{place / 'pay.py'}:solved')"
    assert any(leash in line for line in changed) and any(gold in line for line in changed)
    assert any("The KL penalty, 0.07," in line for line in changed)
    assert len(changed) == 4, changed  # and where the held-out rows are, or the folder to start in
    assert len([line for line in plain if line not in told]) == 3


@pytest.mark.parametrize("trainer", ["verl", "openrlhf"])
def test_the_script_is_sound_and_the_linter_has_nothing_against_it(
    made: tuple[Path, StageOutput], trainer: str
) -> None:
    script = made[0] / f"{trainer}.sh"
    subprocess.run(["bash", "-n", str(script)], check=True)
    found = lint_file(script)
    assert found.trainer == trainer and found.settings["model"] == str(made[0].parents[1] / "model")
    assert found.errors == ()


def test_it_says_that_nothing_was_trained_and_what_to_run(made: tuple[Path, StageOutput]) -> None:
    folder, told = made
    assert told.folders == () and told.facts["trained"] is False
    assert "Nothing was trained" in told.notes[0] and f"bash {folder / 'verl.sh'}" in told.notes[1]
    assert {path.name for path in told.files} == {
        "openrlhf.sh", "openrlhf_reward.py", "prompts.jsonl", "test.parquet", "train.parquet", "verl.sh",
        "verl_reward.py",
    }  # fmt: skip


def test_rows_are_there_as_each_trainer_reads_them(made: tuple[Path, StageOutput]) -> None:
    rows, first = parquet.read_table(made[0] / "train.parquet").to_pylist(), ROWS["prompts.jsonl"][0]
    assert len(rows) == 16 and rows[0]["prompt"] == [{"role": "user", "content": first["prompt"]}]
    assert rows[0]["reward_model"]["ground_truth"] == first["answer"]
    assert read_rows(made[0] / "prompts.jsonl")[0] == {"prompt": first["prompt"], "label": first["answer"]}


def loaded(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_verls_reward_pays_what_the_recipe_does_and_an_outage_is_not_0(made: tuple[Path, StageOutput]) -> None:
    score = loaded(made[0] / "verl_reward.py").compute_score
    row = {"columns": json.dumps({"prompt": "what is 3 plus 2", "answer": "5"})}
    assert score("recipe", "it is 5", "5", row) == {"score": 2.0, "reward": 2.0, "repetition": 0.0}
    assert score("recipe", "no", "5", row)["score"] == 0.0
    with pytest.warns(UserWarning), pytest.raises(Exception, match="could not be scored"):
        score("recipe", "?", "5", row)


def test_openrlhfs_reward_pays_the_same_and_is_captured(
    made: tuple[Path, StageOutput], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILTMETER_DISABLED", "1")  # capturing has tests of its own
    module = loaded(made[0] / "openrlhf_reward.py")
    told = module.reward_func(["q: it is 5", "q: no"], ["q: ", "q: "], ["5", "5"])
    assert told["rewards"].tolist() == [2.0, 0.0] and set(told["extra_logs"]) == {"reward", "repetition"}
    assert "tiltmeter.capture(reward_func" in (made[0] / "openrlhf_reward.py").read_text()


def test_a_reward_model_alone_is_called_by_the_trainer_itself(tmp_path: Path) -> None:
    path = written(tmp_path, {**PPO, "rewards": [{"model": "rm"}], "guards": []})
    (tmp_path / "rm").mkdir()
    for name in ("config.json", "model.safetensors"):
        (tmp_path / "rm" / name).write_text("{}")
    (done,) = run_recipe(read_recipe(path), lambda *_: None)
    folder = done.result.folder
    assert f"reward.reward_model.model_path={tmp_path / 'rm'}" in (folder / "verl.sh").read_text()
    assert not (folder / "verl_reward.py").exists()
    assert "rollouts are not seen" in done.result.trained.notes[-1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"guards": "standard"}, "length_debiased learns from groups of answers"),
        ({"guards": [{"overlong": {"unit": "tokens", "limit": 9}}]}, "show a reward no tokens"),
        ({"guards": ["overlong"]}, "show a reward no tokens"),
        ({"trl": {"beta": 0.1}}, "trl has no meaning for ppo: TRL has no trainer for it"),
        ({"options": {"betta": 0.1}}, "there is no betta; did you mean beta?"),
        ({"options": {"beta": "small"}}, "beta is a number, not 'small'"),
        ({"rewards": [{"function": "gone.py:right"}]}, "there is no file"),
    ],
)
def test_what_neither_trainer_could_be_given_is_refused_before_anything_is_written(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    path = written(tmp_path, {**PPO, **change})
    with pytest.raises(AttachError, match=said):
        check_recipe(read_recipe(path))
    assert not (tmp_path / "out").exists()


def test_no_stage_can_follow_and_none_can_start_from_it(tmp_path: Path) -> None:
    after = {"method": "dpo", "data": "pairs.jsonl"}
    with pytest.raises(AttachError, match="no stage can follow it; make it the last"):
        check_recipe(read_recipe(written(tmp_path / "a", PPO, after)))
    recipe = read_recipe(written(tmp_path / "b", PPO, {**after, "model": "@ppo"}))
    with pytest.raises(AttachError, match="a ppo stage leaves files, and a policy is meant here"):
        references.referred_stage(recipe, recipe.stages[1], "model", "@ppo", ("policy",))
