"""AI pairs and human pairs in one file, at a chosen share, each row with its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import Row, read_rows

EXAMPLE = '{"prompt": "What is 2 + 2?", "chosen": "It is 4.", "rejected": "It is 5."}'
NAMES = ("prompt", "chosen", "rejected")
RATERS = ("rater", "annotator", "worker", "labeler")


def read_human_pairs(path: str | Path, chat: bool) -> list[Row]:
    """Pairs of people in the form of the others: messages if `chat`, else texts. Raises `AttachError` with the fix."""
    rows = read_rows(path, EXAMPLE)
    pairs = []
    for number, row in enumerate(rows, 1):
        where = f"{path}, row {number}"
        if any(row.get(name) in (None, "", []) for name in NAMES):
            raise AttachError(f"{where}: a pair has prompt, chosen and rejected, as {EXAMPLE}")
        pair = {name: _to_cell(row[name], "user" if name == "prompt" else "assistant", chat, where) for name in NAMES}
        rater = next((str(row[name]) for name in RATERS if row.get(name)), "people")
        pairs.append({**pair, "source": "human", "rater": rater})
    return pairs


def _to_cell(cell: Any, role: str, chat: bool, where: str) -> Any:
    if isinstance(cell, str):
        return [{"role": role, "content": cell}] if chat else cell
    turns = list(cell) if isinstance(cell, Sequence) else []
    if not turns or not all(isinstance(turn, Mapping) and isinstance(turn.get("content"), str) for turn in turns):
        raise AttachError(f"{where}: a cell is a text, or messages with role and content")
    if chat:
        return [{"role": str(turn.get("role", role)), "content": turn["content"]} for turn in turns]
    if len(turns) > 1:
        raise AttachError(f"{where}: a conversation of several turns does not fit pairs of plain texts")
    return turns[0]["content"]


def mix_pairs(ai: Sequence[Row], human: Sequence[Row], share: float, seed: int) -> tuple[list[Row], str]:
    """As many pairs as there can be with this share of human ones, in random order, and what was left out.

    >>> rows, note = mix_pairs([{"source": "ai"}] * 3, [{"source": "human"}] * 9, 0.5, 0)
    >>> len(rows), note
    (6, '3 human and 3 AI pairs: AI pairs are short, 6 human pairs are left out')
    """
    if not 0.0 <= share <= 1.0:
        raise AttachError(f"the share of human pairs is {share:g}: give one from 0 to 1")
    by_human = len(human) / share if share > 0.0 else float("inf")
    by_ai = len(ai) / (1.0 - share) if share < 1.0 else float("inf")
    total = min(by_human, by_ai)
    people, machine = min(len(human), round(share * total)), min(len(ai), round((1.0 - share) * total))
    note = f"{people} human and {machine} AI pairs"
    if people < len(human):
        note += f": AI pairs are short, {len(human) - people} human pairs are left out"
    elif machine < len(ai):
        note += f": human pairs are short, {len(ai) - machine} AI pairs are left out"
    rng = np.random.default_rng(seed)
    rows = [human[at] for at in np.sort(rng.choice(len(human), people, replace=False))]
    rows += [ai[at] for at in np.sort(rng.choice(len(ai), machine, replace=False))]
    return [rows[at] for at in rng.permutation(len(rows))], note
