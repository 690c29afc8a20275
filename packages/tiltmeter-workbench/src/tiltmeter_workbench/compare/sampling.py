"""Samples answers of both models and caches them in a folder, so that an interrupted comparison continues."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tiltmeter.data.batches import plain_text
from tiltmeter.errors import AttachError
from tiltmeter_workbench.common.chat_model import ChatAnswer, Progress, Turns
from tiltmeter_workbench.common.local_model import LocalModel
from tiltmeter_workbench.common.table_files import Row, need_columns, read_rows

Which = Literal["base", "checkpoint"]
LIMIT = 256  # tokens of an answer
CHUNK = 16  # answers that are sampled with one seed and written at once


class JsonlCache:
    """A cache of values by key, in an append-only file of JSON lines. A line torn by a crash is ignored.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "judged.jsonl"
    >>> JsonlCache(file).put({"2 + 2?": 0.5})
    >>> JsonlCache(file).get("2 + 2?"), JsonlCache(file).get("3 + 3?")
    (0.5, None)
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    @cached_property
    def _values(self) -> dict[str, Any]:
        values: dict[str, Any] = {}
        if self.file.exists():
            for line in self.file.read_bytes().splitlines():
                try:
                    row = json.loads(line)
                except ValueError:
                    continue  # torn by a crash
                values[row["key"]] = row["value"]
        return values

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def put(self, values: Mapping[str, Any]) -> None:
        """Add these, all in one write; on disk when this returns."""
        self._values.update(values)
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
    """Prompts for both models, with the other columns of each row for a judge that needs them.

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
        return [plain_text(_as_messages(turns)) or "" for turns in self.turns]

    def draw(self, seed: int, most: int | None) -> Prompts:
        """At most `most` prompts in random order: a larger `most` with the same seed begins with the same ones."""
        order = np.random.default_rng(seed).permutation(len(self))[:most].tolist()
        return Prompts(self.name, [self.turns[at] for at in order], [self.columns[at] for at in order])


def read_prompts(path: str | Path, name: str = "prompts") -> Prompts:
    """The prompts of a file: a column `prompt` with texts or chat messages. Raises `AttachError` with the fix.

    Each prompt counts once: two answers to the same one are not two independent draws.
    """
    rows = read_rows(path, '{"prompt": "What is 2 + 2?"}')
    need_columns(path, rows, "prompt")
    with_prompt = [row for row in rows if row.get("prompt")]
    if strange := [
        row["prompt"] for row in with_prompt if not isinstance(row["prompt"], str) and not _is_chat(row["prompt"])
    ]:
        raise AttachError(
            f"{path}: a prompt is a {type(strange[0]).__name__}; give a text, or messages with role and content"
        )
    if not with_prompt:
        raise AttachError(f"{path}: every prompt is empty")
    first: dict[str, Row] = {}
    for row in with_prompt:
        first.setdefault(json.dumps(_single_turn_text(row["prompt"])), row)
    rows = list(first.values())
    columns = [{k: v for k, v in row.items() if k != "prompt"} for row in rows]
    return Prompts(name, [_single_turn_text(row["prompt"]) for row in rows], columns, len(with_prompt) - len(rows))


def _single_turn_text(prompt: Any) -> Any:
    """A single turn of a user as the text that it is: both are asked in the same tokens."""
    if isinstance(prompt, list) and len(prompt) == 1 and prompt[0]["role"] == "user":
        return prompt[0]["content"]
    return prompt


def _is_chat(prompt: object) -> bool:
    return isinstance(prompt, list) and all(
        isinstance(turn, dict) and isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)
        for turn in prompt
    )


def _as_messages(turns: Turns) -> object:
    return turns if isinstance(turns, str) else [dict(turn) for turn in turns]


@dataclass
class AnswerSampler:
    """Samples both models and caches their answers in `work`.

    Each file of `work` holds the answers of one model to one suite. A cached answer is used only if the prompt, the
    settings, the seed and the model's files are those it was sampled with.
    """

    base: LocalModel
    checkpoint: LocalModel
    work: Path
    seed: int = 0
    limit: int = LIMIT
    samples: int = 4  # answers of each model to a prompt, where a measure needs several
    progress: Progress | None = None
    _fingerprints: dict[Which, str] = field(default_factory=dict, init=False, repr=False)

    def answers(
        self, which: Which, suite: str, prompts: Sequence[Turns], samples: int = 1, temperature: float = 1.0
    ) -> list[list[ChatAnswer]]:
        """`samples` answers of a model to each prompt, in order; those that are not cached yet are sampled.

        Seeds differ between the two models, so that their answers are independent.
        """
        cache = self.cache_file(f"{suite}-{which}")
        settings = [self._model_fingerprint(which), self.seed, self.limit, samples, temperature]
        repeats: dict[str, int] = {}
        keys = []
        for one in prompts:
            question = json.dumps(_as_messages(one))
            repeats[question] = repeats.get(question, 0) + 1  # the same question again is another draw
            keys.append(_hash([*settings, question, repeats[question]]))
        each = max(1, CHUNK // samples)
        for first in range(0, len(prompts), each):
            part = range(first, min(first + each, len(prompts)))
            if missing := [at for at in part if keys[at] not in cache]:
                seed = int(_hash([self.seed, suite, which, missing[0]])[:8], 16)
                new_answers = self._sample(which, [prompts[at] for at in missing], samples, temperature, seed)
                cache.put(
                    {keys[missing[at]]: [_answer_json(one) for one in group] for at, group in new_answers.items()}
                )
            if self.progress is not None:
                self.progress(f"{suite}: what the {which} says", part.stop, len(prompts))
        return [[ChatAnswer(one["text"], tuple(one["tokens"]), one["ended"]) for one in cache.get(key)] for key in keys]

    def cache_file(self, name: str) -> JsonlCache:
        """The cache file of that name in `work`, for other costly results."""
        return JsonlCache(self.work / f"{name}.jsonl")

    def model(self, which: Which) -> LocalModel:
        return self.base if which == "base" else self.checkpoint

    def _sample(
        self, which: Which, prompts: Sequence[Turns], samples: int, temperature: float, seed: int
    ) -> dict[int, list[ChatAnswer]]:
        speaker = self.model(which)
        return dict(speaker.answers(prompts, samples=samples, limit=self.limit, temperature=temperature, seed=seed))

    def _model_fingerprint(self, which: Which) -> str:
        if which not in self._fingerprints:
            model = self.model(which)
            # An adapter on another base is another model.
            below = getattr(model, "base", None)
            self._fingerprints[which] = fingerprint(model.folder) + ("" if below is None else fingerprint(Path(below)))
        return self._fingerprints[which]


def fingerprint(folder: Path) -> str:
    """Names, sizes and times of a model's files: other weights under the same name are another model."""
    inside = folder.iterdir() if folder.is_dir() else [folder]  # a file that describes a server
    files = sorted(file for file in inside if file.is_file())
    return _hash([[file.name, file.stat().st_size, file.stat().st_mtime_ns] for file in files])


def _answer_json(answer: ChatAnswer) -> dict[str, Any]:
    return {"text": answer.text, "tokens": list(answer.tokens), "ended": answer.ended}


def _hash(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:24]
