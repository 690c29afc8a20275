"""`tiltmeter model compare` on real models: a copy with noise, a judge in a file, and every form of output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tiltmeter.cli import app
from tiltmeter.errors import AttachError
from tiltmeter_workbench.verbs.model.compare import recipe_rewards

CHECKS = """
def score(prompt, completion):
    return float(len(set(completion.lower())))

def paid(completions, **kwargs):
    return [float(len(text)) for text in completions]
"""


@pytest.fixture(scope="module")
def models(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tiny model, a moved copy, prompts and a judge."""
    import torch

    from tiltmeter_workbench.common.local_model import LocalModel

    folder = tmp_path_factory.mktemp("compare")
    (folder / "base").symlink_to(tiny_model)
    held = LocalModel(tiny_model)
    torch.manual_seed(1)
    with torch.no_grad():
        for weight in held.model.parameters():
            weight += 0.05 * torch.randn_like(weight)
    held.model.save_pretrained(folder / "moved")
    held.tokenizer.save_pretrained(folder / "moved")
    (folder / "checks.py").write_text(CHECKS)
    rows = [{"prompt": f"what is {at} plus 2"} for at in range(24)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def run(models: Path, checkpoint: str, *more: object) -> Any:
    words = [
        *("model", "compare", models / "base", models / checkpoint, "--prompts", models / "prompts.jsonl", "--work"),
        *(models / f"{checkpoint}-kept", "--tokens", 5, "--answers", 2, "--most", 21, *more),
        *(word for name in ("capability", "speed", "sycophancy") for word in ("--leave-out", name)),
    ]
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def judged(models: Path) -> tuple[object, ...]:
    return ("--judge", f"{models}/checks.py:score", "--reward", f"{models}/checks.py:paid")


def test_a_moved_copy_is_compared_in_every_form_and_again_without_asking(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = ("--html", models / "price.html", "--md", models / "price.md")
    done = run(models, "moved", *judged(models), *outputs, "--json")
    told = json.loads(done.stdout)
    assert done.exit_code == told["exit_code"]
    by_name = {measure["name"]: measure for measure in told["measures"]}
    assert by_name["kl"]["checkpoint"] > 0.0
    assert by_name["win_rate"]["n"] == 21
    assert by_name["reward_accuracy"]["state"] != "not asked"
    assert by_name["capability"]["state"] == "not asked"
    assert (models / "price.md").read_text("utf-8").replace("\\", "").startswith(f"## {told['sentence']}")
    assert (models / "price.html").read_text("utf-8").startswith("<!doctype html>")

    def never(*_: object, **__: object) -> None:
        raise AssertionError("it was sampled already")

    monkeypatch.setattr("tiltmeter_workbench.common.local_model.LocalModel.answers", never)
    again = run(models, "moved", *judged(models))
    assert again.exit_code == done.exit_code
    assert "Wins" in again.stdout


def test_without_a_judge_it_cannot_tell_and_says_what_would_help(models: Path) -> None:
    done = run(models, "base", "--json", "--leave-out", "refusal", "--leave-out", "texture")
    told = json.loads(done.stdout)
    assert (done.exit_code, told["verdict"]) == (2, "cannot tell")
    kl = next(measure for measure in told["measures"] if measure["name"] == "kl")
    assert (kl["checkpoint"], kl["low"], kl["high"]) == (0.0, 0.0, 0.0)
    assert any("--judge" in line for line in told["not_asked"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("--prompts", "nowhere.jsonl"), "neither a file nor a suite"),
        (("--judge", "nobody"), "is no judge"),
        (("--reward", "nothing"), "is no reward"),
        (("--benign", "nowhere.csv"), "neither a file nor a suite"),
        (("--html", "no/folder/price.html"), "cannot be written"),
        (("--leave-out", "luck"), "there is no 'luck'"),
        (("--scored",), "about a judge.toml"),
        (("--suite-dir", "nowhere"), "is no folder"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_asked(models: Path, wrong: tuple[str, ...], message: str) -> None:
    words = ["model", "compare", str(models / "base"), str(models / "moved"), *wrong]
    done = CliRunner().invoke(app, words)
    said = f"{done.output} {done.exception}".replace("\n", " ").replace("│", " ")
    assert message in " ".join(said.split())
    assert done.exit_code != 0


def test_the_reward_is_no_judge_and_one_that_lacks_a_column_is_found_first(models: Path, tmp_path: Path) -> None:
    def said(*more: str) -> str:
        words = [
            "model",
            "compare",
            str(models / "base"),
            str(models / "moved"),
            "--work",
            str(tmp_path / "kept"),
            *more,
        ]
        done = CliRunner().invoke(app, words)
        assert done.exit_code != 0
        return str(done.exception)

    assert "itself" in said("--judge", f"{models}/checks.py:score", "--reward", f"{models}/checks.py:score")
    (tmp_path / "strict.py").write_text("def paid(completions, answer, **kwargs):\n    return [0.0 for _ in answer]\n")
    assert "file of --prompts" in said("--reward", f"{tmp_path}/strict.py:paid")
    assert not (tmp_path / "kept").exists()


RECIPE = """
model: base
stages:
  - {method: reward, name: rm, data: pairs.jsonl}
  - method: grpo
    data: prompts.jsonl
    rewards: [REWARD]
    guards: [repetition]
"""


def test_a_recipe_says_what_training_paid_by(tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE.replace("REWARD", "{function: 'checks.py:paid', weight: 2}"))
    assert recipe_rewards(recipe) == ([{"function": f"{tmp_path}/checks.py:paid", "weight": 2}], ["repetition"])
    recipe.write_text(RECIPE.replace("REWARD", "{model: '@rm'}"))
    with pytest.raises(AttachError, match="not trained yet"):
        recipe_rewards(recipe)
    recipe.write_text(RECIPE.partition("  - method: grpo")[0])
    with pytest.raises(AttachError, match="no stage with rewards"):
        recipe_rewards(recipe)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["model", "compare", str(tmp_path), str(tmp_path)])
    assert "it is no model's folder" in str(done.exception)
