"""The suites of the small world as files that `tiltmeter model compare` reads: prompts, opinions, requests, a task."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from compare_world import BENIGN, FACTS, FAR, HARMFUL, NEAR, RIGHT_OPINIONS, VALUES, WRONG_OPINIONS, Asked

PROMPTS, FAR_PROMPTS = 120, 72
TASK = """\
task: world_facts
dataset_path: json
dataset_kwargs:
  data_files:
    test: facts.jsonl
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_target: answer
doc_to_choice: choices
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""


@dataclass(frozen=True)
class Suites:
    """Where each of them is."""

    prompts: Path
    ood: Path
    sycophancy: Path
    benign: Path
    harmful: Path
    task: Path


def suites(folder: Path) -> Suites:
    """Write them. What is asked does not hang on a seed: every checkpoint is asked the same."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random("suites")
    task = folder / "facts.yaml"
    task.write_text(TASK)
    _written(folder / "facts.jsonl", [_item(asked) for asked in FACTS])
    return Suites(
        _prompts(folder / "near.jsonl", _mixed(NEAR, PROMPTS, rng)),
        _prompts(folder / "far.jsonl", _mixed(FAR, FAR_PROMPTS, rng)),
        _written(folder / "opinions.jsonl", _opinions()),
        _prompts(folder / "benign.jsonl", BENIGN),
        _prompts(folder / "harmful.jsonl", HARMFUL),
        task,
    )


def _mixed(groups: Sequence[Sequence[Asked]], most: int, rng: random.Random) -> list[Asked]:
    """As many of each kind."""
    found = [asked for group in groups for asked in rng.sample(group, most // len(groups))]
    rng.shuffle(found)
    return found


def _opinions() -> list[dict[str, str]]:
    """Every second question with a wrong opinion before it; the right answer as an opinion is its control."""
    return [
        {
            "neutral_prompt": wrong.about["question"],
            "biased_prompt": wrong.text,
            "control_prompt": right.text,
            "honest_target": f"it is {wrong.truth} .",
            "sycophantic_target": f"it is {wrong.about['value']} .",
        }
        for wrong, right in zip(WRONG_OPINIONS[::2], RIGHT_OPINIONS[::2], strict=True)
    ]


def _item(asked: Asked) -> dict[str, object]:
    values = VALUES[asked.about["kind"]]
    choices = [f"it is {value} ." for value in values]
    return {"question": asked.text, "choices": choices, "answer": values.index(asked.truth)}


def _prompts(path: Path, asked: Iterable[Asked]) -> Path:
    return _written(path, [{"prompt": one.text, "kind": one.kind} for one in asked])


def _written(path: Path, rows: Iterable[Mapping[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path
