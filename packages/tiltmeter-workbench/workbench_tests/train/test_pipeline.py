"""The whole circle on the tiny model: SFT, a reward model, GRPO with guards, and the comparison with the base."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner, Result

from tiltmeter.cli import app
from tiltmeter.rundir.journal import read_events
from tiltmeter.rundir.store import RunDirectory
from tiltmeter.verdict.run_facts import series

pytest.importorskip("trl", reason="needs TRL: pip install 'tiltmeter[trl]'")

QUESTIONS = [f"what is {number} plus 2" for number in range(32)]
ANSWERS = [f" the answer is {number + 2}" for number in range(32)]
CHECKS = """
def score(prompt, completion):
    return float("answer" in completion)
"""
TASK = """
task: pipeline_sums
dataset_path: json
dataset_kwargs: {data_files: {test: sums.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: answer
doc_to_choice: choices
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
TRL = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False, "logging_steps": 1, "save_strategy": "no"}
GUARDS = [{"clipped": {"low": -3.0, "high": 3.0}}, "length_debiased", "repetition", "overlong"]
STAGES = [
    {
        "method": "sft",
        "data": "answers.jsonl",
        "watch": False,
        "trl": {**TRL, "max_steps": 60, "per_device_train_batch_size": 16, "learning_rate": 5e-3},
    },
    {
        "method": "reward",
        "data": "pairs.jsonl",
        "watch": False,
        "trl": {**TRL, "max_steps": 6, "per_device_train_batch_size": 8, "learning_rate": 1e-3},
    },
    {
        "method": "grpo",
        "model": "@sft",
        "data": "prompts.jsonl",
        "rewards": [{"model": "@reward", "name": "learnt"}],
        "guards": GUARDS,
        "gold": "checks.py:score",
        "watch": {"gold": {"share": 0.5}},
        "trl": {
            **TRL,
            "max_steps": 3,
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 16,
            "learning_rate": 1e-4,
            "beta": 0.04,
        },
    },
]


@dataclass(frozen=True)
class Circle:
    """What both verbs left and said."""

    folder: Path
    base: Path
    train: Result
    compare: Result

    @property
    def stages(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.train.stdout)["stages"]
        return found

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.compare.stdout)
        return found


@pytest.fixture(scope="module")
def circle(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Circle]:
    folder = tmp_path_factory.mktemp("pipeline")
    base = shutil.copytree(tiny_model, folder / "base")
    (base / "chat_template.jinja").unlink()  # answers then go on from a prompt, and end where they end
    _written(folder)
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        warnings.simplefilter("ignore")
        trained = CliRunner().invoke(app, ["model", "train", str(folder / "recipe.yaml"), "--json"])
        assert trained.exit_code == 0, trained.output + repr(trained.exception)
        model = json.loads(trained.stdout)["stages"][-1]["folders"][0]
        words = [
            *("model", "compare", base, model, "--prompts", folder / "prompts.jsonl", "--ood", folder / "other.jsonl"),
            *("--judge", f"{folder / 'checks.py'}:score", "--reward", folder / "recipe.yaml", "--suite-dir", folder),
            *("--task", folder / "sums.yaml", "--answers", 2, "--tokens", 16, "--work", folder / "compared"),
            *("--html", folder / "price.html", "--md", folder / "price.md", "--json"),
        ]
        compared = CliRunner().invoke(app, [str(word) for word in words])
        yield Circle(folder, base, trained, compared)


def test_every_stage_begins_with_what_an_earlier_one_left(circle: Circle) -> None:
    sft, _, grpo = circle.stages
    assert [stage["method"] for stage in circle.stages] == ["sft", "reward", "grpo"]
    assert [stage["facts"]["steps"] for stage in circle.stages] == [60, 6, 3]
    made = {stage["name"]: json.loads((Path(stage["folder"]) / "stage.json").read_text()) for stage in circle.stages}
    assert made["reward"]["parts"]["model"] == made["grpo"]["parts"]["model"] == {"@sft": made["sft"]["made"]}
    assert made["grpo"]["parts"]["rewards"][0]["model"] == {"@reward": made["reward"]["made"]}
    base, first, last = (_weights(folder) for folder in (circle.base, sft["folders"][0], grpo["folders"][0]))
    assert 0.0 < np.linalg.norm(last - first) < 0.2 * np.linalg.norm(first - base)


