"""The training data joined to rollouts by prompt: as it stands, inside a chat template, and where it must not be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tiltmeter.audit.dataset_join import DatasetRows, open_dataset
from tiltmeter.cli import app
from tiltmeter.data.batches import from_columns
from tiltmeter.errors import StoreError

VERL = Path(__file__).parent / "readers" / "fixtures" / "verl-0.9.1" / "v1"
ROWS = [{"question": f"What is {a} plus {b}?", "answer": str(a + b)} for a in range(13) for b in (1, 2)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.mark.parametrize(
    "template",
    [
        "{}",
        "user\n{}\nassistant\n",
        "<|im_start|>system\nThink first.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
        "<s>[INST] {}  [/INST]",
        "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\n{}<|eot_id|>",
        "Question:   {}\nPut the answer in a box.",
    ],
)
def test_a_prompt_is_found_whatever_a_template_puts_around_it(tmp_path: Path, template: str) -> None:
    dataset = open_dataset(str(write(tmp_path / "tasks.jsonl", ROWS)))
    assert dataset.on == "question"
    for row in ROWS:
        text = dataset.lookup(template.format(row["question"]))
        assert text is not None and json.loads(text) == {"answer": row["answer"]}
    assert dataset.lookup(template.format("What is 99 plus 2?")) is None


def test_conversations_count_by_what_the_user_says_last() -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a prime above 7."}]
    dataset = DatasetRows.of("x", "prompt", [{"prompt": turns, "ground_truth": 11}])
    assert dataset.lookup("system\nBe terse.\nuser\nName a prime above 7.\nassistant\n") == '{"ground_truth":11}'


def test_prompts_that_stand_for_different_rows_join_nothing_and_parts_of_words_neither() -> None:
    rows = [{"prompt": "2 + 2", "answer": "4"}, {"prompt": "2 + 2", "answer": "5"}, {"prompt": "is it", "answer": "1"}]
    dataset = DatasetRows.of("x", "prompt", rows)
    assert dataset.lookup("2 + 2") is None
    assert dataset.lookup("this item") is None and dataset.lookup("what is it") == '{"answer":"1"}'


def test_facts_of_the_rollouts_stay_and_what_is_not_joined_has_none() -> None:
    dataset = DatasetRows.of("x", "prompt", [{"prompt": "a b", "answer": "4", "level": "easy"}])
    batch = from_columns(
        1, [0, 0, 1], prompt=["a b", "a b", "c"], completion=["x", "y", "z"], facts=[{"answer": "7"}, None, None]
    )
    joined = dataset.join(batch)
    assert joined.facts is not None
    assert [text and json.loads(text) for text in joined.facts] == [
        {"answer": "7", "level": "easy"}, {"answer": "4", "level": "easy"}, None,
    ]  # fmt: skip
    assert dataset.count(batch) == 2


def test_dumps_of_verl_are_judged_by_the_dataset_that_is_joined(tmp_path: Path) -> None:
    """Its V1 trainer stores the prompt as its template made it, and no column of the dataset but the answer."""
    data = [{"prompt": [{"role": "user", "content": row["question"]}], "reward_model": {"ground_truth": row["answer"]}}
            for row in ROWS]  # fmt: skip
    done = CliRunner().invoke(
        app, ["audit", str(VERL / "rollouts"), "--dataset", str(write(tmp_path / "tasks.jsonl", data)), "--json"]
    )
    shown = json.loads(done.stdout)
    assert shown["gold"]["name"] == "the dataset's answers" and shown["readings"]["gold.mean"]["steps"] == 3
    assert "tasks.jsonl has a row for 24 of 24 rollouts, by 'prompt'" in shown["said"]


def test_a_dataset_that_cannot_be_joined_is_said_with_the_fix(tmp_path: Path) -> None:
    table = write(tmp_path / "tasks.jsonl", ROWS)
    with pytest.raises(StoreError, match="no column text; name it: --on COLUMN, one of question, answer"):
        open_dataset(str(table), "text")
    with pytest.raises(StoreError, match="a dataset is one of"):
        open_dataset(str(tmp_path / "tasks.pkl"))
    with pytest.raises(StoreError, match="has no rows"):
        open_dataset(str(write(tmp_path / "none.jsonl", [])))


def test_a_folder_that_datasets_saved_is_a_dataset(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="pip install 'tiltmeter[trl]'")
    datasets.Dataset.from_list(ROWS).save_to_disk(str(tmp_path / "saved"))
    assert open_dataset(str(tmp_path / "saved")).lookup("What is 3 plus 2?") == '{"answer":"5"}'
