"""Prompts with right and wrong answers to probe a reward on: the user's own, or those of the package."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.errors import AttachError
from tiltmeter.gold.answers.answer_columns import ANSWER_COLUMNS
from tiltmeter.rewards import texts
from tiltmeter_workbench.common.table_files import read_rows

EXAMPLE = '{"prompt": "What is 2 + 2?", "chosen": "It is 4.", "rejected": "It is 5."}'


@dataclass(frozen=True, slots=True)
class ProbeItem:
    """A prompt with an answer that somebody preferred and, where known, one that was rejected.

    What an edit is worth can only be told beside what being right is worth, and that takes both answers. `columns` are
    the other columns of the row, handed to a reward function as a trainer would.

    >>> ProbeItem("2 + 2?", "4", "5").answers
    ('4', '5')
    """

    prompt: str
    right: str
    wrong: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)

    @property
    def answers(self) -> tuple[str, ...]:
        return (self.right,) if self.wrong is None else (self.right, self.wrong)


def bundled_items() -> list[ProbeItem]:
    """45 questions of our own, each with a right and a wrong answer of the same shape; ten ask for code."""
    rows = json.loads((files("tiltmeter_workbench.probe") / "questions.json").read_text("utf-8"))
    return [_item(row, "questions.json", number) for number, row in enumerate(rows, 1)]


def read_pairs(path: str | Path) -> list[ProbeItem]:
    """Rows with prompt, chosen and rejected, as TRL's RewardTrainer reads them: texts, or lists of messages."""
    return [_item(row, path, number) for number, row in enumerate(read_rows(path, EXAMPLE), 1)]


def read_prompts(path: str | Path) -> list[ProbeItem]:
    """Rows with a prompt and an answer (or completion, response, chosen, solution, ...); whether it is right is not
    known. All columns but the prompt are kept, for a reward function that needs them."""
    items = []
    for number, row in enumerate(read_rows(path, EXAMPLE), 1):
        names = ("answer", "completion", "response", "chosen", *ANSWER_COLUMNS)
        name = next((name for name in names if isinstance(row.get(name), (str, list, int, float)) and row[name]), None)
        if name is None or not row.get("prompt"):
            raise AttachError(f"{path}, row {number}: a row has a prompt and an answer; it has {sorted(row)}")
        own = row[name]
        prompt, answer = texts([row["prompt"], own if isinstance(own, (str, list)) else str(own)])
        items.append(ProbeItem(prompt, answer, None, {key: value for key, value in row.items() if key != "prompt"}))
    return items


def with_columns(items: Sequence[ProbeItem], needed: Sequence[str], source: str) -> list[ProbeItem]:
    """The items with the columns that a reward function needs, as TRL would hand them over from a dataset.

    The right answer may have another of its usual names. Where it is the only answer that an item has, that of another
    item is the wrong one: what being right is worth can then be told. Raises `AttachError` for a column that is absent.

    >>> two = [ProbeItem("2 + 2?", "4", columns={"answer": "4"}), ProbeItem("2 + 3?", "5", columns={"answer": "5"})]
    >>> first = with_columns(two, ["solution"], "questions.jsonl")[0]
    >>> first.columns, first.wrong
    ({'answer': '4', 'solution': '4'}, '5')
    """
    filled = []
    for at, item in enumerate(items):
        columns = dict(item.columns)
        key = next((name for name in ANSWER_COLUMNS if name in columns), None)
        for name in needed:
            if name not in columns and name in ANSWER_COLUMNS and key is not None:
                columns[name] = columns[key]
            elif name not in columns:
                raise AttachError(
                    f"the reward function needs {name!r}, which {source} does not have (it has {sorted(columns)}): "
                    f"give rows of your dataset, with a prompt, {name} and an answer, as --prompts FILE"
                )
        wrong = item.wrong
        if wrong is None and any(name in ANSWER_COLUMNS for name in needed):
            others = (items[(at + step) % len(items)].right for step in range(1, len(items)))
            wrong = next((other for other in others if other != item.right), None)
        filled.append(replace(item, columns=columns, wrong=wrong))
    return filled


def _item(row: Mapping[str, Any], path: str | Path, number: int) -> ProbeItem:
    if row.get("chosen") is None or row.get("rejected") is None:
        raise AttachError(f"{path}, row {number}: a pair has prompt, chosen and rejected, as {EXAMPLE}")
    prompt, chosen, rejected = row.get("prompt"), row["chosen"], row["rejected"]
    if prompt is None and isinstance(chosen, list) and isinstance(rejected, list) and chosen:
        # TRL's implicit prompt: both conversations begin with it.
        prompt, chosen, rejected = chosen[:-1], chosen[-1:], rejected[-1:]
    if prompt is None:
        raise AttachError(f"{path}, row {number}: a pair has a prompt of its own, as {EXAMPLE}")
    prompt_text, right, wrong = texts([prompt, chosen, rejected])
    used = ("prompt", "chosen", "rejected")
    return ProbeItem(prompt_text, right, wrong, {key: value for key, value in row.items() if key not in used})


def subsample(items: Sequence[ProbeItem], most: int, seed: int) -> list[ProbeItem]:
    """At most so many, drawn by the seed; one per prompt as long as there are enough prompts."""
    order = np.random.default_rng(seed).permutation(len(items)).tolist()
    if len(items) <= most:
        return list(items)
    used_prompts: set[str] = set()
    first: list[int] = []
    again: list[int] = []
    for at in order:
        (again if items[at].prompt in used_prompts else first).append(at)
        used_prompts.add(items[at].prompt)
    return [items[at] for at in sorted((first + again)[:most])]