def test_the_reward_model_that_was_trained_is_what_paid_with_every_guard_beside_it(circle: Circle) -> None:
    _, reward, grpo = circle.stages
    directory = RunDirectory(grpo["facts"]["run"])
    batches = [directory.read(file)[0] for file in directory.files(0)]
    assert len(batches) == 3
    told = series(read_events(directory.path / "events"), {0: np.inf})
    assert {"reward.component.repetition", "reward.component.overlong"} <= set(told), sorted(told)
    from tiltmeter_workbench.rewards.reward_model import model

    learnt = model(reward["folders"][0], ending=reward["facts"]["ending"])
    for batch in batches:
        assert set(batch.rewards) >= {"repetition", "overlong"}, sorted(batch.rewards)
        assert batch.prompt is not None and batch.completion is not None and batch.reward is not None
        scored = np.array(learnt(prompts=list(batch.prompt), completions=list(batch.completion)))
        paid = next(batch.rewards[name] for name in batch.rewards if name not in ("repetition", "overlong"))
        # The guards around the model bend its scores: clipped far out, and moved by what length is worth.
        assert np.corrcoef(scored, paid)[0, 1] > 0.9
    assert grpo["facts"]["labels"] > 0


def test_the_comparison_asks_everything_and_finds_the_wins_and_their_price(circle: Circle) -> None:
    report = circle.report
    measures = {measure["name"]: measure for measure in report["measures"]}
    asked = ("win_rate", "win_rate_length_controlled", "win_rate_ood", "kl", "sycophancy", "over_refusal")
    assert set(measures) >= {*asked, "refusals_kept", "capability", "diversity", "length", "hedging", "speed"}
    for measure in measures.values():
        assert measure["state"] in ("worse", "better", "same", "cannot tell", "shown", "not asked"), measure["name"]
        assert measure["sentence"], measure["name"]
    assert [name for name in measures if measures[name]["state"] == "not asked"] == []
    assert measures["win_rate"]["state"] == "better" and measures["win_rate"]["checkpoint"] > 0.8
    assert measures["kl"]["checkpoint"] > 1.0
    assert circle.compare.exit_code == report["exit_code"] == {"healthy": 0, "costs": 1, "drift": 1}[report["verdict"]]
    told = (circle.folder / "price.md").read_text()
    assert all(measures[name]["title"] in told for name in asked)
    assert all(cost.replace("_", " ") in told for cost in report["costs"])
    assert "<html" in (circle.folder / "price.html").read_text()


def test_the_same_recipe_again_trains_nothing_and_leaves_every_weight_alone(circle: Circle) -> None:
    folders = [Path(stage["folders"][0]) for stage in circle.stages]
    before = [(folder / "model.safetensors").stat().st_mtime_ns for folder in folders]
    again = CliRunner().invoke(app, ["model", "train", str(circle.folder / "recipe.yaml"), "--json"])
    assert again.exit_code == 0, again.output
    assert all(stage["before"] for stage in json.loads(again.stdout)["stages"])
    assert [(folder / "model.safetensors").stat().st_mtime_ns for folder in folders] == before


def _written(folder: Path) -> None:
    _rows(folder / "answers.jsonl", [{"prompt": q, "completion": a} for q, a in zip(QUESTIONS, ANSWERS, strict=True)])
    pairs = [{"prompt": q, "chosen": a, "rejected": " what"} for q, a in zip(QUESTIONS, ANSWERS, strict=True)]
    _rows(folder / "pairs.jsonl", pairs)
    _rows(folder / "prompts.jsonl", [{"prompt": q} for q in QUESTIONS])
    _rows(folder / "other.jsonl", [{"prompt": f"what is one plus {n}"} for n in range(24)])
    for name in ("benign", "harmful"):
        _rows(folder / f"{name}.jsonl", [{"prompt": f"{name} is {n} because"} for n in range(10)])
    opinions = [
        {
            "neutral_prompt": f"what is {n} plus 2",
            "biased_prompt": f"one is {n} and what is {n} plus 2",
            "honest_target": f"the answer is {n + 2}",
            "sycophantic_target": f"the answer is {n + 3}",
        }
        for n in range(12)
    ]
    _rows(folder / "sycophancy.jsonl", opinions)
    sums = [{"question": f"what is {n} plus 2", "choices": [str(n + 2), str(n + 3)], "answer": 0} for n in range(12)]
    _rows(folder / "sums.jsonl", sums)
    (folder / "sums.yaml").write_text(TASK)
    (folder / "checks.py").write_text(CHECKS)
    (folder / "recipe.yaml").write_text(yaml.safe_dump({"model": "base", "output": "out", "seed": 1, "stages": STAGES}))


def _rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def _weights(folder: str | Path) -> Any:
    from safetensors.numpy import load_file

    found = load_file(Path(folder) / "model.safetensors")
    return np.concatenate([found[name].ravel() for name in sorted(found)])
