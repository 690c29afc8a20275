"""Recipes of a few lines, with rows and rewards beside them, on the 2-layer model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

QUESTIONS = [f"what is {number} plus 2" for number in range(16)]
PAIRS = [{"prompt": q, "chosen": f" the answer is {at + 2}", "rejected": " what"} for at, q in enumerate(QUESTIONS)]
ROWS: dict[str, list[dict[str, Any]]] = {
    "pairs.jsonl": PAIRS,
    "answers.jsonl": [{"prompt": row["prompt"], "completion": row["chosen"]} for row in PAIRS],
    "texts.jsonl": [{"text": row["prompt"] + row["chosen"]} for row in PAIRS],
    "marked.jsonl": [
        {"prompt": row["prompt"], "completion": row["chosen"], "label": at % 2 == 0} for at, row in enumerate(PAIRS)
    ],
    "prompts.jsonl": [{"prompt": q, "answer": str(at + 2)} for at, q in enumerate(QUESTIONS)],
}
REWARDS = """
def long(completions, **_):
    return [len(text) / 50 for text in completions]


def short(completion, **_):
    return float(len(completion) < 20)
"""
#: Of TRL: small, quick, and the same bits on every run.
TRL: dict[str, Any] = {
    "use_cpu": True, "bf16": False, "per_device_train_batch_size": 4, "gradient_checkpointing": False,
    "logging_steps": 1, "learning_rate": 1e-3, "save_strategy": "no",
}  # fmt: skip

Write = Callable[..., Path]


def write_recipe(folder: Path, *stages: dict[str, Any], **fields: Any) -> Path:
    """A recipe in a folder of its own, with everything that it names."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in ROWS.items():
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "rewards.py").write_text(REWARDS)
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({"output": "out", "stages": list(stages), **fields}, sort_keys=False))
    return path


@pytest.fixture
def recipe(tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """`recipe({"method": "sft", ...}, ...)`: a recipe on the tiny model, in this test's folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def write(*stages: dict[str, Any], **fields: Any) -> Path:
        return write_recipe(tmp_path / "recipe", *stages, **{"model": str(tiny_model), **fields})

    return write
