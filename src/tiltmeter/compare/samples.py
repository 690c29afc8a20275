"""What both models said: sampled once, kept in a folder, and found again by a comparison that goes on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tiltmeter.batches import plain_text
from tiltmeter.chat import Answer, Progress, Turns
from tiltmeter.errors import AttachError
from tiltmeter.rows import Row, need_columns, read_rows

if TYPE_CHECKING:
    from tiltmeter.chat.local import LocalModel

Which = Literal["base", "checkpoint"]
LIMIT = 256  # tokens of an answer
CHUNK = 16  # answers that are sampled with one seed and written at once


class Kept:
    """Answers by what was asked, in a file of JSON lines that only grows. A line torn by a crash is asked again.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "judged.jsonl"
    >>> Kept(file).put({"2 + 2?": 0.5})
    >>> Kept(file).get("2 + 2?"), Kept(file).get("3 + 3?")
    (0.5, None)
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    @cached_property
    def _known(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.file.exists():
            for line in self.file.read_bytes().splitlines():
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # torn by a crash
                found[row["key"]] = row["value"]
        return found

    def get(self, key: str) -> Any:
        return self._known.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def put(self, values: Mapping[str, Any]) -> None:
        """Add these, all in one write; on disk when this returns."""
        self._known.update(values)
        rows = "".join(json.dumps({"key": key, "value": value}) + "\n" for key, value in values.items())
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("ab+") as file:
                whole = not file.tell() or _last_byte(file) == b"\n"
                file.write((b"" if whole else b"\n") + rows.encode("ascii"))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise AttachError(
                f"{self.file} cannot be written: {error.strerror or error}; --work names a folder that can"
            ) from error


def _last_byte(file: Any) -> bytes:
    file.seek(-1, os.SEEK_END)
    return bytes(file.read(1))


@dataclass(frozen=True)
class Prompts:
    """What both models are asked, with the columns of each row for a judge that needs them.

    >>> Prompts("prompts", ("2 + 2?", [{"role": "user", "content": "3 + 3?"}]), ({}, {})).texts
    ['2 + 2?', '3 + 3?']
    """

    name: str
    turns: Sequence[Turns]
    columns: Sequence[Mapping[str, Any]]
    repeated: int = 0  # rows of the file that were left out because another asks the same

    def __len__(self) -> int:
        return len(self.turns)

    @property
    def texts(self) -> list[str]:
        """As a judge reads them."""
        return [plain_text(_listed(turns)) or "" for turns in self.turns]

    def drawn(self, seed: int, most: int | None) -> Prompts:
        """At most so many, in an order that is drawn: whoever asks for more later sees the same ones first."""
        order = np.random.default_rng(seed).permutation(len(self))[:most].tolist()
        return Prompts(self.name, [self.turns[at] for at in order], [self.columns[at] for at in order])


def read_prompts(path: str | Path, name: str = "prompts") -> Prompts:
    """The prompts of a file: a column `prompt` with texts or chat messages. Raises `AttachError` with the fix.

    Each prompt counts once: two answers to the same one are not two independent draws.
    """
    rows = read_rows(path, '{"prompt": "What is 2 + 2?"}')
    need_columns(path, rows, "prompt")
    found = [row for row in rows if row.get("prompt")]
    if strange := [
        row["prompt"] for row in found if not isinstance(row["prompt"], str) and not _is_chat(row["prompt"])
    ]:
        raise AttachError(
            f"{path}: a prompt is a {type(strange[0]).__name__}; give a text, or messages with role and content"
        )
    if not found:
        raise AttachError(f"{path}: every prompt is empty")
    first: dict[str, Row] = {}
    for row in found:
        first.setdefault(json.dumps(_spoken(row["prompt"])), row)
    rows = list(first.values())
    columns = [{k: v for k, v in row.items() if k != "prompt"} for row in rows]
    return Prompts(name, [_spoken(row["prompt"]) for row in rows], columns, len(found) - len(rows))


def _spoken(prompt: Any) -> Any:
    """A single turn of a user as the text that it is: both are asked in the same tokens."""
    if isinstance(prompt, list) and len(prompt) == 1 and prompt[0]["role"] == "user":
        return prompt[0]["content"]
    return prompt


def _is_chat(prompt: object) -> bool:
    return isinstance(prompt, list) and all(
        isinstance(turn, dict) and isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)
        for turn in prompt
    )


