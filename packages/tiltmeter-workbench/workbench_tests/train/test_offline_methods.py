"""What learns from data that is there: SFT, reward models, DPO, IPO and KTO, by TRL's trainers, whole and by LoRA."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tiltmeter.cli import app
from tiltmeter.errors import AttachError
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.verdict import judge_run
from tiltmeter_workbench.rewards.reward_ensemble import ensemble
from tiltmeter_workbench.rewards.reward_model import model
from tiltmeter_workbench.train.methods.reward_model import _draw_share
from tiltmeter_workbench.train.recipe import read_recipe
from tiltmeter_workbench.train.runner import run_recipe
from tiltmeter_workbench.train.stage_results import StageResult

from .conftest import PAIRS, TRL, Write, write_recipe

STEP = {**TRL, "max_steps": 2}
LORA = {"r": 4, "target_modules": ["q_proj", "v_proj"], "lora_alpha": 64}
QUIET = {"watch": False}
#: One recipe with a stage of every kind, each from the recipe's model.
STAGES: tuple[dict[str, Any], ...] = (
    {"method": "sft", "data": "answers.jsonl", "eval": "answers.jsonl", "trl": STEP, "lora": LORA, **QUIET},
    {"method": "sft", "name": "apart", "data": "answers.jsonl", "trl": STEP, "lora": LORA, **QUIET,
     "options": {"merge": False}, "model": "@sft"},
    {"method": "sft", "name": "chats", "data": "chats.jsonl", "trl": STEP, **QUIET, "model": "@sft"},
    {"method": "reward", "name": "one", "data": "pairs.jsonl", "eval": "pairs.jsonl",
     "trl": {**STEP, "max_steps": 12}, **QUIET},
    {"method": "reward", "name": "several", "data": "pairs.jsonl", "trl": STEP, "options": {"members": 2}, **QUIET},
    {"method": "reward", "name": "mean", "data": "pairs.jsonl", "trl": STEP, "lora": LORA, **QUIET,
     "options": {"combine": "warm", "members": 2}},
    {"method": "dpo", "data": "pairs.jsonl", "trl": STEP, "model": "@sft"},
    {"method": "ipo", "data": "pairs.jsonl", "trl": STEP, "lora": LORA, "model": "@sft", **QUIET},
    {"method": "kto", "data": "marked.jsonl", "trl": STEP, "model": "@sft", **QUIET},
    {"method": "dpo", "name": "soft", "data": "pairs.jsonl", "trl": STEP, "model": "@sft", **QUIET,
     "options": {"entropy_weight": 0.02}},
    {"method": "dpo", "name": "same", "data": "pairs.jsonl", "trl": {**STEP, "beta": 0.1}, "model": "@sft", **QUIET,
     "options": {"entropy_weight": 0.1}},
)  # fmt: skip


@pytest.fixture(scope="module")
def results(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, StageResult]:
    folder = tmp_path_factory.mktemp("offline")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        path = write_recipe(folder / "recipe", *STAGES, model=str(tiny_model))
        chats = [
            {"messages": [{"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": row["chosen"]}]}
            for row in PAIRS
        ]
        (path.parent / "chats.jsonl").write_text("".join(json.dumps(row) + "\n" for row in chats))
        return {one.result.name: one.result for one in run_recipe(read_recipe(path), lambda what, done, total: None)}


pytestmark = pytest.mark.usefixtures("their_warnings")


def weights(folder: Path) -> Any:
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("name", ["sft", "chats", "dpo", "ipo", "kto", "soft", "same"])
def test_a_policy_is_left_whole_and_can_be_loaded(results: dict[str, StageResult], name: str) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (folder,) = results[name].trained.folders
    assert not (folder / "adapter_config.json").exists()
    made, said = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, local_files_only=True)
    assert not said["missing_keys"] and not said["unexpected_keys"]
    tokens = AutoTokenizer.from_pretrained(folder, local_files_only=True)("what is 1 plus 2", return_tensors="pt")
    assert made(**tokens).logits.isfinite().all()
    facts = results[name].trained.facts
    assert (facts["rows"], facts["steps"]) == (16, 2)
    assert facts["last"]["loss"] == facts["last"]["loss"]


def test_a_merged_adapter_is_the_model_with_the_adapter(results: dict[str, StageResult], tiny_model: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    (folder,) = results["sft"].trained.folders
    base = AutoModelForCausalLM.from_pretrained(tiny_model, local_files_only=True)
    tokens = torch.arange(12).reshape(1, 12)
    plain = base(tokens).logits
    adapted = PeftModel.from_pretrained(base, folder.with_name("model-adapter"))(tokens).logits
    merged = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)(tokens).logits
    assert torch.allclose(adapted, merged, atol=1e-5)
    assert not torch.allclose(plain, merged, atol=1e-3)


def test_an_adapter_is_kept_apart_where_the_recipe_says_so(results: dict[str, StageResult]) -> None:
    (folder,) = results["apart"].trained.folders
    assert (folder / "adapter_model.safetensors").exists() and not (folder / "model.safetensors").exists()
    assert json.loads((folder / "adapter_config.json").read_text())["r"] == 4


def test_a_finished_model_is_measured_on_rows_that_are_held_out(results: dict[str, StageResult]) -> None:
    assert results["sft"].trained.facts["eval"]["eval_loss"] > 0.0
    assert results["dpo"].trained.facts["eval"] is None


def test_a_reward_model_pays_as_trl_trained_it_to(results: dict[str, StageResult]) -> None:
    """`ending` is what TRL writes after plain text; without it the score would be another text's."""
    (folder,) = results["one"].trained.folders
    reward = model(folder, ending=results["one"].trained.facts["ending"])
    prompts = [row["prompt"] for row in PAIRS]
    chosen = reward(prompts, [row["chosen"] for row in PAIRS])
    rejected = reward(prompts, [row["rejected"] for row in PAIRS])
    won = sum(good > bad for good, bad in zip(chosen, rejected, strict=True)) / len(PAIRS)  # type: ignore[operator]
    assert won == pytest.approx(results["one"].trained.facts["eval"]["eval_accuracy"])
    assert won > 0.9
    assert results["one"].trained.facts["ending"] == "<eos>"


