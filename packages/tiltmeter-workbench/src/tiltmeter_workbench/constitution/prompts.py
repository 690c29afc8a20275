"""Reads the prompts, each with an id that depends on its content only."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiltmeter.data.batches import replace_surrogates
from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.table_files import need_columns, read_rows

EXAMPLE = '{"prompt": "What is a leap year?"}'
ROLES = ("system", "user", "assistant", "tool", "developer")


@dataclass(frozen=True, slots=True)
class ConstitutionPrompt:
    """A prompt: a text, or the turns of a conversation that ends with a person's."""

    id: str
    content: str | tuple[Mapping[str, str], ...]

    @property
    def turns(self) -> list[dict[str, str]]:
        if isinstance(self.content, str):
            return [{"role": "user", "content": self.content}]
        return [dict(turn) for turn in self.content]

    @property
    def text(self) -> str:
        """For a person, a judge and a report: what was asked."""
        if isinstance(self.content, str):
            return self.content
        if len(self.content) == 1:
            return self.content[0]["content"]
        return "\n\n".join(f"{turn['role']}: {turn['content']}" for turn in self.content)


def read_prompts(path: str | Path) -> tuple[list[ConstitutionPrompt], int]:
    """The prompts of a table's column `prompt`, or a text file's lines, and how many stood there more than once."""
    source = Path(path)
    cells: list[Any]
    if source.suffix == ".txt":
        try:
            cells = [line for line in source.read_text("utf-8-sig").splitlines() if line.strip()]
        except (OSError, ValueError) as error:
            raise AttachError(f"{path} cannot be read: {error}") from error
    else:
        rows = read_rows(path, EXAMPLE)
        need_columns(path, rows, "prompt")
        cells = [row.get("prompt") for row in rows]
    by_id: dict[str, ConstitutionPrompt] = {}
    for number, cell in enumerate(cells, 1):
        prompt = _parse_prompt(cell, f"{path}, row {number}")
        by_id.setdefault(prompt.id, prompt)
    if not by_id:
        raise AttachError(f"{path} has no prompts; a row looks like {EXAMPLE}")
    return list(by_id.values()), len(cells) - len(by_id)


def _parse_prompt(cell: Any, where: str) -> ConstitutionPrompt:
    content = replace_surrogates(cell) if isinstance(cell, str) and cell.strip() else _parse_turns(cell, where)
    return ConstitutionPrompt(hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12], content)


def _parse_turns(cell: Any, where: str) -> tuple[Mapping[str, str], ...]:
    turns = cell if isinstance(cell, Sequence) and not isinstance(cell, str) else ()
    sound_turns = all(
        isinstance(turn, Mapping) and turn.get("role") in ROLES and isinstance(turn.get("content"), str)
        for turn in turns
    )
    if not turns or not sound_turns or turns[-1]["role"] not in ("user", "tool"):
        raise AttachError(f"{where}: a prompt is a text, or messages with role and content that end with the user's")
    return tuple({"role": turn["role"], "content": replace_surrogates(turn["content"])} for turn in turns)
