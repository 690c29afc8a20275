"""lm-evaluation-harness run for real: on the tasks that are shipped, and on one that a model was taught."""

from __future__ import annotations

import json
from importlib.util import find_spec
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.compare.measures import capability
from tiltmeter_workbench.compare.measures.capability import measure
from tiltmeter_workbench.compare.sampling import AnswerSampler

harness = pytest.mark.skipif(
    find_spec("lm_eval") is None, reason="needs lm-evaluation-harness: pip install 'tiltmeter[compare]'"
)
ITEMS = 40


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task file with its items beside it: which of two words follows a pair of others."""
    folder = tmp_path_factory.mktemp("task")
    pairs = list(permutations(("what", "is", "plus", "the", "answer", "because", "and"), 2))[:ITEMS]
    rows = [
        {"question": f"{a} {b}", "choices": ["one", "two"], "answer": number * number // 3 % 2}
        for number, (a, b) in enumerate(pairs)
    ]
    (folder / "items.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "words.yaml").write_text(
        """task: words
dataset_path: json
dataset_kwargs: {data_files: {test: items.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: answer
doc_to_choice: choices
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
metadata: {version: 3.0}
"""
    )
    return folder


@pytest.fixture(scope="module")
def taught(tiny_model: Path, task: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, taught the items by heart."""
    import torch

    local = LocalModel(tiny_model)
    model, tokenizer = local.model, local.tokenizer
    rows = [json.loads(line) for line in (task / "items.jsonl").read_text().splitlines()]
    texts = [f"{row['question']} {row['choices'][row['answer']]}" for row in rows]
    tokens = tokenizer(texts, return_tensors="pt", padding=True)
    labels = tokens["input_ids"].masked_fill(tokens["attention_mask"] == 0, -100)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model.train()
    for _ in range(150):
        loss = model(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"], labels=labels).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    folder = tmp_path_factory.mktemp("taught") / "model"
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@harness
def test_a_checkpoint_that_lost_what_its_base_knew_is_named(
    taught: Path,
    tiny_model: Path,
    task: Path,
    tmp_path: Path,
    their_warnings: None,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)  # under no git, which would say so beside us
    material = AnswerSampler(LocalModel(taught), LocalModel(tiny_model), tmp_path)
    capfd.readouterr()
    (told,) = measure(material, [task / "words.yaml"], alpha=0.01)
    assert (told.state, told.cost, told.n) == ("worse", "capability", ITEMS)
    assert told.base > 0.9 and told.high < 0.0
    (row,) = told.rows
    assert (row["task"], row["version"], row["metric"]) == ("words", "3.0", "acc")
    assert row["harness"] and "fell in words" in told.sentence
    assert capfd.readouterr() == ("", ""), "the harness's noise belongs on nobody's terminal"
    again = AnswerSampler(LocalModel(taught), LocalModel(tiny_model), tmp_path)
    assert measure(again, [task / "words.yaml"], alpha=0.01) == [told]
    assert "model" not in again.base.__dict__, "what was scored is found again without loading a model"


@harness
def test_the_shipped_tasks_run_offline_and_a_model_is_as_good_as_itself(
    tiny_model: Path, tmp_path: Path, their_warnings: None
) -> None:
    model = LocalModel(tiny_model)
    steps: list[Any] = []
    material = AnswerSampler(model, model, tmp_path, progress=lambda *told: steps.append(told))
    (told,) = measure(material, limit=8, alpha=0.01)
    assert [row["task"] for row in told.rows] == ["tiltmeter_facts", "tiltmeter_arithmetic"]
    assert told.n == 16 and 0.0 <= told.base <= 1.0
    assert told.difference == 0.0 and told.state == "cannot tell"  # of 16 items
    assert not model.model.training
    assert steps[-1] == ("capability of the checkpoint", 2, 2)


@harness
def test_a_task_that_cannot_be_run_is_named(tiny_model: Path, tmp_path: Path, their_warnings: None) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("task: bad\ndataset_path: json\ndataset_kwargs: {data_files: nowhere.jsonl}\ntest_split: test\n")
    model = LocalModel(tiny_model)
    with pytest.raises(AttachError, match="bad cannot be run by lm-evaluation-harness"):
        measure(AnswerSampler(model, model, tmp_path), [file], alpha=0.01)


def test_without_the_harness_the_line_that_installs_it_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tiny_model: Path
) -> None:
    monkeypatch.setattr(capability, "find_spec", lambda name: None)
    model = LocalModel(tiny_model)
    (told,) = measure(AnswerSampler(model, model, tmp_path), alpha=0.01)
    assert told.state == "not asked" and "tiltmeter[compare]" in told.sentence