def test_members_of_an_ensemble_differ_and_load_as_reward_models(results: dict[str, StageResult]) -> None:
    folders = results["several"].trained.folders
    assert [folder.name for folder in folders] == ["member-1", "member-2"]
    one, other = weights(folders[0]), weights(folders[1])
    assert any((one[name] != other[name]).any() for name in one)
    together = ensemble([model(folder) for folder in folders], scale=[(0.0, 1.0), (0.0, 1.0)])
    scored = together(["what"], [" the answer is 3"])
    assert scored[0] is not None
    members = results["several"].trained.facts["members"]
    assert [member["rows"] for member in members] == [13, 13]  # of 16 prompts
    assert results["several"].trained.facts["steps"] == 4


def test_warm_is_the_mean_of_members_with_one_beginning(results: dict[str, StageResult]) -> None:
    import torch

    stage = results["mean"]
    (folder,) = stage.trained.folders
    one, other, mean = (weights(stage.folder / name) for name in ("member-1", "member-2", "model"))
    for name, value in mean.items():
        assert torch.allclose(value, (one[name] + other[name]) / 2, atol=1e-7), name
    start = weights(stage.folder / "start")
    assert (one["score.weight"] != other["score.weight"]).any()
    # The head is trained too, and from one place: members are nearer to where they began than heads at random are.
    moved = (one["score.weight"] - start["score.weight"]).abs().max()
    assert 0.0 < moved < 0.02
    assert model(folder)(["what"], [" is"])[0] is not None
    assert (folder / "tiltmeter-warm.json").exists()


def test_a_member_has_all_pairs_of_its_prompts_or_none() -> None:
    rows = [{"prompt": str(at % 10), "chosen": "a", "rejected": str(at)} for at in range(40)]
    one, other = _draw_share(rows, 0.8, 1), _draw_share(rows, 0.8, 2)
    assert len(one) == len(other) == 32
    assert {row["prompt"] for row in one} != {row["prompt"] for row in other}
    assert [row for row in rows if row in one] == one
    assert len(_draw_share([{"chosen": "a", "rejected": "b"}] * 10, 0.5, 1)) == 5


