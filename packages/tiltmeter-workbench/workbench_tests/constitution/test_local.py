"""A model in a folder that answers and judges, and a recipe that trains on what came out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tiltmeter.cli import app
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.common.table_files import read_rows
from tiltmeter_workbench.constitution.labels import NAMES, Question, label_questions
from workbench_tests.constitution.scripted import PRINCIPLES, Scripted, serving, verdict

pytest.importorskip("torch", reason="models are read by transformers")

QUESTION = Question("what", "the answer is", "one and two", "because")


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    (tmp_path / "principles.toml").write_text(PRINCIPLES)
    rows = [{"prompt": f"what is {number} plus 2"} for number in range(4)]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_a_local_judge_is_asked_by_the_probability_of_two_names(tiny_model: Path) -> None:
    judge = LocalModel(tiny_model)
    ((_, label),) = label_questions(judge, [QUESTION], 0.0)
    ((_, told),) = judge.choices([QUESTION.choice(*NAMES[1])], NAMES[1])
    assert label.margin == pytest.approx(told[0] - told[1], abs=1e-5)
    assert label.mass == pytest.approx(np.exp(told).sum(), rel=1e-3)
    assert label.better == ("A" if told[0] > told[1] else "B")
    ((_, unsure),) = label_questions(judge, [QUESTION], 100.0)
    assert unsure.better == "tie"


def test_a_model_in_a_folder_does_all_of_it_and_says_the_same_again(desk: Path, tiny_model: Path) -> None:
    words = ["data", "constitution", str(desk / "prompts.jsonl"), "--model", str(tiny_model), "--constitution",
             str(desk / "principles.toml"), "--tokens", "8", "--json"]  # fmt: skip
    found = []
    for name in ("one", "two", "one"):
        told = CliRunner().invoke(app, [*words, "--out", str(desk / name)])
        assert told.exit_code in (0, 1), told.output + repr(told.exception)
        found.append(json.loads(told.stdout))
    assert found[0] == found[1] == found[2]
    assert (found[0]["answers"], found[0]["critiques"], found[0]["revisions"], found[0]["samples"]) == (4, 4, 4, 8)
    assert found[0]["compared"] == found[0]["pairs"] + found[0]["tied"] + found[0]["inconsistent"] == 4
    assert 0.0 < found[0]["name_mass"] < 1.0
    for file in ("answers", "critiques", "revisions", "samples", "labels", "sft", "votes"):
        held = [(desk / name / f"{file}.jsonl").read_bytes() for name in ("one", "two")]
        assert held[0] == held[1], file
    assert all(isinstance(row["margin"], float) for row in read_rows(desk / "one" / "labels.jsonl"))


def test_a_recipe_trains_on_revisions_and_on_pairs(
    desk: Path, tiny_model: Path, their_warnings: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRL itself reads what was written: SFT the revisions, DPO the pairs of both sources."""
    monkeypatch.setenv("TILTMETER_DISABLED", "1")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    people = [{"prompt": f"what is {number}", "chosen": "one", "rejected": "two"} for number in range(4)]
    (desk / "people.jsonl").write_text("".join(json.dumps(row) + "\n" for row in people))
    trl = "trl: {max_steps: 1, per_device_train_batch_size: 2, use_cpu: true, bf16: false, max_length: 32}"
    (desk / "recipe.yaml").write_text(
        f"model: {tiny_model}\nstages:\n"
        "  - method: constitution\n    name: cai\n    data: prompts.jsonl\n"
        "    options: {constitution: principles.toml, judge: critic.toml, limit: 8, human: people.jsonl}\n"
        f'  - method: sft\n    data: "@cai/sft.jsonl"\n    {trl}\n'
        f'  - method: dpo\n    data: "@cai/mixed.jsonl"\n    {trl}\n'
    )
    with serving(Scripted(judges=lambda data: verdict("A" if data["A"] < data["B"] else "B"))) as server:
        server.file(desk / "critic.toml", "critic")
        told = CliRunner().invoke(
            app, ["model", "train", str(desk / "recipe.yaml"), "--out", str(desk / "out"), "--json"]
        )
    assert told.exit_code == 0, told.output + repr(told.exception)
    stages: list[dict[str, Any]] = json.loads(told.stdout)["stages"]
    assert stages[0]["facts"]["pairs"] + stages[0]["facts"]["unasked"] == 4
    assert stages[0]["facts"]["mixed"] == 2 * stages[0]["facts"]["pairs"] > 0
    assert {Path(file).name for file in stages[0]["files"]} >= {"sft.jsonl", "pairs.jsonl", "mixed.jsonl", "bias.html"}
    assert [stage["facts"].get("steps") for stage in stages[1:]] == [1, 1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("{rounds: yes}", "rounds cannot be True"),
        ("{rounds: 0, samples: 0}", "not both 0"),
        ("{samples: 3}", "even number"),
        ('{judge: "@other"}', "not what a stage left"),
        ("{judge: nowhere}", "give a folder"),
        ("{form: chat}", "form is one of"),
        ("{constitution: none.toml}", "cannot be read"),
        ("{human: prompts.jsonl}", "a pair has prompt, chosen and rejected"),
        ("{critic: x}", "there is no critic"),
    ],
)
def test_a_recipe_that_cannot_work_is_refused_before_anything_is_asked(
    desk: Path, tiny_model: Path, options: str, message: str
) -> None:
    (desk / "recipe.yaml").write_text(
        f"model: {tiny_model}\nstages:\n  - method: constitution\n    data: prompts.jsonl\n    options: {options}\n"
    )
    told = CliRunner().invoke(app, ["model", "train", str(desk / "recipe.yaml"), "--check"])
    assert told.exit_code != 0
    assert message in f"{told.output} {told.exception}"