def _listed(turns: Turns) -> object:
    return turns if isinstance(turns, str) else [dict(turn) for turn in turns]


@dataclass
class Material:
    """Both models, and where what they said is kept.

    Each file of `work` holds the answers of one model to one suite. An answer is found again only if the question, the
    settings, the seed and the model's files are those it was sampled with.
    """

    base: LocalModel
    checkpoint: LocalModel
    work: Path
    seed: int = 0
    limit: int = LIMIT
    samples: int = 4  # answers of each model to a prompt, where a measure needs several
    progress: Progress | None = None
    _marks: dict[Which, str] = field(default_factory=dict, init=False, repr=False)

    def answers(
        self, which: Which, suite: str, asked: Sequence[Turns], samples: int = 1, temperature: float = 1.0
    ) -> list[list[Answer]]:
        """`samples` answers of a model to each question, in their order; those that are not kept yet are sampled.

        Seeds differ between the two models: what a model says here does not hang on what the other says.
        """
        kept = self.kept(f"{suite}-{which}")
        settings = [self._mark(which), self.seed, self.limit, samples, temperature]
        seen: dict[str, int] = {}
        keys = []
        for one in asked:
            question = json.dumps(_listed(one))
            seen[question] = seen.get(question, 0) + 1  # the same question again is another draw
            keys.append(_hash([*settings, question, seen[question]]))
        each = max(1, CHUNK // samples)
        for first in range(0, len(asked), each):
            part = range(first, min(first + each, len(asked)))
            if missing := [at for at in part if keys[at] not in kept]:
                seed = int(_hash([self.seed, suite, which, missing[0]])[:8], 16)
                given = self._sampled(which, [asked[at] for at in missing], samples, temperature, seed)
                kept.put({keys[missing[at]]: [_written(one) for one in told] for at, told in given.items()})
            if self.progress is not None:
                self.progress(f"{suite}: what the {which} says", part.stop, len(asked))
        return [[Answer(one["text"], tuple(one["tokens"]), one["ended"]) for one in kept.get(key)] for key in keys]

    def kept(self, name: str) -> Kept:
        """The file of that name in `work`, for whatever else is dear enough to keep."""
        return Kept(self.work / f"{name}.jsonl")

    def model(self, which: Which) -> LocalModel:
        return self.base if which == "base" else self.checkpoint

    def _sampled(
        self, which: Which, asked: Sequence[Turns], samples: int, temperature: float, seed: int
    ) -> dict[int, list[Answer]]:
        speaker = self.model(which)
        return dict(speaker.answers(asked, samples=samples, limit=self.limit, temperature=temperature, seed=seed))

    def _mark(self, which: Which) -> str:
        if which not in self._marks:
            model = self.model(which)
            # An adapter on another base is another model.
            below = getattr(model, "base", None)
            self._marks[which] = fingerprint(model.folder) + ("" if below is None else fingerprint(Path(below)))
        return self._marks[which]


def fingerprint(folder: Path) -> str:
    """Names, sizes and times of a model's files: other weights under the same name are another model."""
    files = sorted(file for file in folder.iterdir() if file.is_file()) if folder.is_dir() else []
    return _hash([[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files])


def _written(answer: Answer) -> dict[str, Any]:
    return {"text": answer.text, "tokens": list(answer.tokens), "ended": answer.ended}


def _hash(told: object) -> str:
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:24]