def test_ipo_and_dpo_and_its_soft_form_are_different_losses(results: dict[str, StageResult]) -> None:
    dpo, same, soft = (weights(results[name].trained.folders[0]) for name in ("dpo", "same", "soft"))
    assert all((dpo[name] == same[name]).all() for name in dpo)  # both parts of the KL weighted alike: plain DPO
    assert any((dpo[name] != soft[name]).any() for name in dpo)
    # Before the first step the margin is 0, and the loss (1/(2β))² for IPO, ln 2 for DPO; two steps later still near.
    assert results["ipo"].trained.facts["metrics"]["train_loss"] > 10.0
    assert results["dpo"].trained.facts["metrics"]["train_loss"] < 1.0


def test_a_watched_stage_has_a_run_and_a_verdict(results: dict[str, StageResult]) -> None:
    facts = results["dpo"].trained.facts
    assert facts["verdict"] == "BLIND"  # nothing is generated, so there is nothing to label
    assert Path(facts["run"]) == results["dpo"].folder / "tiltmeter"
    assert facts["alarms"] == 0
    assert results["kto"].trained.facts["verdict"] is None
    told = CliRunner().invoke(app, ["show", str(results["dpo"].folder / "tiltmeter"), "--json"])
    assert told.exit_code == 2, told.output


def test_gold_judges_what_a_stage_saves(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage of DPO and one of a reward model; the prompts are in a file beside the recipe."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    saves = {**STEP, "max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    asked = {"prompts": "asked.jsonl", "sampling": {"answers": 2, "tokens": 6, "prompts": 40}}
    path = write_recipe(
        tmp_path / "recipe",
        {"method": "dpo", "data": "pairs.jsonl", "trl": saves, "gold": "rewards.py:short", "watch": asked},
        {"method": "reward", "data": "pairs.jsonl", "trl": saves, "gold": "checks.py:right"},
        model=str(tiny_model),
    )
    rows = [json.dumps({"prompt": f"what is {number} plus 3"}) + "\n" for number in range(40)]
    (path.parent / "asked.jsonl").write_text("".join(rows))
    (path.parent / "checks.py").write_text("def right(completion, **_):\n    return float('answer' in completion)\n")
    dpo, reward = (one.result.trained.facts for one in run_recipe(read_recipe(path), lambda what, done, total: None))
    assert "3 checkpoints asked the same 40 questions" in dpo["sentence"], dpo
    assert dpo["verdict"] == "OK" and dpo["alarms"] == 0
    _, reward_run, _ = judge_run(RunDirectory(reward["run"]))
    assert len(reward_run.checkpoints.points) == 2, reward


def test_the_summary_is_a_table_or_json(results: dict[str, StageResult]) -> None:
    path = results["sft"].folder.parents[1] / "recipe.yaml"
    shown = CliRunner().invoke(app, ["model", "train", str(path)], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    lines = [line.split() for line in shown.stdout.splitlines()]
    assert lines[0] == ["stage", "method", "steps", "seconds", "verdict", "result"]
    assert [line[0] for line in lines if "before" in line] == [stage.get("name", stage["method"]) for stage in STAGES]
    said = json.loads(CliRunner().invoke(app, ["model", "train", str(path), "--json"]).stdout)
    assert [stage["facts"]["steps"] for stage in said["stages"]][:4] == [2, 2, 2, 12]


def test_an_alarm_of_a_watched_stage_leaves_with_1(
    results: dict[str, StageResult], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = results["sft"].folder.parents[1] / "recipe.yaml"
    file = results["kto"].folder / "stage.json"
    kept = file.read_text()
    file.write_text(json.dumps({**json.loads(kept), "facts": {"alarms": 1, "verdict": "ACT", "sentence": "Alarm: so"}}))
    try:
        shown = CliRunner().invoke(app, ["model", "train", str(path)])
        assert shown.exit_code == 1
        assert "kto: Alarm: so" in shown.stdout
    finally:
        file.write_text(kept)


def test_rows_that_an_earlier_stage_left_are_checked_when_they_are_there(recipe: Write) -> None:
    first = {**STAGES[0], "trl": {**TRL, "max_steps": 1}, "lora": None, "eval": None}
    path = recipe(first, {"method": "dpo", "data": "@sft/none.jsonl", "trl": STEP, **QUIET})
    with pytest.raises(AttachError, match=r"stage dpo: data: @sft/none.jsonl names no file; there are none"):
        run_recipe(read_recipe(path), lambda what, done, total: None)
